# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The pipelines: a target's phases (`kiln.lowering.target`), as passes."""

from collections.abc import Iterable

from kiln.lowering.cpu.target import CpuTarget
from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.options import PipelineOptions
from kiln.lowering.target import Step, Target
from kiln.passes.core import Compilation
from kiln.passes.manager import PipelineStep

__all__ = ["PIPELINES", "cpu_pipeline", "gpu_pipeline", "pipeline", "steps_of"]


def pipeline(
    target: Target, options: PipelineOptions | None = None, compilation: Compilation | None = None
) -> list[PipelineStep]:
    """From the torch dialect to scheduled kernels. options: None means their defaults, whatever PyTorch's settings
    are."""
    return steps_of(target.pipeline(options or PipelineOptions()), compilation)


def steps_of(steps: Iterable[Step], compilation: Compilation | None = None) -> list[PipelineStep]:
    """Steps with the passes that their texts name."""
    return [PipelineStep(step.text, step.why, step.stage, compilation) for step in steps]


def cpu_pipeline(options: PipelineOptions | None = None) -> list[PipelineStep]:
    """`pipeline` of the CPU."""
    return pipeline(CpuTarget(), options)


def gpu_pipeline(options: PipelineOptions | None = None, arch: str = "sm_90", device: str = "") -> list[PipelineStep]:
    """`pipeline` of a GPU. arch: as in ``schedule-gpu``; device: one to try schedules on, if there is any."""
    return pipeline(GpuTarget(device, arch), options)


# For ``kiln-opt --pipeline=NAME``.
PIPELINES = {"cpu": cpu_pipeline, "gpu": gpu_pipeline}
