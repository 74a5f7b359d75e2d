# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which memory a pointer may lead to: traced from where it is used back to the kernel's arguments.

All lanes of a block of pointers come from scalar pointers, so an extent is a few scalars. A choice between two scalar
pointers is a choice between their extents; what a loop carries, and what lanes choose among, may be in any of them.
"""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.dialects.kiln import name_of
from kiln.lowering.ttcpu.core import Extent, Lowering

__all__ = ["extents_of"]


def extents_of(low: Lowering, pointer: ir.Value) -> tuple[Extent, ...]:
    """The memory that a pointer, or a block of pointers, of the source may lead to; all that the kernel has where that
    cannot be told (pointers made of integers); nothing if the kernel's memory is not known.
    """
    if not low.extents:
        return ()
    return tuple(dict.fromkeys(_trace(low, pointer, set()))) or tuple(low.extents.values())


def _trace(low: Lowering, value: ir.Value, path: set[ir.Value]) -> list[Extent]:
    """`path`: the values that led here, of which a loop's own value is one."""
    if value in low.extents:
        return [low.extents[value]]
    if value in path:
        return []
    path.add(value)
    try:
        owner = value.owner
        if isinstance(owner, ir.Block):
            return _union(low, _incoming(low, value, owner), path)
        op = owner.operation
        if name_of(op) == "arith.select" and not tt.is_block(value.type):
            return _chosen(low, op, path)
        return _union(low, _sources(op, value), path)
    finally:
        path.remove(value)


def _union(low: Lowering, values: Sequence[ir.Value], path: set[ir.Value]) -> list[Extent]:
    return [extent for value in values for extent in _trace(low, value, path)]


def _chosen(low: Lowering, op: ir.Operation, path: set[ir.Value]) -> list[Extent]:
    condition, first, second = list(op.operands)
    found, others = _trace(low, first, path), _trace(low, second, path)
    if found == others:
        return found
    if len(found) != 1 or len(others) != 1 or condition not in low.values:
        return [*found, *others]
    c, x, y = low.scalar(condition), found[0], others[0]
    pairs = ((x.number, y.number), (x.base, y.base), (x.size, y.size))
    return [Extent(*(arith.select(c, p, q) for p, q in pairs))]


def _incoming(low: Lowering, value: ir.Value, block: ir.Block) -> list[ir.Value]:
    """What a block's argument may be."""
    number, op = ir.BlockArgument(value).arg_number, block.owner.operation
    name = name_of(op)
    if name == "scf.for" and number > 0:
        return [op.operands[number + 2], _yielded(op, 0)[number - 1]]
    if name == "scf.while":
        if block == op.regions[0].blocks[0]:
            return [op.operands[number], _yielded(op, 1)[number]]
        return [_yielded(op, 0)[number + 1]]
    return [low.callers[value]] if value in low.callers else []


def _sources(op: ir.Operation, value: ir.Value) -> list[ir.Value]:
    """What an op's pointer comes from."""
    name, number = name_of(op), ir.OpResult(value).result_number
    if name == "scf.for":
        return [op.operands[number + 3], _yielded(op, 0)[number]]
    if name == "scf.while":
        return [_yielded(op, 0)[number + 1]]
    if name == "scf.if":
        return [_yielded(op, region)[number] for region in range(len(op.regions))]
    if name == "tt.load":
        return []  # pointers in memory lead anywhere
    return [v for v in op.operands if tt.is_ptr(tt.element_of(v.type))]


def _yielded(op: ir.Operation, region: int) -> list[ir.Value]:
    operations = list(op.regions[region].blocks[0].operations)
    return list(operations[-1].operation.operands)
