# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Functions of what rows are reduced to, in vectors: exp(-x.sum(-1)) for a block of rows at once.

Where rows are reduced along their own elements and nothing else is asked of them, each result would be a scalar, and so
would be what is computed from it. Instead the rows are walked in blocks. The loop over a block's rows keeps their
results in scratch memory, and behind it the lanes are the rows.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.walk import defining_op
from kiln.lowering.cpu.isa import target
from kiln.lowering.tile.access import Accesses, Indices, Loops, lane_coefficient, memory_type
from kiln.lowering.tile.body import FusionBody

if TYPE_CHECKING:
    from kiln.lowering.cpu.tile.evaluator import Evaluator

__all__ = ["ReducedRows", "cost_behind", "function_dim"]

BLOCK = 16
"""Rows of a block: a vector's of floats."""


def cost_behind(body: FusionBody, roots: Sequence[ir.Value]) -> int:
    """Cost of one element of all that is computed from the results of reductions, and is no operand of one."""
    seen: set[ir.Operation] = set()
    left = list(roots)
    cost = 0
    while left:
        value = left.pop()
        op = defining_op(value)
        if op is None or op in seen or body.argument_position(value) is not None or body.reduction(value) is not None:
            continue
        if op.parent != body.fusion.operation:
            continue
        seen.add(op)
        cost += body.own_cost(op.opview)
        left += op.operands
    return cost


def function_dim(accesses: Accesses, outer: Sequence[int], loops: Loops) -> int | None:
    """The one of the `outer` dims whose blocks become vectors: the results lie along it in memory."""
    blocks = 1
    for d in outer:
        blocks *= loops.count(d)
    few = blocks < target().rules.loops.parallel_units * BLOCK
    if few and all(affine.constant_of(loops.extents[d]) is not None for d in outer):
        return None
    for d in reversed(outer):
        lines = [lane_coefficient(a.offset, d, BLOCK) for a in accesses.found if a.stored]
        if loops.count(d) >= BLOCK and all(x is not None and x[0] == ir.AffineConstantExpr.get(1) for x in lines):
            return d
    return None


class ReducedRows:
    """The reductions of a block of `size` rows, counted by `dim`, in scratch memory."""

    def __init__(self, e: "Evaluator", reductions: Sequence[tuple[ir.Value, Indices]], dim: int, size: int):
        self.e, self.size = e, size
        self.reductions = [(v, x) for v, x in reductions if any(dim in affine.dims_in(i) for i in x)]
        types = [memory_type(ir.RankedTensorType(v.type).element_type) for v, _ in self.reductions]
        count = ir.AffineConstantExpr.get(size)
        self.types, self.places = types, [e.scratch.reserve(count, t) for t in types]

    def keep(self, row: int | ir.Value) -> None:
        """Reduces one row, the block's number `row`."""
        for (value, indices), memory in zip(self.reductions, self._memory(), strict=True):
            self.e.b.store(self.e.stored(self.e.eval(value, indices)), memory, row)

    def load(self) -> None:
        """Binds the reductions to vectors of the block's rows, the lanes."""
        for (value, indices), memory in zip(self.reductions, self._memory(), strict=True):
            loaded = self.e.b.vload(memory, 0, self.size)
            element = ir.RankedTensorType(value.type).element_type
            self.e.bound[value, indices] = self.e.boolean(loaded, element)

    def forget(self) -> None:
        """Ends what `load` begins."""
        for key in self.reductions:
            del self.e.bound[key]

    def _memory(self) -> list[ir.Value]:
        count = ir.AffineConstantExpr.get(self.size)
        return [self.e.scratch.view(self.e, x, count, t) for x, t in zip(self.places, self.types, strict=True)]
