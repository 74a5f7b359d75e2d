# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Targets: frozen, phases in a row, typed options; passes are made for a compilation."""

import dataclasses
from collections.abc import Mapping

import pytest
from torch_mlir import ir

from kiln.dialects import create_context, parse, to_text
from kiln.dialects.kiln import MatmulOp
from kiln.frontend.options import Options
from kiln.lowering.cpu.target import CpuTarget
from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.options import PipelineOptions
from kiln.lowering.target import PHASES, Library, Target, find_target, target_names
from kiln.lowering.ttcpu.target import TtCpuTarget
from kiln.lowering.tune.store import TunedSchedules
from kiln.lowering.tune.trials import Judge, Trials, Verdict
from kiln.passes import PassManager
from kiln.passes.choose_vendor import ChooseVendor
from kiln.passes.core import Compilation
from kiln.passes.pipeline_parser import parse_pipeline
from kiln.passes.pipelines import pipeline

ALL = [find_target(name)() for name in target_names()]


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
def test_a_target_is_frozen_and_its_pipeline_phases_in_a_row(target: Target) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        target.device = "elsewhere"
    options = PipelineOptions()
    phases = [target.phase(name, options) for name in PHASES]
    assert [step for steps in phases for step in steps] == target.pipeline(options)
    ends = [next((step.stage for step in reversed(steps) if step.stage), "") for steps in phases]
    code = {"cpu": ["vector", "object"], "cuda": ["ttir", "ptx"], "tt-cpu": ["ttir", "object"]}[target.name]
    assert ends == ["graph", "", "kiln", "fused", "", "sched", *code, "plan"]
    assert target.pipeline(options, "fuse", "place") == [*phases[3], *phases[4]]
    with create_context():
        assert len(pipeline(target)) == len(target.pipeline(options))


def test_targets_share_what_they_do_not_override() -> None:
    options = PipelineOptions(fast_math=True)
    assert CpuTarget().phase("simplify", options) == GpuTarget().phase("simplify", options)
    converted, *behind = CpuTarget().phase("convert", options)
    without_positions, *behind_that = GpuTarget().phase("convert", options)
    assert behind == behind_that
    assert without_positions.text == f"{converted.text}{{positions=false}}"  # of maxima in windows: ATen's on GPUs
    assert CpuTarget().phase("fuse", options) != GpuTarget().phase("fuse", options)


def test_steps_follow_the_options_and_the_machine() -> None:
    def texts(target: Target, options: PipelineOptions) -> str:
        return ",".join(step.text for step in target.pipeline(options))

    assert all(
        step.stage != "kernels" for target in ALL for step in target.pipeline(PipelineOptions(), last="schedule")
    )
    dumped, checked = Options(debug_dir="somewhere"), Options(check="error", fallback=False)
    assert "find-kernels" in texts(CpuTarget(), Options(debug_dir="")) and "find-kernels" not in texts(
        CpuTarget(), dumped
    )
    for target in (CpuTarget(), TtCpuTarget()):
        assert "keep-references" in texts(target, checked) and "strict" not in texts(target, dumped)
        assert texts(target, checked).count("strict") == len(target.name.split("-")) + 1
    assert "prove-kernels{policy=error}" in texts(GpuTarget("cuda:0"), checked)
    assert "settings='order=reversed" in texts(TtCpuTarget(), PipelineOptions(tt_cpu="order=reversed"))
    assert "plan-host{device=cuda:1}" in texts(GpuTarget("cuda:1"), PipelineOptions())
    default, tuned = PipelineOptions(), Options(mode="max-autotune", tune_seconds=2.0)
    assert "autotune" not in texts(CpuTarget(), default) + texts(GpuTarget(), tuned)
    assert "autotune-cpu{seconds=2.0 graph-seconds=240.0}" in texts(CpuTarget(), tuned)
    assert "autotune-gpu{seconds=2.0 graph-seconds=240.0 device=cuda:0" in texts(GpuTarget("cuda:0"), tuned)
    assert "fast-math=true" in texts(CpuTarget(), PipelineOptions(fast_math=True))
    assert "descriptors=true" in texts(GpuTarget(), default)
    assert "descriptors=true" not in texts(GpuTarget(arch="sm_89"), default)
    assert "descriptors=true" not in texts(GpuTarget(), PipelineOptions(tensor_maps=False))


def test_passes_are_made_for_a_compilation() -> None:
    store = TunedSchedules()
    with create_context():
        (choose,) = (step.pass_ for step in parse_pipeline("choose-vendor", Compilation(store)))
    assert isinstance(choose, ChooseVendor) and choose.store is store


def test_a_target_says_what_its_libraries_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass(frozen=True)
    class Shop(CpuTarget):
        name = "shop"

        def library(self, op: ir.Operation, *, tensor_maps: bool) -> Library | None:
            if not isinstance(op.opview, MatmulOp):
                return None
            is_large = ir.RankedTensorType(op.operands[0].type).shape[0] > 8
            return Library("a large one", marks=()) if is_large else Library(None, "a small one", ("small",))

    monkeypatch.setattr("kiln.lowering.target._REGISTERED", {"shop": Shop})
    with create_context():
        module = parse("""
            func.func @main(%a: tensor<16x4xf32>, %b: tensor<4x4xf32>) -> (tensor<16x4xf32>, tensor<4x4xf32>) {
              %0 = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false}
                : (tensor<16x4xf32>, tensor<4x4xf32>) -> tensor<16x4xf32>
              %1 = "kiln.matmul"(%b, %b) {transpose_lhs = false, transpose_rhs = false}
                : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
              return %0, %1 : tensor<16x4xf32>, tensor<4x4xf32>
            }""")
        (choose,) = steps = parse_pipeline("choose-vendor{target=shop}")
        PassManager(steps).run(module)
        text = to_text(module)
    assert 'reason = "a large one"' in text and text.count("kiln.aten") == 1
    assert text.count("kiln.matmul") == 1 and "small, transpose_lhs" in text
    assert [note.reason for note in choose.pass_.notes] == ["a large one", "a small one"]


def test_a_target_runs_ops_both_ways_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass asks for it only where it is given time; what a judge says counts more than the rules."""

    class Faster:
        def verdict(self, op: ir.Operation) -> Verdict:
            return Verdict(True, "the library: 1 us, the kernel: 2 us")

    @dataclasses.dataclass(frozen=True)
    class Track(CpuTarget):
        name = "track"

        def library(self, op: ir.Operation, *, tensor_maps: bool) -> Library | None:
            return Library(None) if isinstance(op.opview, MatmulOp) else None

        def judges(self, trials: Trials) -> Mapping[str, Judge]:
            assert trials.seconds == 2.0 and trials.store is store and callable(trials.caller("kiln.matmul"))
            return {"kiln.matmul": Faster()}

    store = TunedSchedules()
    monkeypatch.setattr("kiln.lowering.target._REGISTERED", {"track": Track})
    for given, calls in (("", 0), (" seconds=2.0", 1)):
        with create_context():
            module = parse("""
                func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
                  %0 = "kiln.matmul"(%a, %a) {transpose_lhs = false, transpose_rhs = false}
                    : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
                  return %0 : tensor<4x4xf32>
                }""")
            PassManager(parse_pipeline(f"choose-vendor{{target=track{given}}}", Compilation(store))).run(module)
            assert to_text(module).count("the library: 1 us") == calls
