# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the code of a planned nest: a program's position, the tile's axes, reductions, stores."""

from collections.abc import Sequence
from dataclasses import replace

from torch_mlir import ir

from kiln.dialects import affine
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.lowering.gpu.builder import Condition, Index
from kiln.lowering.gpu.tile.evaluator import Evaluator, Row
from kiln.lowering.gpu.tile.plan import Nest, Root
from kiln.lowering.gpu.tile.scopes import Axis

_TAKEN = paths.group("gpu rows", "whole rows where they fit")

_TOGETHER = 4
"""Values that wait in registers for each other's loads; a thread has 4 or 8 elements of each."""


def emit_nest(e: Evaluator, nest: Nest, program: Index) -> None:
    """Emit the work of program number `program` (an integer of the kernel's index type)."""
    b = e.b
    e.loops = nest.loops
    sizes = list(nest.schedule.tile)
    e.axes = [Axis(n) for n in sizes if n > 1]
    if nest.row is not None:
        e.axes.append(Axis(_row_size(nest)))
    if not e.axes:
        e.axes = [Axis(1)]
    position = program
    starts: list[Index] = []
    counts = [e.index(e.loops.extents[d]) for d in nest.outer]
    counts += [b.ceildivi(e.index(e.loops.extents[d]), n) for d, n in zip(nest.tiles, sizes, strict=True)]
    for count in reversed(counts[1:]):
        starts.insert(0, b.remi(position, count))
        position = b.divi(position, count)
    starts.insert(0, position)
    for d, at in zip(nest.outer, starts, strict=False):
        e.values[d] = at
    axis = 0
    for d, n, at in zip(nest.tiles, sizes, starts[len(nest.outer) :], strict=True):
        if n == 1:
            e.values[d] = at
            continue
        e.bind_axis(axis, d, b.muli(at, n))
        axis += 1
    if nest.row is None:
        _store(e, nest.roots)
        return
    row = Row(nest.row_extents, nest.row_exprs, nest.row, axis, nest.schedule.persistent)
    e.axis_of[row.dim] = axis
    extent = e.index(e.loops.extents[row.dim])
    if row.persistent and isinstance(extent, ir.Value):
        _TAKEN("whole rows where they fit")
        in_blocks = replace(row, persistent=False)
        b.if_(
            b.cmpi("sle", extent, e.axes[axis].size),
            lambda: _walk_inside(e, nest, row),
            lambda: _walk_inside(e, nest, in_blocks),
        )
    else:
        _walk_rows(e, nest, row)


def _walk_inside(e: Evaluator, nest: Nest, row: Row) -> None:
    """`_walk_rows` in a branch, where all of its code goes."""
    with e.branch():
        _walk_rows(e, nest, row)


def _walk_rows(e: Evaluator, nest: Nest, row: Row) -> None:
    """The reductions along the rows, and what is stored."""
    e.row = row
    if row.persistent:
        e.bind_axis(row.axis, row.dim, 0)
    _store_rows(e, nest, row)


def _row_size(nest: Nest) -> int:
    """Elements of a row at a time. Raises UnsupportedError where a schedule was made for loops without reductions."""
    if nest.schedule.row is None:
        raise UnsupportedError("kiln.fusion", "", "its schedule has no field 'row', and the loops have reductions")
    return nest.schedule.row


def _store_rows(e: Evaluator, nest: Nest, row: Row) -> None:
    """Roots along the rows in one last walk over these, the others beside it."""
    on_row = [r for r in nest.roots if any(row.dim in affine.dims_in(i) for i in r.indices)]
    _store(e, [root for root in nest.roots if root not in on_row or row.persistent])
    if not on_row or row.persistent:
        return

    def step(start: Index) -> None:
        with e.inside({}):
            e.bind_axis(row.axis, row.dim, start)
            _store(e, on_row)

    e.b.for_(0, e.index(e.loops.extents[row.dim]), e.axes[row.axis].size, step)


def _store(e: Evaluator, roots: Sequence[Root]) -> None:
    """What several roots read is loaded before any of them is stored: no compiler moves a load in front of a store that
    may be to the same memory, so that one would wait for the other.
    """
    for start in range(0, len(roots), _TOGETHER):
        batch = roots[start : start + _TOGETHER]
        values = [e.eval(root.value, root.indices) for root in batch]
        for root, value in zip(batch, values, strict=True):
            condition: Condition = True
            for index in root.absent:
                condition = e.b.andc(condition, e.b.cmpi("eq", e.index(index), 0))
            e.store(len(e.body.tensors) + root.position, root.indices, value, condition)


__all__ = ["emit_nest"]
