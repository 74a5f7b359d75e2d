# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""From where a kernel's operands come when its graph runs: from a cache, or from memory.

A graph reads its arguments and constants once in a call, so whatever else it reads comes between two uses of a weight.
A kernel that runs by itself would find its weight where it left it.
"""

import math

from torch_mlir import ir

from kiln.dialects.walk import enclosing
from kiln.lowering.cpu import isa

__all__ = ["copies_of", "outside", "reach_of"]

_MOST_BYTES = 64 << 20
_MOST_COPIES = 64


def outside(fusion: ir.OpView) -> list[int]:
    """The operands of a `kiln.fusion` that are arguments or constants of its function."""
    return [i for i, value in enumerate(fusion.operation.operands) if isinstance(value.owner, ir.Block)]


def reach_of(fusion: ir.OpView) -> int:
    """Bytes that have to lie between two uses of an operand from outside for it to come from as far as in the graph.

    0 where all arguments fit into the second-level cache, else twice this cache, or the third-level one where they do
    not fit into that either.
    """
    function = enclosing(fusion, "func.func")
    total = sum(_bytes(argument.type) for argument in function.regions[0].blocks[0].arguments)
    cpu = isa.target()
    if total <= cpu.l2_bytes:
        return 0
    return 2 * cpu.l2_bytes if total <= cpu.l3_bytes else min(max(2 * cpu.l2_bytes, cpu.l3_bytes), _MOST_BYTES)


def copies_of(size: int, reach: int) -> int:
    """Copies of an operand of `size` bytes to use in turn."""
    return max(1, min(-(-reach // max(size, 1)), _MOST_COPIES))


def _bytes(type_: ir.Type) -> int:
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        return 0
    element = type_.element_type
    bits = ir.ComplexType(element).element_type.width * 2 if isinstance(element, ir.ComplexType) else element.width
    return math.prod(type_.shape) * max(bits // 8, 1)
