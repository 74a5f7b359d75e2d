# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tuning: which schedule wins, what is remembered, and what is tried when (`test_trial.py` has the candidates)."""

import time

import pytest
import torch
from tune_support import Scheduled, error, product

import kiln
from kiln.dialects import create_context
from kiln.dialects.schedules import from_attribute
from kiln.dialects.schedules.cpu import BlockedSchedule, DotSchedule
from kiln.errors import KilnError, UnsupportedError
from kiln.lowering.cpu.tune.trial import Trial
from kiln.lowering.cpu.tune.tuner import CpuTuner
from kiln.lowering.tune.difference import difference
from kiln.lowering.tune.measure import Timing, interleaved, processor_time
from kiln.lowering.tune.store import Found, TriedSchedule, TunedSchedules
from kiln.passes.autotune_cpu import AutotuneCpu
from kiln.runtime.disk_cache import DiskCache


def favour(*labels):
    """A `measure` that finds the runs at these places fast, in each call; it calls none of them twice."""

    def measure(runs, seconds):
        for run in runs:
            run()
        return [Timing(0.5, 0.5) if i in labels else Timing(1.0, 1.0) for i in range(len(runs))]

    return measure


def test_the_winner_is_taken_and_remembered():
    store = TunedSchedules()
    with Scheduled(product(33, 130, 64)) as fusion:
        default = from_attribute(fusion.operation.attributes["schedule"])
        found = CpuTuner(store, measure=favour(1)).find(fusion)
        assert found.schedule != default
        assert (found.label, found.default, found.seconds) == (difference(found.schedule, default), 1.0, 0.5)
        assert CpuTuner(store).known(fusion) == found
    with Scheduled(product(33, 130, 65)) as fusion:
        assert CpuTuner(store).known(fusion) is None


def test_the_default_stays_within_the_margin():
    def close(runs, seconds):
        return [Timing(1.0, 1.0) if i == 0 else Timing(0.98, 0.98) for i in range(len(runs))]

    with Scheduled(product(33, 130, 64)) as fusion:
        found = CpuTuner(TunedSchedules(), measure=close).find(fusion)
        assert found.label == "default"
        assert found.schedule == from_attribute(fusion.operation.attributes["schedule"])


def test_on_a_busy_machine_nothing_is_decided():
    store = TunedSchedules()
    with Scheduled(product(33, 130, 64)) as fusion:
        tuner = CpuTuner(store, measure=lambda runs, seconds: [Timing(9.0, 1.0)] * len(runs))
        with pytest.raises(UnsupportedError, match="busy"):
            tuner.find(fusion)
        assert tuner.known(fusion) is None


def test_a_candidate_that_does_not_compile_is_skipped(monkeypatch):
    from kiln.lowering.cpu.tune import tuner

    broken = BlockedSchedule(mr=1, nv=1, width=8, mc=8, nc=8, kc=8, pack_lhs=False, pack_rhs=False)
    whole = tuner.candidates
    monkeypatch.setattr(tuner, "candidates", lambda *args: [broken, *whole(*args)])
    with Scheduled(product(33, 130, 64)) as fusion:
        before = str(fusion)
        found = CpuTuner(TunedSchedules(), measure=favour(1)).find(fusion)
        assert str(fusion) == before
    failed = [t for t in found.tried if t.reason]
    assert len(failed) == 1
    assert "needs pack_rhs" in failed[0].reason


def test_what_computes_something_else_is_no_candidate():
    with Scheduled(product(8, 16, 32)) as fusion:
        trial = Trial(fusion, 1)
        default = from_attribute(fusion.operation.attributes["schedule"])
        trial.prepare(default)
        trial.buffers[0].neg_()
        with pytest.raises(KilnError, match="something else"):
            trial.prepare(default)


DYNAMIC = """#x = affine_map<()[s0] -> (s0, 8)>
func.func @main(%x: tensor<?x8xf32> {kiln.shape = #x}, %w: tensor<8x8xf32>, %n: index {kiln.symbol = "s0"})
    -> tensor<?x8xf32> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.fusion"(%x, %w, %n) ({
  ^bb0(%a: tensor<?x8xf32>, %b: tensor<8x8xf32>, %s: index):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true}
      : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
    "kiln.yield"(%r) : (tensor<?x8xf32>) -> ()
  }) {kind = "matmul", name = "linear", shapes = [#x, affine_map<()[s0] -> (8, 8)>]}
    : (tensor<?x8xf32>, tensor<8x8xf32>, index) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}"""


def test_rows_known_at_run_time_are_not_tuned():
    with Scheduled(DYNAMIC) as fusion:
        before = str(fusion)
        tuning = AutotuneCpu()
        tuning.run(_module(fusion))
        assert str(fusion) == before
    assert [n.reason for n in tuning.notes] == ["linear: not tuned: sizes that are known at run time only"]


def test_after_its_time_the_pass_leaves_kernels_alone():
    with Scheduled(product(9, 16, 32)) as fusion:
        before = str(fusion)
        tuning = AutotuneCpu(graph_seconds=0.0)
        tuning.store = TunedSchedules()
        tuning.run(_module(fusion))
        assert str(fusion) == before
    assert tuning.notes[0].reason == "f: not tuned: the 0 s for this graph are over"


def _module(fusion):
    op = fusion.operation
    while op.name != "builtin.module":
        op = op.parent
    return op.opview


FOUND = Found(
    DotSchedule(mr=2, nr=4, width=8, mc=8, nc=8, kc=8),
    "dot mr=2",
    2.0,
    1.0,
    [TriedSchedule("dot mr=2", 1.0), TriedSchedule("x", 0.0, "no")],
)


def test_other_processes_find_it(tmp_path):
    first = TunedSchedules(DiskCache(tmp_path, 1 << 20), "versions")
    key = first.key("kernel", 2)
    first.put(key, FOUND)
    assert TunedSchedules(DiskCache(tmp_path, 1 << 20), "versions").get(key) == FOUND
    assert TunedSchedules(DiskCache(tmp_path, 1 << 20), "others").key("kernel", 2) != key


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"schedule": 3, "tried": [], "label": "", "default": 1, "seconds": 1}']
)
def test_an_entry_that_is_no_schedule_is_discarded(tmp_path, data):
    cache = DiskCache(tmp_path, 1 << 20)
    store = TunedSchedules(cache)
    key = store.key("kernel")
    cache.put(key, data)
    assert store.get(key) is None
    assert not cache.entries()


def test_a_damaged_entry_is_discarded(tmp_path):
    store = TunedSchedules(DiskCache(tmp_path, 1 << 20))
    key = store.key("kernel")
    store.put(key, FOUND)
    (path,) = tmp_path.glob("??/*")
    path.write_bytes(path.read_bytes()[:-4])
    assert TunedSchedules(DiskCache(tmp_path, 1 << 20)).get(key) is None
    assert not path.exists()


def test_timing_is_interleaved_and_drops_the_hopeless():
    import time

    calls = []

    def slow():
        calls.append("slow")
        time.sleep(0.02)

    def fast():
        calls.append("fast")
        time.sleep(0.002)

    timings = interleaved([slow, fast, fast], 0.2)
    assert timings[1].beats(timings[0], 1.03) and not timings[0].beats(timings[1], 1.0)
    assert calls.count("slow") == 2  # warm-up and the first look
    assert calls.count("fast") >= 10


class Model(torch.nn.Module):
    """A product with a norm behind it, a gated unit, a convolution and attention."""

    def __init__(self):
        super().__init__()
        self.up, self.gate, self.down = (torch.nn.Linear(*s) for s in ((48, 80), (48, 80), (80, 48)))
        self.norm, self.conv = torch.nn.LayerNorm(48), torch.nn.Conv2d(3, 8, 3)

    def forward(self, x, image):
        y = self.norm(x + self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x)))
        heads = y.view(1, -1, 3, 16).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads), self.conv(image).relu()


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()


@pytest.mark.parametrize("freezing", [False, True])
def test_max_autotune_from_end_to_end(freezing, one_thread, tmp_path, monkeypatch):
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    model, x, image = Model().eval(), torch.randn(20, 48), torch.randn(1, 3, 12, 12)
    options = {"tune_seconds": 0.05, "freezing": freezing}
    with torch.no_grad():
        report = kiln.explain(model, x, image, mode="max-autotune", options=options)
        expected = model.double()(x.double(), image.double())
        model.float()
        found = torch.compile(model, backend=_backend(options))(x, image)
        for mine, exact in zip(found, expected, strict=True):
            assert error(mine, exact) < 1e-5
    notes = [n.reason for n in report.graphs[0].notes if n.pass_name == "autotune-cpu"]
    assert len(notes) >= 4
    assert not [n for n in notes if "something else" in n or "Error" in n], notes
    tuned = [n for n in notes if "not tuned" not in n]
    assert len(list((tmp_path / "tuned").glob("??/*.kiln"))) == len(tuned)
    shown = str(report)
    assert all(f"{n.split(':')[0]}:" in shown for n in notes)


def _backend(options):
    def compile_(gm, inputs):
        return kiln.backend(gm, inputs, mode="max-autotune", options=options)

    return compile_


def test_other_modes_do_not_tune():
    from kiln.frontend.options import Options
    from kiln.passes.pipelines import cpu_pipeline

    def tunes(mode):
        with create_context():
            return any(step.name.startswith("autotune-cpu") for step in cpu_pipeline(Options.build(mode)))

    assert [m for m in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs") if tunes(m)] == [
        "max-autotune",
        "max-autotune-no-cudagraphs",
    ]


def test_other_work_does_not_count_for_one_thread():
    def waiting():
        time.sleep(2e-3)

    assert processor_time([waiting], 0.01)[0].median < 1e-3 < interleaved([waiting], 0.01)[0].median
