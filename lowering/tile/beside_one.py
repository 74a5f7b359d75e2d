# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of which few digits are left in what is stored: those in GELU and SiLU of 16-bit tensors."""

from torch_mlir import ir

__all__ = ["is_beside_one"]


def is_beside_one(op: ir.OpView) -> bool:
    """Whether an error of 1.5e-7 in this f32 op, and 2^-14 of its distance from one or minus one, is lost in rounding:
    the op is only added to one, and all that its `linalg.generic` yields has 16 bits."""
    block = op.operation.block
    ends = [v.type for v in list(block.operations)[-1].operands]
    uses = [use.owner for use in op.results[0].uses]
    narrow = (ir.BF16Type, ir.F16Type)
    return (
        isinstance(op.results[0].type, ir.F32Type)
        and all(isinstance(t, narrow) for t in ends)
        and all(user.operation.name == "arith.addf" and any(_is_one(v) for v in user.operands) for user in uses)
    )


def _is_one(value: ir.Value) -> bool:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return False
    attribute = owner.operation.attributes["value"]
    return isinstance(attribute, ir.FloatAttr) and attribute.value == 1.0
