# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Operands that reductions of rows stride over: blocks of rows, transposed in registers, wait in scratch memory.

Where an operand is contiguous along the dim that counts rows, as that of `x.t().softmax(-1)`, each vector of a row
would take its elements one by one, in every loop over the row. Instead the dim is walked in blocks of `ROWS`. Before
the rows of a block, an operand's part of it is loaded along memory, transposed by shuffles, and stored row by row in
scratch memory, where all loops over the rows find it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.tile.stage import square
from kiln.lowering.cpu.transpose import transpose_registers
from kiln.lowering.tile.access import Access, Loops, element_bytes
from kiln.lowering.tile.scopes import Guard

if TYPE_CHECKING:
    from kiln.lowering.cpu.tile.memory import Memory

__all__ = ["ROWS", "Block", "RowStage", "block_dim", "staged_block"]

ROWS = 16
"""Rows of a block: a vector's of floats."""
_constant = ir.AffineConstantExpr.get


@dataclass(frozen=True)
class Block:
    """`ROWS` rows of an operand, the same for all loops that read it.

    start: offset of a row's first element; step: elements of the operand from one of a row to the next; extent: how
    many a row has.
    """

    operand: int | None
    start: ir.AffineExpr
    step: int
    extent: int


def staged_block(access: Access, dim: int, along: int, outer: Collection[int], loops: Loops) -> Block | None:
    """The block that turns what a row along `along` would gather into neighbours, where rows are counted by `dim`, one
    of the `outer` loops; None where there is none.
    """
    if not affine.dims_in(access.offset) <= {*outer, dim, along}:
        return None  # an operand that changes within the block
    linear = affine.linear_coefficients(access.offset)
    extent = affine.constant_of(loops.extents[along])
    if linear is None or access.stored or extent is None or dim == along:
        return None
    if extent * ROWS * access.bytes > target().rules.loops.stage_bytes:
        return None
    next_row, step = (affine.constant_of(linear[1].get(d, _constant(0))) for d in (dim, along))
    if next_row != 1 or step in (0, 1, None) or loops.count(dim) < ROWS:
        return None
    start = loops.simplify(affine.substitute(access.offset, {along: _constant(0)}))
    return Block(access.operand, start, step, extent)


def block_dim(accesses: Iterable[Access], outer: Collection[int], rows: Iterable[int], loops: Loops) -> int | None:
    """The one of the `outer` dims that is walked in blocks, for operands that are read along dims of `rows`."""
    reads = list(accesses)
    along = list(rows)
    return next((d for d in outer if any(staged_block(a, d, r, outer, loops) for a in reads for r in along)), None)


@dataclass
class RowStage:
    """The loop over the rows of a block that is open, or about to be.

    dim: what counts rows; tile: the dim that counts blocks; depth: the scope around the rows' loop, inside of the
    `outer` ones.
    """

    dim: int
    tile: int
    outer: frozenset[int]
    depth: int = 0
    size: int = ROWS
    _places: dict[Block, ir.AffineExpr] = field(default_factory=dict[Block, ir.AffineExpr])

    @property
    def is_used(self) -> bool:
        """Whether any operand was transposed."""
        return bool(self._places)

    def load(self, e: "Memory", position: int, offset: ir.AffineExpr, guard: Guard | None) -> ir.Value | None:
        """The lanes' elements of operand `position` at `offset`, from scratch memory; None where they lie otherwise."""
        lane = e.lane
        if lane.dim is None or lane.width == 1 or guard is not None:
            return None
        access = Access(offset, element_bytes(e.body.tensors[position].type), frozenset(), operand=position)
        block = staged_block(access, self.dim, lane.dim, self.outer, e.loops)
        if block is None:
            return None
        memo = e.scopes[self.depth].memo
        if block not in memo:
            with e.at(self.depth):
                memo[block] = self._bring(e, block)
        b = e.b
        row = b.subi(e.values[self.dim], b.muli(e.values[self.tile], self.size))
        at = b.addi(b.muli(row, _pitch(block.extent)), e.values[lane.dim])
        return b.vload(memo[block], at, lane.width, lane.mask)

    def store(self, e: "Memory", position: int, offset: ir.AffineExpr, value: ir.Value) -> bool:
        """Results of rows are stored as they lie."""
        return False

    def _bring(self, e: "Memory", block: Block) -> ir.Value:
        """Transposes an operand's part of a block: element i of row r is at r * pitch + i of the memref returned."""
        assert block.operand is not None
        step, extent = block.step, block.extent
        b, source = e.b, e.buffers[block.operand]
        element = ir.MemRefType(source.type).element_type
        pitch = _pitch(extent)
        count = _constant(self.size * pitch)
        if block not in self._places:
            self._places[block] = e.scratch.reserve(count, element)
        target = e.scratch.view(e, self._places[block], count, element)
        w = square(element)
        first = b.muli(e.values[self.tile], self.size)
        left = b.subi(e.index(e.loops.extents[self.dim]), first)
        start = e.index(
            e.loops.simplify(affine.substitute(block.start, {self.dim: ir.AffineDimExpr.get(self.tile) * self.size}))
        )
        rows = affine.constant_of(e.loops.extents[self.dim])
        whole = rows is not None and rows % self.size == 0

        def columns(at: Index) -> None:
            # Elements behind the row's last one repeat it; the pitch has room for them.
            starts = [b.addi(start, b.muli(b.mini(b.addi(at, i), extent - 1), step)) for i in range(w)]
            for row in range(0, self.size, w):
                mask = None if whole else b.mask_below(b.mini(b.maxi(b.subi(left, row), 0), w), w)
                loaded = [b.vload(source, b.addi(x, row), w, mask) for x in starts]
                for i, values in enumerate(transpose_registers(b, loaded)):
                    b.vstore(values, target, b.addi((row + i) * pitch, at))

        b.for_(0, extent, w, columns)
        return target


def _pitch(extent: int) -> int:
    """Elements from row to row: whole vectors, and one more, so that rows are not all in one set of the cache."""
    return -(-extent // ROWS) * ROWS + ROWS
