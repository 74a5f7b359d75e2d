# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The pipelines: a target's phases (`kiln.lowering.target`), as passes."""

from collections.abc import Iterable

from kiln.errors import KilnError, did_you_mean
from kiln.inserts import installed
from kiln.lowering.cpu.target import CpuTarget
from kiln.lowering.options import PipelineOptions
from kiln.lowering.target import PHASES, Step, Target, find_target, target_names
from kiln.passes.core import Compilation
from kiln.passes.manager import PipelineStep, inserted

__all__ = ["cpu_pipeline", "gpu_pipeline", "named_pipeline", "pipeline", "pipeline_names", "steps_of"]

_TARGETS = {"gpu": "cuda"}
"""Names of pipelines that are not those of their targets."""


def pipeline(
    target: Target,
    options: PipelineOptions | None = None,
    compilation: Compilation | None = None,
    *,
    first: str = PHASES[0],
    last: str = PHASES[-1],
) -> list[PipelineStep]:
    """The steps of a target's phases, by default of all.

    options: None means their defaults, whatever PyTorch's settings are.
    """
    return steps_of(target.pipeline(options or PipelineOptions(), first, last), compilation)


def steps_of(steps: Iterable[Step], compilation: Compilation | None = None) -> list[PipelineStep]:
    """Steps with the passes that their texts name."""
    return [PipelineStep(step.text, step.why, step.stage, compilation) for step in steps]


def cpu_pipeline(options: PipelineOptions | None = None) -> list[PipelineStep]:
    """From the torch dialect to scheduled kernels of the CPU."""
    return pipeline(CpuTarget(), options, last="schedule")


def gpu_pipeline(options: PipelineOptions | None = None, arch: str = "sm_90", device: str = "") -> list[PipelineStep]:
    """The same for a GPU. arch: as in ``schedule-gpu``; device: one to try schedules on, if there is any."""
    from kiln.lowering.gpu.target import GpuTarget  # graphs for CPUs do without

    return pipeline(GpuTarget(device, arch), options, last="schedule")


def pipeline_names() -> list[str]:
    """What ``kiln-opt --pipeline=NAME`` takes: the names of targets, those from outside among them."""
    aliases = {target: name for name, target in _TARGETS.items()}
    return [aliases.get(name, name) for name in target_names()]


def named_pipeline(name: str, arch: str = "") -> list[PipelineStep]:
    """All steps of a target, with the options' defaults, and the passes of installed packages among them.

    arch: the GPU ("sm_80") that the target is to be for; empty: the target's own.

    Raises KilnError, naming the near ones, for an unknown name; and for a target that is not for a GPU of choice.
    """
    if name not in pipeline_names():
        near = did_you_mean(name, pipeline_names()) or f"; there are {', '.join(pipeline_names())}"
        raise KilnError(f"unknown pipeline {name!r}{near}")
    kind = find_target(_TARGETS.get(name, name))
    target = kind.on("", arch) if arch else kind()
    if arch and getattr(target, "arch", "") != arch:
        raise KilnError(f"the pipeline {name!r} is not for a GPU of choice; --pipeline=gpu is")
    return inserted(pipeline(target), installed())
