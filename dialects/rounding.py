# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Two kinds of ``arith.truncf``: roundings that a program asks for, and those that come with ops of 16 bits.

An op on bf16 or f16 computes in f32, and its result is rounded because the tensor has 16 bits. Such a rounding carries
``fastmath<contract>``, MLIR's mark of a truncation that may be folded with the extension behind it (``ExtFOp::fold``).
A cast of the program has no flag, and stays.
"""

from torch_mlir import ir
from torch_mlir.dialects import arith

__all__ = ["EXACT", "is_implicit", "is_narrow", "round_implicitly"]

EXACT = "kiln.exact"
"""Attribute of an op on floats in a loop: its result is rounded by itself, and the same in every kernel."""


def is_narrow(type_: ir.Type) -> bool:
    """Whether a scalar type is a float of 16 bits."""
    return isinstance(type_, ir.BF16Type | ir.F16Type)


def round_implicitly(type_: ir.Type, value: ir.Value) -> ir.Value:
    """``value``, a wider float, as the narrower ``type_``, in which an op's result is kept."""
    return arith.truncf(type_, value, fastmath=arith.FastMathFlags.contract)


def is_implicit(op: ir.Operation) -> bool:
    """Whether ``op`` is a rounding from f32 to 16 bits that no program asks for."""
    if op.name != "arith.truncf" or "fastmath" not in op.attributes:
        return False
    narrows = isinstance(op.operands[0].type, ir.F32Type) and is_narrow(op.results[0].type)
    return narrows and op.attributes["fastmath"] == ir.Attribute.parse("#arith.fastmath<contract>", op.context)
