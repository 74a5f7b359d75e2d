# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Targets: frozen, phases in a row, typed options; passes are made for a compilation."""

import dataclasses

import pytest

from kiln.dialects import create_context
from kiln.frontend.options import Options
from kiln.lowering.cpu.target import CpuTarget
from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.options import PipelineOptions
from kiln.lowering.target import PHASES, Target, find_target, target_names
from kiln.lowering.tune.store import TunedSchedules
from kiln.passes.choose_vendor import ChooseVendor
from kiln.passes.core import Compilation
from kiln.passes.pipeline_parser import parse_pipeline
from kiln.passes.pipelines import pipeline

ALL = [find_target(name)() for name in target_names()]


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
def test_a_target_is_frozen_and_its_pipeline_phases_in_a_row(target: Target) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        target.device = "elsewhere"  # type: ignore[misc]
    options = PipelineOptions()
    phases = [target.phase(name, options) for name in PHASES]
    assert [step for steps in phases for step in steps] == target.pipeline(options)
    ends = [next((step.stage for step in reversed(steps) if step.stage), "") for steps in phases]
    assert ends == ["graph", "", "kiln", "fused", "", "sched"]
    with create_context():
        assert len(pipeline(target)) == len(target.pipeline(options))


def test_targets_share_what_they_do_not_override() -> None:
    options = PipelineOptions(fast_math=True)
    for phase in ("simplify", "convert"):
        assert CpuTarget().phase(phase, options) == GpuTarget().phase(phase, options)
    assert CpuTarget().phase("fuse", options) != GpuTarget().phase("fuse", options)


def test_steps_follow_the_options_and_the_machine() -> None:
    def texts(target: Target, options: PipelineOptions) -> str:
        return ",".join(step.text for step in target.pipeline(options))

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
