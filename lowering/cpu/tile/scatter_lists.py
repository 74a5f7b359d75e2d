# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Writes of a thread that walks all elements, and whose slice of the result gets some of them.

Indices tell which ones. Between two threads a branch on random indices is mispredicted every other time, so a block of
elements is walked without a branch: each is put at the end of a list, which grows by the elements of the slice only.
Then what is listed is written, in the order of the loops.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.lowering.cpu.builder import Condition, Index
from kiln.lowering.cpu.tile import planning
from kiln.lowering.cpu.tile.scopes import Lane

if TYPE_CHECKING:
    from kiln.lowering.cpu.tile.scatter import Slice, Walk

__all__ = ["write_listed"]

_BLOCK = 256
"""Elements that are walked before those listed are written: lists of 3 KB. Calls take the same time with 32 to 4096 of
them (`epyc-experiments.json`).
"""


def write_listed(walk: "Walk", dim: int, slice_: "Slice") -> None:
    """The innermost loop, over `dim`: what a thread writes to its slice, block by block."""
    e, b = walk.e, walk.b
    extent = e.index(e.loops.extents[dim])

    def block(first: Index) -> None:
        lists = walk.scratch("lists", _BLOCK)
        stop = b.mini(b.addi(first, _BLOCK), extent)
        count = (_list_scalars if walk.lane is None else _list_lanes)(walk, dim, (first, stop), slice_, lists)
        b.for_(0, count, 1, lambda i: walk.write_at(b.load(lists[0], i), b.load(lists[1], i)))

    b.for_(0, extent, _BLOCK, block)


def _append(
    walk: "Walk", lists: Sequence[ir.Value], count: Index, offset: Index, value: ir.Value, mine: Condition
) -> Index:
    """`count`, or one more where an element is this thread's: others are overwritten by the next one."""
    b = walk.b
    b.store(b.value(offset), lists[0], count)
    b.store(value, lists[1], count)
    return b.addi(count, b.select_index(mine, 1, 0))


def _list_scalars(
    walk: "Walk", dim: int, block: tuple[Index, Index], slice_: "Slice", lists: Sequence[ir.Value]
) -> Index:
    e, b = walk.e, walk.b

    def one(i: Index, count: Sequence[ir.Value]) -> list[ir.Value]:
        with e.inside({dim: i}):
            at = walk.at()
            offset = e.apply(e.layouts[walk.number].results[0], at)
            return [b.value(_append(walk, lists, count[0], offset, walk.value(), walk.is_mine(at, slice_)))]

    return b.for_(*block, 1, one, [b.value(0)])[0]


def _list_lanes(
    walk: "Walk", dim: int, block: tuple[Index, Index], slice_: "Slice", lists: Sequence[ir.Value]
) -> Index:
    e, b, (first, stop) = walk.e, walk.b, block
    width = planning.lane_width(e, dim, 1)

    def lanes(i: Index, count: ir.Value, mask: ir.Value | None = None) -> list[ir.Value]:
        with e.inside({dim: i}), e.lanes(Lane(dim, width, mask)):
            offsets, values = walk.keep(*walk.lanes(slice_))

            def one(k: Index, n: Sequence[ir.Value]) -> list[ir.Value]:
                offset = b.load(offsets, k)
                mine = b.cmpi("sge", offset, 0)
                return [b.value(_append(walk, lists, n[0], offset, b.load(values, k), mine))]

            return b.for_(0, width, 1, one, [count])

    whole = b.addi(first, b.round_down(b.subi(stop, first), width))
    count = b.for_(first, whole, width, lambda i, n: lanes(i, n[0]), [b.value(0)])[0]
    left = b.subi(stop, whole)

    def behind() -> list[ir.Value]:
        return lanes(whole, count, b.mask_below(left, width))

    return b.if_(b.cmpi("sgt", left, 0), behind, lambda: [count], [b.index_type])[0]
