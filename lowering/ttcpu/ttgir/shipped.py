# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a GPU would get of a fusion whose kernel in Triton IR is not what runs there, interpreted."""

from collections.abc import Sequence

import torch
from torch_mlir import ir

from kiln.dialects import create_context, parse
from kiln.dialects.kiln import name_of
from kiln.dialects.schedules import from_attribute
from kiln.dialects.schedules.gpu import WarpSpecializedSchedule
from kiln.dialects.walk import ops_inside
from kiln.errors import KilnError
from kiln.lowering.gpu.emit import emit_kernel
from kiln.lowering.host.gpu_kernels import kernel_function
from kiln.lowering.ttcpu.ttgir.memory import TtgirError
from kiln.lowering.ttcpu.ttgir.run import run_specialized

__all__ = ["is_specialized", "shipped_results"]

_SEEDS = (1, 2)
"""The last partition, which copies, first, with copies as late as they can be; and an order by chance."""


def is_specialized(fusion: ir.Operation) -> bool:
    """Whether the schedule asks for warps with different jobs, which Triton IR cannot say."""
    attributes = fusion.attributes
    return "schedule" in attributes and isinstance(from_attribute(attributes["schedule"]), WarpSpecializedSchedule)


def shipped_results(
    text: str, operands: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
) -> list[list[torch.Tensor]]:
    """What the TTGIR of a kernel computes of `operands`, in each of some orders in which its warps may run; empty where
    Triton IR is what runs.

    Args:
        text: a module with one fusion that has a schedule (`lowering/host/references.py`).
        results: tensors of the shapes, strides and types of what it computes.

    Raises KilnError for a race, a deadlock or an access outside of memory.
    """
    with create_context(tt=True), ir.Location.unknown():
        module = parse(text)
        fusions = [op for op in ops_inside(module.operation) if name_of(op) == "kiln.fusion"]
        if len(fusions) != 1 or not is_specialized(fusions[0]):
            return []
        kernel = emit_kernel(fusions[0].opview, "shipped")  # its function does not keep it
        function = kernel_function(kernel)
        if "kiln.specialized" not in function.attributes:
            return []
        found: list[list[torch.Tensor]] = []
        for seed in _SEEDS:
            found.append([torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).fill_(torch.nan) for x in results])
            try:
                run_specialized(function.opview, [*operands, *found[-1]], seed)
            except TtgirError as error:
                raise KilnError(str(error)) from error
        return found
