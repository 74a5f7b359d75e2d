# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln.trace``, the option ``trace_html`` and ``kiln-trace``: what is recorded, and where each line comes from."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kiln
from kiln.dialects import create_context, parse, to_text
from kiln.errors import KilnError
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport
from kiln.frontend.report.trace.diffing import changed_lines
from kiln.frontend.report.trace.graph_data import graph_data
from kiln.frontend.report.trace.locations import located_lines, places
from kiln.frontend.report.trace.machine_code import hot_loop, ptx, triton_stage
from kiln.frontend.report.trace.session import recorders

TARGETS = ("cpu", "tt-cpu")


WRONG = '''
from torch_mlir import ir

from kiln.dialects.walk import ops_inside
from kiln.passes.core import Pass, register_pass


@register_pass
class DoubleConstants(Pass):
    """Double the constants of bodies."""

    name = "double-constants"

    def run(self, module: ir.Module) -> None:
        for op in ops_inside(module.operation):
            if op.name == "arith.constant":
                value = ir.FloatAttr(op.attributes["value"])
                op.attributes["value"] = ir.FloatAttr.get(value.type, 2 * value.value)
'''


WRONG_KERNELS = '''
from kiln.dialects.kiln import KernelOp
from kiln.dialects.walk import ops_inside
from kiln.passes import register_pass
from kiln.passes.kernel_pass import KernelPass


@register_pass
class SkipErf(KernelPass):
    """Take the argument of erf for its value."""

    name = "skip-erf"

    def run_on(self, kernel: KernelOp) -> None:
        for op in [op for op in ops_inside(kernel.code.operation) if op.name == "math.erf"]:
            op.result.replace_all_uses_with(op.operands[0])
'''


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.norm(x))
        y = nn.functional.gelu(y)
        return y + x


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def traced(target: str = "cpu", model: nn.Module | None = None, **options: Any):
    model = Block().eval() if model is None else model
    return kiln.trace(model, torch.randn(8, 64), options={"target": target, "fallback": False, **options}, calls=2)


def nodes_of(data: dict[str, Any], numbers: list[int]) -> set[str]:
    return {data["nodes"][n]["name"] for s in numbers if s >= 0 for n in data["sets"][s]}


@pytest.mark.parametrize("target", TARGETS)
def test_every_op_leads_to_instructions_and_back(target: str):
    data = graph_data(traced(target).graphs[0].record)
    levels = [level for kernel in data["kernels"] for level in kernel["levels"]]
    for title in ("linalg", "loops", "LLVM IR", "assembly"):
        mine = [level for level in levels if level["title"] == title]
        found = set[str]().union(*(nodes_of(data, level["sets"]) for level in mine))
        assert {"native_layer_norm", "addmm", "gelu", "add"} <= found, title
    assert not any(level.get("note") for level in levels)
    # Instructions of one kernel come from different ops, each by itself: not all from the kernel as a whole.
    alone = {
        tuple(data["sets"][s]) for level in levels if level["title"] == "assembly" for s in level["sets"] if s >= 0
    }
    names = {data["nodes"][nodes[0]]["name"] for nodes in alone if len(nodes) == 1}
    assert {"native_layer_norm", "addmm", "gelu"} <= names
    lines = {line for node in data["nodes"] if node["name"] == "gelu" for _, line in node["frames"]}
    source = Path(__file__).read_text().splitlines()
    assert any("functional.gelu(y)" in source[line - 1] for line in lines)


def test_assembly_refers_to_lines_of_llvm_ir():
    data = graph_data(traced().graphs[0].record)
    for kernel in data["kernels"]:
        assembly = next(level for level in kernel["levels"] if level["title"] == "assembly")
        llvm = kernel["levels"][assembly["of"]]
        texts, ir = assembly["text"].split("\n"), llvm["text"].split("\n")
        products = [ir[r] for text, r in zip(texts, assembly["refs"], strict=True) if "fmadd" in text and r >= 0]
        assert all("intr.fma" in line or "fmul" in line or "fadd" in line for line in products)
        stores = [ir[r] for text, r in zip(texts, assembly["refs"], strict=True) if "maskmov" in text and r >= 0]
        assert all("masked" in line for line in stores)
        assert any(r >= 0 for r in assembly["refs"])


def test_equal_kernels_lead_to_all_layers():
    record = traced(model=Layers().eval()).graphs[0].record
    data = graph_data(record)
    launched = [[x["name"] for x in data["launches"] if x["kernel"] == i] for i in range(len(data["kernels"]))]
    shared = max(range(len(launched)), key=lambda i: len(launched[i]))
    assert len(launched[shared]) >= 3
    for level in data["kernels"][shared]["levels"]:
        names = nodes_of(data, level["sets"])
        assert sum(name.startswith("gelu") for name in names) == len(launched[shared]), level["title"]


@pytest.mark.parametrize("target", TARGETS)
def test_tracing_changes_no_code(target: str, tmp_path: Path):
    model, x = Block().eval(), torch.randn(8, 64)
    options = {"target": target, "fallback": False}
    torch.compile(model, backend="kiln", options={**options, "debug_dir": str(tmp_path)})(x)
    dumped = {file.stem: file.read_text() for file in tmp_path.glob("*/*.s")}
    torch._dynamo.reset()
    record = traced(target, model).graphs[0].record
    assert dumped and dumped == {name: code["s"] for name, code in record.code.items()}


def test_stages_and_diffs():
    graph = traced().graphs[0]
    names = [stage.name for stage in graph.stages]
    assert names[0] == "input" and {"graph", "kiln", "fused", "sched", "kernels"} <= set(names)
    assert "kiln.fusion" in graph.stage("fused").text and "loc(" not in str(graph.stage("fused"))
    diff = graph.stage("fuse").diff(graph.stage("graph"))
    assert any(line.startswith("+") and "kiln.fusion" in line for line in diff.splitlines())
    with pytest.raises(KilnError, match="did you mean 'fuse' or 'fused'"):
        graph.stage("fusde")
    # A pass that changes nothing is a place as well.
    assert "narrow-attention" not in names and graph.stage("narrow-attention").text in graph.stage("kiln").text
    name = graph.record.kernels()[0]
    assert "vector" in graph.kernel(name[:12], "vector") and "Disassembly" in graph.kernel(name, "s")
    with pytest.raises(KilnError, match="has no stage 'ptx'"):
        graph.kernel(name, "ptx")


def test_printed_it_names_stages():
    found = kiln.trace(lambda x: torch.relu(x) + 1, torch.randn(4), calls=1)
    title, graph = str(found).split("\n")
    assert title.startswith("Kiln trace")
    assert graph == f"graph 0: {', '.join(stage.name for stage in found.graphs[0].stages)}" and "fused" in graph
    assert repr(found) == str(found)


def test_a_rerun_makes_the_same_code():
    graph = traced().graphs[0]
    again = graph.rerun()
    assert again.record.code == graph.record.code and again.record.launched == graph.record.launched
    assert len(graph.rerun("kiln", until="fused").stages) < len(again.stages)


def test_a_rerun_with_another_pass():
    graph = traced().graphs[0]
    apart = graph.rerun("canonicalize", "fuse{strategy=none}", until="sched")
    count = [g.stage("fused").text.count('"kiln.fusion"') for g in (graph, apart)]
    assert count[1] > count[0]
    with pytest.raises(KilnError, match="begin at an earlier stage"):
        graph.rerun("vector")
    with pytest.raises(KilnError, match="no step behind this one completes stage 'kiln'"):
        graph.rerun("fused", until="kiln")


def test_a_rerun_checks_numbers(tmp_path: Path):
    from kiln.errors import CompileError
    from kiln.passes.registry import load_passes_from

    (tmp_path / "wrong.py").write_text(WRONG)
    load_passes_from(tmp_path / "wrong.py")
    graph = traced().graphs[0]
    graph.rerun("kiln", until="fused", check=True)
    assert graph.rerun("kiln", "double-constants", until="").stages
    with pytest.raises(CompileError, match="double-constants"):
        graph.rerun("kiln", "double-constants", until="", check=True)


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_of_a_rerun_are_timed(target: str):
    graph = traced(target).graphs[0]
    apart = graph.rerun("canonicalize", "fuse{strategy=none}", until="sched")
    for found in (graph, apart):
        profile = found.time(calls=2)
        launched = found.stage("sched").text.count('"kiln.fusion"')
        assert len(profile.launches) == launched and profile.call > 0 and profile.target == target
        assert all(len(launch.seconds) == 2 for launch in profile.launches)
    assert len(apart.time(calls=1).launches) > len(graph.time(calls=1).launches)
    with pytest.raises(KilnError, match="no stage or pass 'sched'"):
        graph.rerun(until="fused").time()


@pytest.mark.parametrize("target", TARGETS)
def test_a_graph_is_checked(target: str, tmp_path: Path):
    from kiln.errors import CompileError, NumericsError
    from kiln.passes.registry import load_passes_from

    for name, text in (("wrong", WRONG), ("wrong_kernels", WRONG_KERNELS)):
        (tmp_path / f"{name}.py").write_text(text)
        load_passes_from(tmp_path / f"{name}.py")
    graph = traced(target).graphs[0]
    graph.check()
    # A rerun begins at a module of its own, and its passes are those that are checked.
    with pytest.raises(CompileError, match="double-constants"):
        graph.rerun("kiln", "double-constants", until="sched").check()
    graph = traced(target, passes=[kiln.Insert("skip-erf", after="emit-kernels")]).graphs[0]
    with pytest.raises(NumericsError, match="the kernels compute other numbers"):
        graph.check()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layers_of_16_bits_are_right(target: str, dtype: torch.dtype):
    """Roundings that are left out on purpose are no wrong numbers, wide as the layers are."""

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(512, 512)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (nn.functional.gelu(self.linear(x)) + x) * 3.0

    torch.manual_seed(0)
    options = {"target": target, "fallback": False}
    kiln.trace(Wide().to(dtype).eval(), torch.randn(32, 512, dtype=dtype), options=options, calls=0).graphs[0].check()


def test_indices_of_random_inputs_are_within_bounds():
    """Of embeddings with few rows, and of poolings, whose gradients ATen writes wherever they say: the heap was lost."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(2, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.words(x).sin() * 2

    for target in TARGETS:
        graph = kiln.trace(Words().eval(), torch.tensor([[0, 1, 1]]), options={"target": target}, calls=0).graphs[0]
        graph.check()
        assert graph.time(calls=1).launches
        torch._dynamo.reset()
    with torch.enable_grad():
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2))
        graphs = kiln.trace(
            model, torch.randn(2, 3, 10, 10), options={"fallback": False}, calls=0, backward=True
        ).graphs
    graphs[1].check()
    assert graphs[1].time(calls=1).launches


def test_gradients_of_poolings_are_asked_for_their_indices():
    from kiln.dialects.interpret.torch_ops import check_places

    image, name = torch.randn(1, 2, 4, 4), "aten.max_pool2d_with_indices_backward"
    check_places(name, [image, image, torch.tensor([0, 15])])
    check_places("aten.max_pool2d_with_indices", [image, image, torch.tensor([99])])
    for wrong in (-1, 16):
        with pytest.raises(IndexError, match="not between 0 and 15"):
            check_places(name, [image, image, torch.tensor([wrong])])


def test_kernels_have_the_notes_of_their_schedules():
    data = graph_data(traced().graphs[0].record)
    product = next(kernel for kernel in data["kernels"] if kernel["kind"] == "matmul")
    assert product["schedule"] and any(note.startswith("schedule-cpu: ") for note in product["notes"])


def test_calls_lead_to_their_ops():
    data = graph_data(kiln.trace(lambda x: torch.linalg.det(x.sin()) + 1, torch.randn(4, 4)).graphs[0].record)
    calls = [launch for launch in data["launches"] if launch["kind"] == "aten"]
    assert calls and all(call["reason"] and nodes_of(data, [call["set"]]) for call in calls)


def test_rewrites_notes_and_times_are_recorded():
    record = kiln.trace(lambda x: torch.relu(x.t().t() * 1.0).sum(), torch.randn(5, 7), calls=3).graphs[0].record
    algebra = [r for step in record.steps if step.name.startswith("simplify-algebra") for r in step.rewrites]
    assert algebra and all(r.rewrite.rule and "simplify_algebra.py:" in r.source for r in algebra)
    assert all(places(r.rewrite.provenance) for r in algebra)
    data = graph_data(record)
    assert [launch["measured"] > 0 and launch["estimate"] > 0 for launch in data["launches"]] == [True] * len(
        data["launches"]
    )
    assert len(data["launches"]) == len(record.plan.steps)


def test_lines_are_those_without_debug_info():
    with create_context() as context:
        stages = traced().graphs[0].stages
        modules = stages[: next(i for i, stage in enumerate(stages) if stage.name == "kernels")]
        for stage in modules:
            assert to_text(parse(stage.source, context)) == stage.text + "\n"
        assert len(modules) > 8


def test_places_in_locations():
    text = "\n".join(
        [
            "#loc = loc(unknown)",
            '#loc1 = loc("a (b).py":3:0)',
            '  %0 = "x"(%a) : () -> () loc(#loc2)',
            '  ^bb0(%in: f32 loc("gelu"(#loc1)), %b: f32 loc(unknown)):',
            '  "y"() {text = "a loc(b"} : () -> () loc(fused[#loc2, #loc3])',
            '#loc2 = loc("mul"(#loc1))',
            '#loc3 = loc("t"(unknown))',
        ]
    )
    first, second, third = located_lines(text)
    assert first.text == '  %0 = "x"(%a) : () -> ()' and places(first.location) == [("mul", "a (b).py", 3)]
    assert second.text == "  ^bb0(%in: f32, %b: f32):" and not second.location
    assert places(third.location) == [("mul", "a (b).py", 3), ("t", "", 0)]
    assert third.text == '  "y"() {text = "a loc(b"} : () -> ()'


def test_the_first_line_of_an_op_with_regions_has_its_location():
    text = "\n".join(
        [
            '#loc1 = loc("sum"("m.py":3:0))',
            '  %0 = "if"(%a) ({',
            '    "x"() : () -> () loc(unknown)',
            "  }, {",
            '    "y"() : () -> () loc(unknown)',
            "  }) : () -> f32 loc(#loc1)",
        ]
    )
    found = [bool(places(line.location)) for line in located_lines(text)]
    assert found == [True, False, False, False, True]


def test_a_new_number_is_no_change():
    old = ["%0 = a(%x)", "%1 = b(%0)", "%2 = c(%1, %0)"]
    assert changed_lines(old, ["%7 = a(%x)", "%8 = b(%7)", "%9 = c(%8, %7)"]) == []
    removed = [line for line in changed_lines(old, ["%0 = a(%x)", "%1 = c(%0, %0)"]) if line.kind != " "]
    assert [line.kind for line in removed] == ["-", "-", "+"]  # c reads another value now
    other = changed_lines(["#map = f", "%0 = a(#map)"], ["#map1 = f", "%0 = a(#map1)"])
    assert other == [] and changed_lines(["#map = f", "%0 = a(#map)"], ["#map = g", "%0 = a(#map)"])


def test_the_hot_loop_is_the_inner_one():
    code = [
        "f>:",
        "   0: \tnop",
        "   1: \tvaddps %a",
        "   2: \tvmulps %a",
        "   3: \tjne\t0x1 <f>",
        "   4: \tjmp\t0x0 <f>",
    ]
    assert hot_loop(code) == (2, 4)
    assert hot_loop(code[:4]) is None
    assert hot_loop(["$L__BB0_1:", "\tfma.rn.f32 %f1;", "\t@%p1 bra $L__BB0_1;"]) == (0, 2)


def test_ptx_refers_to_triton_ir():
    from kiln.lowering.gpu.compile import compile_ttir, triton_problem

    if triton_problem():
        pytest.skip(str(triton_problem()))
    record = traced("tt-cpu").graphs[0].record
    source = next(text for name, text in record.ttir.items() if "gelu" in name)
    lines = [line.text for line in located_lines(source)]
    made = compile_ttir("\n".join(lines) + "\n", "sm_90")
    found = ptx(made.ptx)
    stores = [lines[i.line - 1] for i in found if "st.global" in i.text and i.line]
    assert stores and all("tt.store" in line for line in stores)
    blocks = [lines[i.line - 1] for i in triton_stage(made.ttgir) if "tt.store" in i.text and i.line]
    assert blocks and all("tt.store" in line for line in blocks)
    sums = [lines[i.line - 1] for i in triton_stage(made.llir) if " fadd " in i.text and i.line]
    assert sums and all("arith." in line or "tt.dot" in line for line in sums)


def for_sm_90(record: Any) -> Any:
    """The record with what Triton and ptxas make of its kernels for a GPU that need not be here."""
    from concurrent.futures import Future

    from kiln.lowering.gpu.compile import compile_ttir, triton_problem
    from kiln.lowering.gpu.sass import disassembler
    from kiln.lowering.host.gpu_kernels import GpuCode, LaunchForm

    if triton_problem() or disassembler() is None:
        pytest.skip("needs Triton, and nvdisasm of its package")
    for name, text in record.ttir.items():
        lines = [line.text for line in located_lines(text)]
        made: Future[Any] = Future()
        made.set_result(compile_ttir("\n".join(lines) + "\n", "sm_90"))
        record.code[name] = GpuCode(name, "sm_90", 0, 0, LaunchForm(()), made).texts()
    return record


def test_sass_leads_to_ptx_to_triton_ir_and_to_the_model():
    data = graph_data(for_sm_90(traced("tt-cpu").graphs[0].record))
    reached: set[str] = set()
    for kernel in data["kernels"]:
        levels = kernel["levels"]
        last = levels[-1]
        above = levels[last["of"]]
        assert (last["title"], above["title"], levels[above["of"]]["title"]) == ("SASS", "PTX", "Triton IR")
        texts = {title: level["text"].split("\n") for level in levels for title in [level["title"]]}
        for text, line in zip(texts["SASS"], last["refs"], strict=True):
            if "STG" in text:
                assert "st.global" in texts["PTX"][line]
                assert "tt.store" in texts["Triton IR"][above["refs"][line]]
            if "LDG." in text:  # inline assembly of several lines
                assert "ld.global" in texts["PTX"][line] and "tt.load" in texts["Triton IR"][above["refs"][line]]
        nowhere = [t for t, s in zip(texts["SASS"], last["sets"], strict=True) if s < 0 and t.startswith("/*")]
        assert len(nowhere) < 0.1 * len(texts["SASS"]), nowhere
        reached |= nodes_of(data, last["sets"])
    assert {"native_layer_norm", "addmm", "gelu", "add"} <= reached


def test_times_stand_beside_the_roof_of_the_machine():
    from kiln.lowering.gpu.dot.machine import machine

    record = traced("tt-cpu").graphs[0].record
    assert graph_data(record)["roof"] == ""  # a GPU's kernels on a CPU have none
    record.target, record.pipeline = "cuda", [*record.pipeline, ("assemble{arch=sm_90}", "", "")]
    data = graph_data(record)
    assert data["roof"] == machine("sm_90").name
    for launch, times in zip(data["launches"], record.times, strict=True):
        assert launch["roof"] >= 0.99e-9 * times.moved / machine("sm_90").memory_rate > 0
    assert all(launch["roof"] > 0 for launch in graph_data(traced().graphs[0].record)["launches"])


def test_the_hot_loop_of_sass():
    code = [".L_x_0:", "/*0010*/  FFMA R1, R2, R3, R1 ;", "/*0020*/  @P0 BRA `(.L_x_0) ;", "/*0030*/  EXIT ;"]
    assert hot_loop(code) == (0, 2)


def test_the_option_writes_a_page(tmp_path: Path):
    file = tmp_path / "deep" / "out.html"
    options = {"trace_html": str(file), "fallback": False}
    torch.compile(Block().eval(), backend="kiln", options=options)(torch.randn(8, 64))
    text = file.read_text()
    assert (
        text.startswith("<!doctype html>") and "DecompressionStream" in text and "http" not in text.split("<script")[0]
    )
    torch._dynamo.reset()
    torch.compile(lambda x: x.sin(), backend="kiln", options=options)(torch.randn(8))
    assert len(file.read_text()) > len(text)  # both graphs


def test_training_has_both_graphs():
    with torch.enable_grad():
        found = kiln.trace(Block(), torch.randn(8, 64), options={"fallback": False}, calls=1, backward=True)
    assert [graph.record.report.graph for graph in found.graphs] == ["forward", "backward"]
    for graph in found.graphs:
        assert all(launch["measured"] is not None for launch in graph_data(graph.record)["launches"])


def test_a_file_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="cannot write the trace"):
        options = {"trace_html": str(tmp_path / "file" / "out.html"), "fallback": False}
        torch.compile(lambda x: x.sin(), backend="kiln", options=options)(torch.randn(8))


def test_nothing_is_recorded_unless_wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    report = CompileReport("inference")
    monkeypatch.delenv("KILN_TRACE", raising=False)
    assert recorders(Options(), report, "cpu") == [] and Options().shares_kernels
    monkeypatch.setenv("KILN_TRACE", str(tmp_path / "x.html"))
    found = Options.build()
    assert len(recorders(found, report, "cpu")) == 1 and not found.shares_kernels and not found.cache


def test_a_notebook_shows_the_page():
    shown = traced()._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "&lt;!doctype html&gt;" in shown


def test_marimo_shows_the_page():
    """Its protocol: a method of the class, which returns a MIME type and the data."""
    found = traced()
    method = getattr(type(found), "_mime_", None)
    assert method is not None
    mime, shown = method(found)
    assert mime == "text/html" and shown == found._repr_html_()


def test_the_command(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(4, 4), (torch.randn(2, 4),)\n"
    )
    command = [sys.executable, "-m", "kiln.tools.kiln_trace"]
    done = subprocess.run([*command, "mine:make", "-o", "t.html"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "1 graphs" in done.stdout and (tmp_path / "t.html").exists(), done.stderr
    done = subprocess.run([*command, "mine:other"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "has no function" in done.stderr
    done = subprocess.run([*command, "mine:make", "--for", "gpu"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "unknown target 'gpu'; targets are cpu, cuda, tt-cpu" in done.stderr
    # The tensors are on the CPU, so that the only graph runs with ATen: a page would be empty.
    done = subprocess.run([*command, "mine:make", "--for", "cuda"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "no graph was compiled" in done.stderr and not (tmp_path / "trace.html").exists()


@pytest.mark.parametrize(
    ("target", "tile"), [("cpu", r"mr = (\d+) "), ("tt-cpu", r"block_m = (\d+) .*block_n = (\d+)")]
)
def test_candidates_of_cost_models(target: str, tile: str) -> None:
    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w) * 2

    model, inputs = product, (torch.randn(4, 64, 64), torch.randn(4, 64, 16))
    if target == "cpu":
        model, inputs = nn.Conv2d(16, 32, 3), (torch.randn(1, 16, 30, 30),)
    torch._dynamo.reset()
    with torch.no_grad():
        record = kiln.trace(model, *inputs, options={"target": target}, calls=0).graphs[0].record
    (kernel,) = graph_data(record)["kernels"]
    what, unit, candidates = next(choice for choice in kernel["choices"] if choice[0].endswith("tile"))
    costs = [cost for _, cost in candidates]
    assert len(candidates) > 3 and costs == sorted(costs) and unit
    found = re.search(tile, kernel["schedule"])
    assert found is not None, kernel["schedule"]
    assert candidates[0][0] == (found[1] if len(found.groups()) == 1 else f"({', '.join(found.groups())})")
