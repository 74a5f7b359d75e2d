# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products as one reduction."""

from typing import Any

from torch_mlir import ir

from kiln.dialects import scalar
from kiln.dialects.builder import Builder, dim, dims


def contract(
    b: Builder,
    lhs: tuple[ir.Value, list[Any]],
    rhs: tuple[ir.Value, list[Any]],
    index: list[Any],
    sizes: list[Any],
    iterators: str,
    extents: tuple[ir.Value, list[Any]] | None = None,
    rounded: ir.Type | None = None,
) -> ir.Value:
    """Sum of products in the compute type, rounded to the operands' type (or `rounded`) at the end.

    `extents` is an operand that is not read: its sizes give loops that no other operand has as a plain dim.
    """
    element = lhs[0].type.element_type
    # Integers of 8 bits may be summed in 32.
    compute = rounded if isinstance(rounded, ir.IntegerType) else scalar.compute_type(element)

    def step(x: ir.Value, y: ir.Value, *rest: ir.Value) -> ir.Value:
        return scalar.add(rest[-1], scalar.mul(scalar.cast(x, compute), scalar.cast(y, compute)))

    inputs = [lhs, rhs, extents] if extents is not None else [lhs, rhs]
    total = b.reduce(inputs, index, sizes, iterators, compute, 0, step)
    return b.cast(total, rounded or element)


def matmul(op: Any, b: Builder) -> ir.Value:
    """Loops: batch dims, m, n, then the reduction k."""
    lhs, rhs = op.lhs, op.rhs
    rank = lhs.type.rank
    batch, m, n, k = dims(rank - 2), dim(rank - 2), dim(rank - 1), dim(rank)
    left = [k, m] if op.transpose_lhs.value else [m, k]
    right = [n, k] if op.transpose_rhs.value else [k, n]
    shared = rhs.type.rank == 2
    return contract(
        b,
        (lhs, [*batch, *left]),
        (rhs, right if shared else [*batch, *right]),
        [*batch, m, n],
        b.sizes(op.result),
        "p" * rank + "r",
        rounded=op.result.type.element_type,
    )
