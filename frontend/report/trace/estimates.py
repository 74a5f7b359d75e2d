# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How long a launch should take by the rates of the machine that decisions are made by."""

from kiln.lowering.cpu.rates import measured
from kiln.passes.fusion.tally import Cost, Machine
from kiln.runtime.statistics import StepMemory

__all__ = ["estimated_seconds"]


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
