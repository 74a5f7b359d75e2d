# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Results of 16 bits that another graph computes again (attribute ``kiln.rounded`` of a torch op)."""

from torch_mlir import ir

from kiln.dialects.rounding import is_implicit
from kiln.dialects.walk import defining_op

__all__ = ["keep_rounding"]


def keep_rounding(tensor: ir.Value | None) -> None:
    """Have the rounding that a tensor's loop ends with stay, as if the program had asked for it."""
    loop = None if tensor is None else defining_op(tensor)
    if tensor is None or loop is None or loop.name != "linalg.generic":
        return
    place = ir.OpResult(tensor).result_number
    ending = defining_op(list(loop.regions[0].blocks[0].operations)[-1].operands[place])
    if ending is not None and is_implicit(ending):
        del ending.attributes["fastmath"]
