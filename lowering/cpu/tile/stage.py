# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Operands that the lanes stride over: blocks of them, transposed in registers, wait in scratch memory.

A nest whose lane is not the dim that an operand is contiguous in walks that dim in tiles (`Nest.tile`). A strided load
of each vector would take its elements one by one. Instead a tile is brought into scratch memory before its loop, in
squares of registers: rows are loaded along memory, transposed by shuffles, and stored with the lanes as neighbours,
where the loop finds them. Both sides of the square are in the first-level cache.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.transpose import transpose_registers

if TYPE_CHECKING:
    from kiln.lowering.cpu.tile.memory import Memory

__all__ = ["Stage", "square"]


@dataclass
class Stage:
    """The tile loop that is open, or about to be.

    dim: its dim; tile: the dim that counts tiles, of `size` elements each; depth: the scope around the loop.
    places: where scratch memory holds an operand's tile, by (operand, element offset, lanes), in bytes.
    """

    dim: int
    tile: int
    size: int
    depth: int = 0
    places: dict[tuple[int, ir.AffineExpr, int], ir.AffineExpr] = field(
        default_factory=dict[tuple[int, ir.AffineExpr, int], ir.AffineExpr]
    )

    def load(self, e: "Memory", position: int, offset: ir.AffineExpr) -> ir.Value | None:
        """The lanes' elements of operand `position` at `offset`, from scratch memory; None where they are not of a
        tile: what is contiguous along the lanes, or not contiguous along the tile, is loaded as it lies.
        """
        width = e.lane.width
        if e.lane.dim is None or width == 1:
            return None
        linear = affine.linear_coefficients(offset)
        if linear is None or not {self.dim, e.lane.dim} <= linear[1].keys():
            return None
        one = ir.AffineConstantExpr.get(1)
        if linear[1][self.dim] != one or linear[1][e.lane.dim] == one:
            return None
        key = (position, offset, width)
        memo = e.scopes[self.depth].memo
        if key not in memo:
            with e.at(self.depth):
                memo[key] = self._bring(e, key, linear[1][e.lane.dim])
        b = e.b
        row = b.subi(e.values[self.dim], e.index(self._first()))
        return b.vload(memo[key], b.muli(row, width), width)

    def _first(self) -> ir.AffineExpr:
        """The tile's first value of the dim."""
        return ir.AffineDimExpr.get(self.tile) * self.size

    def _bring(self, e: "Memory", key: tuple[int, ir.AffineExpr, int], stride: ir.AffineExpr) -> ir.Value:
        """Transposes a tile of an operand: element (d, lane) of it is at d * width + lane of the memref returned."""
        b, lane = e.b, e.lane
        position, offset, width = key
        assert lane.dim is not None
        source = e.buffers[position]
        element = ir.MemRefType(source.type).element_type
        count = ir.AffineConstantExpr.get(self.size * width)
        if key not in self.places:
            self.places[key] = e.scratch.reserve(count, element)
        target = e.scratch.view(e, self.places[key], count, element)
        begin = e.index(e.loops.simplify(affine.substitute(offset, {self.dim: self._first()})))
        step = e.index(stride)
        w = min(width, square(element))
        length = b.mini(self.size, b.subi(e.index(e.loops.extents[self.dim]), e.index(self._first())))
        extent = affine.constant_of(e.loops.extents[self.dim])
        whole = length if extent is not None and extent % w == 0 else b.round_down(length, w)
        # Lanes behind the last one repeat it: what is computed from them is never stored.
        last = None
        if lane.mask is not None:
            last = b.subi(b.subi(e.index(e.loops.extents[lane.dim]), e.values[lane.dim]), 1)

        def rows(first: Index) -> None:
            numbers = [b.addi(first, i) for i in range(w)]
            if last is not None:
                numbers = [b.mini(i, last) for i in numbers]
            starts = [b.addi(begin, b.muli(i, step)) for i in numbers]

            def block(at: Index, mask: ir.Value | None = None) -> None:
                loaded = [b.vload(source, b.addi(start, at), w, mask) for start in starts]
                for i, column in enumerate(transpose_registers(b, loaded)):
                    b.vstore(column, target, b.addi(b.muli(b.addi(at, i), width), first))

            b.for_(0, whole, w, block)
            if whole is not length:
                tail = b.subi(length, whole)
                b.if_(b.cmpi("sgt", tail, 0), lambda: block(whole, b.tail_mask(tail, w)))

        b.for_(0, width, w, rows)
        return target


def square(element: ir.Type) -> int:
    """Rows and columns that are transposed in registers at once: half of the registers, as wide as one at most."""
    target = isa.target()
    return min(target.vector_bytes * 8 // element.width, target.vector_registers // 2)
