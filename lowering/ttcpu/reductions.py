# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reductions and scans in log2(n) steps along their axis."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import tt
from kiln.lowering.ttcpu.blocks import Block, Cursor, Stored, loop_nest
from kiln.lowering.ttcpu.core import Lowering, handles

Index = tuple[ir.Value, ...]


def _axis(op: ir.Operation) -> int:
    return ir.IntegerAttr(op.attributes["axis"]).value


def _with(index: Index, axis: int, at: ir.Value) -> Index:
    return (*index[:axis], at, *index[axis:])


@handles("tt.reduce")
def _reduce(low: Lowering, op: ir.Operation) -> None:
    """As a tree, as a GPU's threads do: halves are combined until one element is left. So a sum rounds as often as
    there, and not once an element; and the innermost loop runs over elements that do not depend on each other.
    """
    axis, size = _axis(op), low.block(op.operands[0]).shape[_axis(op)]
    half = -(-size // 2)
    partial = _first_half(low, op, axis, half)
    while half > 1:
        size, half = half, -(-half // 2)
        _fold(low, op, axis, size - half, half, partial, partial)
    for result, block in zip(op.results, partial, strict=True):
        low.values[result] = _start(low, block, axis) if tt.is_block(result.type) else _start_of_all(low, block)


def _first_half(low: Lowering, op: ir.Operation, axis: int, half: int) -> list[Stored]:
    """Memory for the first `half` of the elements along the axis, each combined with its partner in the second."""
    sources = [low.block(v) for v in op.operands]
    shape = sources[0].shape
    partial = [low.scratch.block((*shape[:axis], half, *shape[axis + 1 :]), s.element) for s in sources]
    pairs = shape[axis] - half
    if pairs < half:  # an odd size: the last of the half has no partner

        def last(index: Index) -> None:
            cursor, at = Cursor(), _with(index, axis, low.b.value(pairs))
            for source, target in zip(sources, partial, strict=True):
                target.write(cursor.value(source, at), at)

        loop_nest(low.b, (*shape[:axis], *shape[axis + 1 :]), last)
    _fold(low, op, axis, pairs, half, sources, partial)
    return partial


def _fold(
    low: Lowering,
    op: ir.Operation,
    axis: int,
    pairs: int,
    half: int,
    sources: Sequence[Block],
    targets: Sequence[Stored],
) -> None:
    """target[i] = source[i] with source[i + half], for i below `pairs` along the axis."""
    b, shape = low.b, targets[0].shape

    def pair(index: Index) -> None:
        cursor, partner = Cursor(), _replaced(index, axis, b.value(b.addi(index[axis], half)))
        values = [cursor.value(s, index) for s in sources] + [cursor.value(s, partner) for s in sources]
        for target, value in zip(targets, low.combine(op.regions[0], values), strict=True):
            target.write(value, index)

    loop_nest(b, (*shape[:axis], pairs, *shape[axis + 1 :]), pair)


def _start(low: Lowering, block: Stored, axis: int) -> Block:
    """The first elements along the axis."""
    shape = (*block.shape[:axis], *block.shape[axis + 1 :])
    zero = low.b.value(0)
    return Block(shape, block.element, lambda cursor, index: cursor.value(block, _with(index, axis, zero)))


def _start_of_all(low: Lowering, block: Stored) -> ir.Value:
    return Cursor().value(block, [low.b.value(0)] * len(block.shape))


@handles("tt.scan")
def _scan(low: Lowering, op: ir.Operation) -> None:
    """In steps that double, as lanes of a GPU do: each element is combined with the result of as many before it as it
    has taken. So a running sum rounds log2(n) times, and not once an element.
    """
    b, axis = low.b, _axis(op)
    sources = [low.block(v) for v in op.operands]
    shape = sources[0].shape
    backwards = "reverse" in op.attributes and ir.BoolAttr(op.attributes["reverse"]).value
    targets = [low.scratch.block(shape, source.element) for source in sources]

    def copy(index: Index) -> None:
        cursor = Cursor()
        for source, target in zip(sources, targets, strict=True):
            target.write(cursor.value(source, index), index)

    loop_nest(b, shape, copy)
    distance = 1
    while distance < shape[axis]:
        _double(low, op, distance, targets, backwards)
        distance *= 2
    low.values.update(zip(op.results, targets, strict=True))


def _double(low: Lowering, op: ir.Operation, distance: int, targets: Sequence[Stored], backwards: bool) -> None:
    """target[i] = target[i - distance] with target[i], in place; the last first, since it is read by none."""
    b, axis, shape = low.b, _axis(op), targets[0].shape

    def combine(index: Index) -> None:
        j = index[axis]
        i = j if backwards else b.value(b.subi(shape[axis] - 1, j))
        before = b.value(b.addi(i, distance) if backwards else b.subi(i, distance))
        at, partner, cursor = _replaced(index, axis, i), _replaced(index, axis, before), Cursor()
        values = [cursor.value(t, partner) for t in targets] + [cursor.value(t, at) for t in targets]
        for target, value in zip(targets, low.combine(op.regions[0], values), strict=True):
            target.write(value, at)

    loop_nest(b, (*shape[:axis], shape[axis] - distance, *shape[axis + 1 :]), combine)


def _replaced(index: Index, axis: int, at: ir.Value) -> Index:
    return (*index[:axis], at, *index[axis + 1 :])
