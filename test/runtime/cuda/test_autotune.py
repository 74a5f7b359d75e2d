# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Trying schedules of GPU kernels, on the emulated GPU: what is tried, taken, discarded and remembered."""

import ctypes
from dataclasses import asdict, replace

import pytest
import torch
import torch.nn.functional as F
from torch_mlir import ir

import kiln
import kiln.lowering.gpu.tune.tuner as tuner_module
from kiln.dialects import create_context
from kiln.dialects import kiln as dialect
from kiln.dialects.schedules import from_attribute
from kiln.dialects.schedules.gpu import FlashSchedule, TileSchedule, TmaSchedule
from kiln.errors import CompileError, UnsupportedError
from kiln.frontend.report import collect
from kiln.lowering.gpu.dot.fusions import DotOptions
from kiln.lowering.gpu.tune.candidates import candidates
from kiln.lowering.gpu.tune.trial import GpuTrial
from kiln.lowering.gpu.tune.tuner import GpuTuner
from kiln.lowering.tune.difference import difference
from kiln.lowering.tune.measure import Timing
from kiln.lowering.tune.store import TunedSchedules
from kiln.passes import run_pipeline
from kiln.passes.autotune_gpu import AutotuneGpu
from kiln.passes.fusion.kernels import fusions_of
from kiln.runtime.disk_cache import DiskCache

OPTIONS = DotOptions("sm_90", descriptors=True)
DEVICE = "cpu:0"


def favour(*places):
    """A `measure` that finds the runs at these places twice as fast; it calls each run once."""

    def measure(runs, seconds):
        for run in runs:
            run()
        return [Timing(0.5, 0.5) if i in places else Timing(1.0, 1.0) for i in range(len(runs))]

    return measure


def product(m, n, k, dtype="bf16"):
    lhs, rhs, result = f"tensor<{m}x{k}x{dtype}>", f"tensor<{n}x{k}x{dtype}>", f"tensor<{m}x{n}x{dtype}>"
    flags = "{transpose_lhs = false, transpose_rhs = true}"
    return f"""func.func @main(%x: {lhs}, %w: {rhs}) -> {result} {{
      %0 = "kiln.fusion"(%x, %w) ({{
      ^bb0(%a: {lhs}, %b: {rhs}):
        %r = "kiln.matmul"(%a, %b) {flags} : ({lhs}, {rhs}) -> {result}
        "kiln.yield"(%r) : ({result}) -> ()
      }}) {{kind = "matmul", name = "f"}} : ({lhs}, {rhs}) -> {result}
      return %0 : {result}
    }}"""


def attention(queries, keys, causal):
    q, k = f"tensor<2x3x{queries}x64xbf16>", f"tensor<2x3x{keys}x64xbf16>"
    return f"""func.func @main(%q: {q}, %k: {k}, %v: {k}) -> {q} {{
      %0 = "kiln.fusion"(%q, %k, %v) ({{
      ^bb0(%a: {q}, %b: {k}, %c: {k}):
        %r = "kiln.attention"(%a, %b, %c) {{scale = 0.125 : f64, causal = {str(causal).lower()}}} : ({q}, {k}, {k}) -> {q}
        "kiln.yield"(%r) : ({q}) -> ()
      }}) {{kind = "attention", name = "a"}} : ({q}, {k}, {k}) -> {q}
      return %0 : {q}
    }}"""


class Scheduled:
    """The first fusion of a module, with layouts and schedule."""

    def __init__(self, text, options=OPTIONS):
        self.text, self.options = text, options

    def __enter__(self):
        self.context = create_context()
        self.context.__enter__()
        self.location = ir.Location.unknown()
        self.location.__enter__()
        self.module = dialect.parse(self.text)
        chip = f"arch={self.options.arch} descriptors={str(self.options.descriptors).lower()}"
        run_pipeline(self.module, f"assign-layouts,schedule-gpu{{{chip}}}")
        return fusions_of(self.module)[0]

    def __exit__(self, *error):
        self.location.__exit__(*error)
        self.context.__exit__(*error)


def error(value, exact):
    return float((value.double() - exact.double()).norm() / exact.double().norm().clamp(min=1e-30))


def check_all(text, exact, tolerance):
    """Every candidate, and the default, against `exact(operands)`; returns how many there were."""
    with Scheduled(text) as fusion:
        default = from_attribute(fusion.operation.attributes["schedule"])
        trial = GpuTrial(fusion, DEVICE, "sm_90")
        found = candidates(trial.known.body, trial.known.layouts, default, OPTIONS)
        assert default not in found
        count = len(trial.known.body.tensors)
        expected = exact(*(t.double() for t in trial.sets[0][:count]))
        for schedule in [default, *found]:
            trial.prepare(trial.start(schedule))
            assert error(trial.sets[0][count].view(expected.shape), expected) < tolerance, schedule
        return len(found)


@pytest.mark.parametrize("m, n, k, least", [(70, 96, 128, 8), (1, 100, 512, 4), (130, 1, 260, 4), (16, 130, 70, 6)])
def test_products(gpu, m, n, k, least):
    assert check_all(product(m, n, k), lambda x, w: x.view(m, k) @ w.view(n, k).T, 1e-2) >= least


@pytest.mark.parametrize("queries, keys, causal", [(100, 128, False), (70, 70, True), (1, 130, False)])
def test_attention(gpu, queries, keys, causal):
    def exact(q, k, v):
        q, k, v = q.view(2, 3, queries, 64), k.view(2, 3, keys, 64), v.view(2, 3, keys, 64)
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.125)

    assert check_all(attention(queries, keys, causal), exact, 1e-2) >= 4


def test_products_of_one_matrix_change_together(gpu):
    """Three parts of one kernel: whatever is tried leaves them alike, and computes what the default does."""
    x, w, result = "tensor<70x64xbf16>", "tensor<48x64xbf16>", "tensor<70x48xbf16>"
    flags = "{transpose_lhs = false, transpose_rhs = true}"
    products = "\n".join(f'%{i} = "kiln.matmul"(%x, %w{i}) {flags} : ({x}, {w}) -> {result}' for i in range(3))
    text = f"""func.func @main(%x: {x}, %w0: {w}, %w1: {w}, %w2: {w}) -> ({result}, {result}, {result}) {{
      {products}
      return %0, %1, %2 : {result}, {result}, {result}
    }}"""
    with create_context(), ir.Location.unknown():
        module = dialect.parse(text)
        run_pipeline(module, "fuse,assign-layouts,schedule-gpu{arch=sm_90 descriptors=true}")
        (fusion,) = fusions_of(module)
        default = from_attribute(fusion.operation.attributes["schedule"])
        trial = GpuTrial(fusion, DEVICE, "sm_90")
        found = candidates(trial.known.body, trial.known.layouts, default, OPTIONS)
        assert len(found) > 4
        for schedule in [default, *found[:5]]:
            first, second, third = schedule.parts
            assert first == second == third
            trial.prepare(trial.start(schedule))


def test_the_winner_is_taken_and_remembered(gpu, tmp_path):
    with Scheduled(product(64, 64, 64)) as fusion:
        store = TunedSchedules(DiskCache(tmp_path, 1 << 20), "versions")
        found = GpuTuner(store, OPTIONS, DEVICE, 0.0, favour(2)).find(fusion)
        assert found.label != "default" and found.seconds == 0.5
        assert found.schedule != from_attribute(fusion.operation.attributes["schedule"])
        assert [t.label for t in found.tried][:1] == ["default"] and len(found.tried) > 4
        later = TunedSchedules(DiskCache(tmp_path, 1 << 20), "versions")
        assert GpuTuner(later, OPTIONS, DEVICE).known(fusion) == found
        assert GpuTuner(later, DotOptions("sm_80"), DEVICE).known(fusion) is None
        other = TunedSchedules(DiskCache(tmp_path, 1 << 20), "other versions")
        assert GpuTuner(other, OPTIONS, DEVICE).known(fusion) is None


def test_a_default_that_is_not_beaten_stays(gpu):
    with Scheduled(product(64, 64, 64)) as fusion:
        found = GpuTuner(TunedSchedules(), OPTIONS, DEVICE, 0.0, favour()).find(fusion)
        assert found.label == "default"
        assert found.schedule == from_attribute(fusion.operation.attributes["schedule"])


def test_a_candidate_that_does_not_compile_has_a_reason(gpu, monkeypatch):
    import kiln.lowering.host.gpu_kernels as gpu_kernels

    compile_ttir = gpu.compile_ttir

    def picky(text, target, options):
        if options["num_warps"] == 8:
            raise CompileError("eight warps are too many")
        return compile_ttir(text, target, options)

    monkeypatch.setattr(gpu_kernels, "compile_ttir", picky)
    with Scheduled(product(64, 64, 64)) as fusion:
        found = GpuTuner(TunedSchedules(), OPTIONS, DEVICE, 0.0, favour(1)).find(fusion)
        reasons = [t.reason for t in found.tried if t.reason]
        assert reasons and all(r == "eight warps are too many" for r in reasons)
        assert found.label != "default"


def test_a_candidate_that_computes_something_else_is_discarded(gpu, monkeypatch):
    with Scheduled(product(64, 64, 64)) as fusion:
        default = from_attribute(fusion.operation.attributes["schedule"])
        monkeypatch.setattr(tuner_module, "candidates", lambda *arguments: [replace(default, num_warps=2)])
        launch = gpu._launch

        def spoil(function, *arguments):
            """The second kernel's result begins with a number of its own."""
            status = launch(function, *arguments)
            if len(set(gpu.launched)) > 1:
                cells = (ctypes.c_void_p * 3).from_address(arguments[8])
                ctypes.c_int16.from_address(ctypes.c_int64.from_address(cells[2]).value).value = 0x7E00
            return status

        gpu._keep["cuLaunchKernel"] = type(gpu._keep["cuLaunchKernel"])(spoil)
        found = GpuTuner(TunedSchedules(), OPTIONS, DEVICE, 0.0, favour()).find(fusion)
        assert found.label == "default"
        assert [t.reason for t in found.tried if t.reason] == ["it computes something else than the default"]


def test_sizes_known_at_run_time_only(gpu):
    text = product("?", 64, 64).replace(
        "%x: tensor<?x64xbf16>", "%x: tensor<?x64xbf16> {kiln.shape = affine_map<()[s0] -> (s0, 64)>}"
    )
    text = text.replace("%w: tensor<64x64xbf16>)", '%w: tensor<64x64xbf16>, %n: index {kiln.symbol = "s0"})', 1)
    text = text.replace("-> tensor<?x64xbf16> {\n", '-> tensor<?x64xbf16> attributes {kiln.symbols = ["s0"]} {\n', 1)
    text = text.replace('"kiln.fusion"(%x, %w)', '"kiln.fusion"(%x, %w, %n)').replace(
        "%b: tensor<64x64xbf16>):", "%b: tensor<64x64xbf16>, %s: index):"
    )
    shapes = "shapes = [affine_map<()[s0] -> (s0, 64)>, affine_map<()[s0] -> (64, 64)>]"
    text = text.replace(
        'name = "f"} : (tensor<?x64xbf16>, tensor<64x64xbf16>)',
        f'name = "f", {shapes}}} : (tensor<?x64xbf16>, tensor<64x64xbf16>, index)',
    )
    with Scheduled(text) as fusion, pytest.raises(UnsupportedError, match="known at run time only"):
        GpuTuner(TunedSchedules(), OPTIONS, DEVICE, 0.0, favour()).find(fusion)


def tuned(function, x):
    """What the mode compiles: the result, and what it noted of each kernel."""
    torch._dynamo.reset()
    with collect() as reports:
        result = torch.compile(function, backend=kiln.backend, mode="max-autotune-no-cudagraphs", fullgraph=True)(x)
    return result, [n.reason for report in reports for n in report.notes if n.pass_name == "autotune-gpu"]


def test_the_mode_tunes_reports_and_remembers(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    x = torch.randn(300, 600)
    monkeypatch.setattr(tuner_module, "replay_times", favour(1))
    result, notes = tuned(lambda x: torch.softmax(x, -1), x)
    assert error(result, torch.softmax(x.double(), -1)) < 1e-5
    assert len(notes) == 1 and "instead of" in notes[0] and "(2.00 times as fast); tried: " in notes[0]
    monkeypatch.setattr(tuner_module, "replay_times", None)  # nothing is timed again
    result, later = tuned(lambda x: (torch.softmax(x, -1), torch.sort(x).values), x)
    assert error(result[0], torch.softmax(x.double(), -1)) < 1e-5
    assert [note.split(": ", 1)[1] for note in later] == [f"{notes[0].split(': ', 1)[1]}, found before"]


def test_no_time_no_tuning(gpu, monkeypatch):
    def never(runs, seconds):
        raise AssertionError("nothing is to be timed")

    with Scheduled(product(64, 64, 64)) as fusion:
        module = fusion.operation.parent.parent.opview
        before = str(fusion.operation.attributes["schedule"])
        monkeypatch.setattr(tuner_module, "replay_times", never)
        step = AutotuneGpu(graph_seconds=-1, device=DEVICE)
        step.store = TunedSchedules()
        step.run(module)
        assert [note.reason for note in step.notes] == ["f: not tuned: the -1 s for this graph are over"]
        assert str(fusion.operation.attributes["schedule"]) == before


def both_ways(monkeypatch, fast):
    """A product with a bias and GELU under a measure that finds the last run (`fast` "library") or the first one
    (`fast` "own") twice as fast; returns the error, the ATen calls with reasons, and what choose-vendor noted."""

    def measure(runs, seconds):
        for run in runs:
            run()
        best = {"library": len(runs) - 1, "own": 0}[fast]
        return [Timing(1.0, 1.0) if i != best else Timing(0.5, 0.5) for i in range(len(runs))]

    monkeypatch.setattr(tuner_module, "replay_times", measure)
    monkeypatch.setattr(tuner_module, "MAX_CANDIDATES", 1)
    torch._dynamo.reset()
    x, w, b = torch.randn(4, 100, 512).bfloat16(), torch.randn(640, 512).bfloat16(), torch.randn(640).bfloat16()

    def model(x, w, b):
        return F.gelu(F.linear(x, w, b) / 16)

    with collect() as reports:
        run = torch.compile(model, backend=kiln.backend, mode="max-autotune-no-cudagraphs", fullgraph=True)
        found = run(x, w, b)
    calls = {call.op: call.reason for call in reports[0].aten_calls}
    notes = [n.reason for n in reports[0].notes if n.pass_name == "choose-vendor"]
    tuned = [n.reason for n in reports[0].notes if n.pass_name == "autotune-gpu"]
    return error(found, model(x.double(), w.double(), b.double())), calls, notes, tuned


def test_a_product_goes_to_the_library_where_that_is_faster(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    found, calls, notes, _ = both_ways(monkeypatch, "library")
    assert found < 1e-2
    assert calls == {"aten.linear.default": notes[0]} or not calls
    assert len(notes) == 1 and notes[0].startswith("cuBLAS: 500000.0 us with cuBLAS")


def test_the_fastest_of_the_librarys_algorithms_is_the_graphs(gpu, monkeypatch, tmp_path):
    """Four are ranked; the last one runs fastest, is what the graph calls, and is found before by the next graph."""
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    gpu.library.algorithms = 4
    for _ in range(2):
        found, _, notes, _ = both_ways(monkeypatch, "library")
        assert found < 1e-2
        assert notes == ["cuBLAS: 500000.0 us with cuBLAS (its algorithm 3), 1000000.0 us in a kernel of its own"]
        assert gpu.library.chosen[-1] == 103


def test_long_sums_are_split_where_that_is_faster(gpu, monkeypatch, tmp_path):
    """The run in parts is the last one, and the fastest: the graph has the parts' kernel and the one that adds up."""
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))

    def measure(runs, seconds):
        for run in runs:
            run()
        return [Timing(1.0, 1.0)] * (len(runs) - 1) + [Timing(0.5, 0.5)]

    monkeypatch.setattr(tuner_module, "replay_times", measure)
    monkeypatch.setattr(tuner_module, "MAX_CANDIDATES", 1)
    x, w, b = torch.randn(64, 16384).bfloat16(), torch.randn(64, 16384).bfloat16() / 128, torch.randn(64).bfloat16()

    def model(x, w, b):
        return F.relu(F.linear(x, w, b))

    torch._dynamo.reset()
    with collect() as reports:
        run = torch.compile(model, backend=kiln.backend, mode="max-autotune-no-cudagraphs", fullgraph=True)
        found = run(x, w, b)
    assert error(found, model(x.double(), w.double(), b.double())) < 1e-2
    assert not reports[0].aten_calls and len(reports[0].kernels) == 2
    notes = [n.reason for n in reports[0].notes if n.pass_name == "choose-vendor"]
    assert len(notes) == 1 and notes[0].endswith("500000.0 us in 32 parts of its sums")


def test_a_product_stays_where_its_own_kernel_is_faster(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    found, calls, notes, tuned = both_ways(monkeypatch, "own")
    assert found < 1e-2 and not calls
    assert len(tuned) == 1 and tuned[0].endswith(", found before")  # the kernel that won is the graph's
    assert notes == ["a kernel of its own: 1000000.0 us with cuBLAS, 500000.0 us in a kernel of its own"]


def test_gelu_is_part_of_the_librarys_way(gpu, monkeypatch, tmp_path):
    """Behind a bias nothing but it: the library's run is one call."""
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    tried = []

    def measure(runs, seconds):
        for run in runs:
            run()
        tried.append(len(gpu.library.calls))
        return [Timing(1.0, 1.0)] * (len(runs) - 1) + [Timing(0.5, 0.5)]

    monkeypatch.setattr(tuner_module, "replay_times", measure)
    monkeypatch.setattr(tuner_module, "MAX_CANDIDATES", 1)
    x, w, b = torch.randn(400, 512).bfloat16(), torch.randn(640, 512).bfloat16() / 16, torch.randn(640).bfloat16()

    def model(x, w, b):
        return F.gelu(F.linear(x, w, b), approximate="tanh")

    found = torch.compile(model, backend=kiln.backend, mode="max-autotune-no-cudagraphs", fullgraph=True)(x, w, b)
    assert error(found, model(x.double(), w.double(), b.double())) < 1e-2
    assert tried[-1] > 0 and len(gpu.library.calls) == tried[-1] + 1
    assert set(gpu.library.calls) == {(400, 640, 512, True)}


def test_labels_tell_what_a_schedule_is():
    tile = TileSchedule(block_m=64, block_n=32, block_k=64, group_m=8, num_stages=3, num_warps=4)
    mapped = TmaSchedule(**asdict(tile), persistent=False, programs=132)
    assert difference(tile, mapped) == "gpu.gemm.tile block_k=64 block_m=64 block_n=32 num_stages=3 num_warps=4"
    assert difference(replace(mapped, persistent=True), mapped) == "gpu.gemm.tma persistent=true"
    rows = FlashSchedule(block_m=64, block_n=64, num_warps=4, num_stages=2, tma=True)
    assert difference(replace(rows, tma=False), rows) == "gpu.attention.flash tma=false"
