# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels of a recorded graph, made anew from its scheduled module and run on random inputs: timed and verified."""

from collections.abc import Callable
from typing import Any

import torch
from torch_mlir import ir

from kiln.dialects import create_context, parse
from kiln.frontend.options import Options
from kiln.frontend.report.profile import Profile, profile_of
from kiln.frontend.report.trace.records import HOST, GraphTrace
from kiln.lowering.options import KernelsAlone
from kiln.lowering.target import find_target
from kiln.passes import PipelineStep
from kiln.passes.assemble import Assemble
from kiln.passes.numerics.kernels import plan_call, usable_samples, verify_kernels
from kiln.passes.pipelines import pipeline
from kiln.passes.plan_host import PlanHost, compiled_plan

__all__ = ["timed", "verified"]


def timed(record: GraphTrace, done: int, source: str, calls: int, *, cpu_time: bool) -> Profile:
    """The profile of a graph's kernels.

    Args:
        record: the graph, whose passes behind the stage ``sched`` make the kernels, where it has them all.
        done: how many passes the module is behind.
        source: the scheduled module's text.
        calls: how many calls are timed.
        cpu_time: as in :func:`kiln.profile`.

    Raises:
        KilnError: there are no random inputs that the module runs on, or no such device.
        CompileError: a kernel that does not compile.
    """
    with create_context(tt=True), ir.Location.unknown():
        module = parse(source)
        (sample,) = usable_samples(module, kinds=("normal",), source=_imported(record))
        plan = compiled_plan(parse(source), _kernels(record, done), _device(record))

        def loaded() -> Callable[[], list[Any]]:
            call = plan_call(plan, module, sample, record.target)
            call()  # binds sizes, and allocates
            return call

        options = Options.build(None, {"target": record.target})
        return profile_of(loaded, lambda call: call(), calls, options, cpu_time=cpu_time)


def verified(record: GraphTrace, done: int, source: str) -> None:
    """Compare what the kernels of a scheduled module compute with what the module means. Arguments: see `timed`.

    Raises:
        NumericsError: a result is wrong.
        KilnError: the module cannot be run or compiled.
    """
    with create_context(tt=True), ir.Location.unknown():
        verify_kernels(parse(source), record.target, steps=lambda: _kernels(record, done), source=_imported(record))


def _imported(record: GraphTrace) -> ir.Module:
    """The graph in front of all passes."""
    return parse(record.steps[0].parts[HOST])


def _device(record: GraphTrace) -> str:
    return "cuda:0" if record.target == "cuda" else "cpu"


def _kernels(record: GraphTrace, done: int) -> list[PipelineStep]:
    """The steps from a scheduled module to machine code: the graph's own, those of its own passes among them."""
    steps = [PipelineStep(spec, why, stage) for spec, why, stage in record.pipeline[done:]]
    if any(isinstance(step.pass_, Assemble) for step in steps):
        return [step for step in steps if not isinstance(step.pass_, PlanHost)]
    device = _device(record)
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability(0)) if device != "cpu" else ""
    return pipeline(find_target(record.target).on(device, arch), KernelsAlone(), first="emit", last="lower")
