# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reductions and scans as loops along their axis."""

from torch_mlir import ir

from kiln.lowering.ttcpu.blocks import Block, Cursor, Stored, loop_nest
from kiln.lowering.ttcpu.core import Lowering, handles, is_block

Index = tuple[ir.Value, ...]


def _axis(op: ir.Operation) -> int:
    return ir.IntegerAttr(op.attributes["axis"]).value


def _with(index: Index, axis: int, at: ir.Value) -> Index:
    return (*index[:axis], at, *index[axis:])


@handles("tt.reduce")
def _reduce(low: Lowering, op: ir.Operation) -> None:
    sources, axis = [low.block(v) for v in op.operands], _axis(op)
    shape = sources[0].shape
    rest = (*shape[:axis], *shape[axis + 1 :])
    if not is_block(op.results[0].type):
        for result, value in zip(op.results, _along(low, op, sources, (), axis), strict=True):
            low.values[result] = value
        return
    targets = [low.scratch.block(rest, source.element) for source in sources]
    if axis == len(shape) - 1:

        def row(index: Index) -> None:
            for target, value in zip(targets, _along(low, op, sources, index, axis), strict=True):
                target.write(value, index)

        loop_nest(low.b, rest, row)
    else:
        _over_rows(low, op, sources, targets, axis)
    low.values.update(zip(op.results, targets, strict=True))


def _along(low: Lowering, op: ir.Operation, sources: list[Block], index: Index, axis: int) -> list[ir.Value]:
    """The reduction of one row, in registers."""
    b = low.b
    first = Cursor()
    inits = [first.value(s, _with(index, axis, b.value(0))) for s in sources]

    def step(i: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        cursor = Cursor()
        new = [cursor.value(s, _with(index, axis, b.value(i))) for s in sources]
        return low.combine(op.regions[0], [*carried, *new])

    return b.for_(1, sources[0].shape[axis], 1, step, inits)


def _over_rows(low: Lowering, op: ir.Operation, sources: list[Block], targets: list[Stored], axis: int) -> None:
    """A reduction over another axis than the last: row by row, so that consecutive elements are combined."""
    b = low.b

    def first(index: Index) -> None:
        cursor = Cursor()
        for source, target in zip(sources, targets, strict=True):
            target.write(cursor.value(source, _with(index, axis, b.value(0))), index)

    loop_nest(b, targets[0].shape, first)

    def step(i: ir.Value) -> None:
        def body(index: Index) -> None:
            cursor = Cursor()
            old = [cursor.value(t, index) for t in targets]
            new = [cursor.value(s, _with(index, axis, b.value(i))) for s in sources]
            for target, value in zip(targets, low.combine(op.regions[0], [*old, *new]), strict=True):
                target.write(value, index)

        loop_nest(b, targets[0].shape, body)

    b.for_(1, sources[0].shape[axis], 1, step)


@handles("tt.scan")
def _scan(low: Lowering, op: ir.Operation) -> None:
    b, axis = low.b, _axis(op)
    sources = [low.block(v) for v in op.operands]
    shape = sources[0].shape
    backwards = "reverse" in op.attributes and ir.BoolAttr(op.attributes["reverse"]).value
    targets = [low.scratch.block(shape, source.element) for source in sources]

    def row(index: Index) -> None:
        def place(i: int | ir.Value) -> Index:
            return _with(index, axis, b.value(b.subi(shape[axis] - 1, i) if backwards else i))

        def write(i: int | ir.Value, values: list[ir.Value]) -> list[ir.Value]:
            for target, value in zip(targets, values, strict=True):
                target.write(value, place(i))
            return values

        start = Cursor()
        inits = write(0, [start.value(s, place(0)) for s in sources])

        def step(i: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            cursor = Cursor()
            new = [cursor.value(s, place(i)) for s in sources]
            return write(i, low.combine(op.regions[0], [*carried, *new]))

        b.for_(1, shape[axis], 1, step, inits)

    loop_nest(b, (*shape[:axis], *shape[axis + 1 :]), row)
    low.values.update(zip(op.results, targets, strict=True))
