# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Values that the loops of a reduction keep in scratch memory, where later loops over the same elements would compute
them again: exponentials of a row, which are summed up first, and divided by their sum behind that.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from kiln.dialects import affine
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.scopes import Spilled
from kiln.lowering.tile.access import Indices, Loops, element_bytes, linear_offset

__all__ = ["Spills"]


class Spills:
    """What the loops of a reduction, those of `dims`, keep; `level` is the reduction's (`FusionBody.level`)."""

    def __init__(self, dims: Sequence[int], level: int):
        self.dims, self.level = set(dims), level
        self.values: dict[ir.Value, Spilled] = {}
        self.parts: dict[ir.Value, set[int]] = {}

    def write(self, e: Evaluator, part: int) -> None:
        """Keep what has been computed at this point of the loops, in the `part` of a loop that is cut."""
        for (value, indices, guard), emitted in list(_tensor_memo(e)):
            if guard is not None or e.body.spill_level(value) != self.level:
                continue
            free = [i for i, x in enumerate(indices) if affine.dims_in(x) & self.dims]
            if not free or {d for i in free for d in affine.dims_in(indices[i])} - self.dims:
                continue
            if not _comes_everywhere(e.loops, [indices[i] for i in free], [e.body.dims(value)[i] for i in free]):
                continue  # later loops may read what these do not write
            kept = self.values.get(value)
            if kept is None:
                kept = _reserve(e, value, indices, free)
                if kept is None:
                    continue
                self.values[value] = kept
            elif any(indices[i] != x for i, x in kept.fixed.items()) or free != kept.free:
                continue  # another row of the value: the buffer holds one
            _store(e, kept, indices, emitted)
            self.parts.setdefault(value, set()).add(part)

    def keep(self, e: Evaluator, parts: int) -> None:
        """Let what is behind the loops read what they have kept, in all of the `parts`."""
        whole = {value for value, written in self.parts.items() if len(written) == parts}
        e.scopes[-1].spilled.update({value: kept for value, kept in self.values.items() if value in whole})


def _reserve(e: Evaluator, value: ir.Value, indices: Indices, free: list[int]) -> Spilled | None:
    """Memory for a row of the value; None where it is too large to be kept."""
    sizes = [e.body.dims(value)[i] for i in free]
    count: ir.AffineExpr = ir.AffineConstantExpr.get(1)
    for s in sizes:
        count = count * s
    count = count.maybe_downcast()
    row_bytes = count * element_bytes(value.type)
    if isinstance(row_bytes, ir.AffineConstantExpr) and row_bytes.value > target().l2_bytes:
        return None  # computing again takes no longer than a trip to a cache that is further away
    with e.at(0):
        buffer = e.scratch.allocate(e, count, ir.RankedTensorType(value.type).element_type)
    fixed = {i: x for i, x in enumerate(indices) if i not in free}
    return Spilled(buffer, fixed, free, sizes)


def _comes_everywhere(loops: Loops, indices: Sequence[ir.AffineExpr], sizes: Sequence[ir.AffineExpr]) -> bool:
    """Whether the loops of the dims in `indices` come to each element of a tensor of these sizes: the row-major offset
    counts it through, as digits of which each loop is one. False where that cannot be shown.
    """
    linear = affine.linear_coefficients(loops.simplify(linear_offset(indices, sizes)))
    if linear is None or linear[0] != ir.AffineConstantExpr.get(0):
        return False
    steps = dict(linear[1])
    step: ir.AffineExpr = ir.AffineConstantExpr.get(1)
    while steps:
        digit = next((d for d, each in steps.items() if affine.equal(each, step)), None)
        if digit is None:
            return False
        step = step * loops.extents[digit]
        del steps[digit]
    total: ir.AffineExpr = ir.AffineConstantExpr.get(1)
    for size in sizes:
        total = total * size
    return affine.equal(step, total)


def _store(e: Evaluator, kept: Spilled, indices: Indices, value: ir.Value) -> None:
    """Write one block of a value that later loops read back."""
    b, lane = e.b, e.lane
    offset = e.loops.simplify(linear_offset([indices[i] for i in kept.free], kept.sizes))
    value = e.splat(value)
    if value.type.element_type == b.i1:
        value = arith.extui(b.vec(lane.width, b.i8), value)
    linear = lane.line(offset)
    if linear is not None and linear[0] == ir.AffineConstantExpr.get(1):
        b.vstore(value, kept.buffer, e.index(linear[1]), lane.mask)
    else:
        ones = ir.DenseElementsAttr.get_splat(b.vec(lane.width, b.i1), ir.BoolAttr.get(True))
        mask = lane.mask if lane.mask is not None else b.constant(ones, b.vec(lane.width, b.i1))
        vector.ScatterOp(None, kept.buffer, [b.value(0)], e.index_value(offset), mask, value)


def _tensor_memo(e: Evaluator) -> Iterator[tuple[tuple[Any, ...], ir.Value]]:
    for key, emitted in e.scopes[-1].memo.items():
        if isinstance(key, tuple):
            yield cast(tuple[Any, ...], key), emitted
