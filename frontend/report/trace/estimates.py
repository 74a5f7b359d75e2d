# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How long a launch should take by the rates of the machine that decisions are made by."""

import re

import torch

from kiln.frontend.report.roof import GpuRoof, Roof, host_roof
from kiln.frontend.report.trace.records import GraphTrace
from kiln.lowering.cpu.rates import measured
from kiln.passes.fusion.tally import Cost, Machine
from kiln.runtime.statistics import StepMemory

__all__ = ["estimated_seconds", "roof_of"]

_ARCH = re.compile(r"\barch=(sm_\d+)")


def roof_of(trace: GraphTrace) -> Roof | GpuRoof | None:
    """The rates of the machine that a graph's kernels were compiled for; None where none are known."""
    if trace.target == "cpu":
        return host_roof()
    arch = next((found[1] for text, _, _ in trace.pipeline if (found := _ARCH.search(text))), None)
    if trace.target != "cuda" or arch is None:
        return None
    from kiln.lowering.gpu.dot.machine import machine

    here = torch.cuda.is_available() and arch == "sm_{}{}".format(*torch.cuda.get_device_capability())
    return GpuRoof(machine(arch), trace.tf32, torch.cuda.get_device_name() if here else "")


def estimated_seconds(target: str, is_product: bool, moved: StepMemory | None, flops: int | None) -> float | None:
    """Seconds on one core by fusion's cost model, with the rates of the user's machine file if there is one.

    Args:
        target: what the graph is compiled for; only the CPU's times are estimated.
        is_product: operations are those of products, which have a rate of their own.
        moved: bytes read and written. flops: operations; None where sizes are known at run time only.
    """
    if target != "cpu" or moved is None:
        return None
    work = flops or 0
    cost = Cost(moved.read, moved.written, 0 if is_product else work, work if is_product else 0, 1)
    return cost.seconds(Machine.of(measured()))
