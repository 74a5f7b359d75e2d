# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Operands and results that the lanes stride over: blocks of them, transposed in registers, wait in scratch memory.

A nest whose lane is not the dim that an operand or a result is contiguous in walks that dim in tiles (`Nest.tile`). A
strided load or store of each vector would take its elements one by one. Instead a tile of an operand is brought into
scratch memory before the tile's loop, in squares of registers: rows are loaded along memory, transposed by shuffles,
and stored with the lanes as neighbours, where the loop finds them. A tile of a result takes the same way back behind
the loop. Both sides of the square are in the first-level cache.

Behind the guards of pads and concatenations only the part of a tile that is in bounds is brought.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering import paths
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.builder import Builder, Condition, Index
from kiln.lowering.cpu.transpose import transpose_registers
from kiln.lowering.tile.scopes import Guard, Range

if TYPE_CHECKING:
    from kiln.lowering.cpu.tile.memory import Memory

__all__ = ["Stage", "square", "stride_across"]

_TAKEN = paths.group("cpu transposed tiles", "loaded", "loaded in bounds", "stored")
_constant = ir.AffineConstantExpr.get


def stride_across(offset: ir.AffineExpr, dim: int, lane: int) -> ir.AffineExpr | None:
    """How far apart lanes are in memory where neighbours along `dim` are neighbours there, and lanes are not."""
    linear = affine.linear_coefficients(offset)
    if linear is None or not {dim, lane} <= linear[1].keys():
        return None
    return linear[1][lane] if linear[1][dim] == _constant(1) and linear[1][lane] != _constant(1) else None


@dataclass
class _Part:
    """The part of a tile that is in bounds: its lanes and, counted from the tile's first, its values of the dim."""

    lanes: tuple[Index, Index]
    steps: tuple[Index, Index]
    exists: Condition = True


@dataclass(frozen=True)
class _Place:
    """A buffer at an element offset, where lanes are `stride` elements apart; in scratch memory `width` of them."""

    position: int
    offset: ir.AffineExpr
    stride: ir.AffineExpr
    width: int
    ranges: tuple[Range, ...] = ()


@dataclass
class Stage:
    """The tile loop that is open, or about to be.

    dim: its dim; tile: the dim that counts tiles, of `size` elements each; depth: the scope around the loop.
    """

    dim: int
    tile: int
    size: int
    depth: int = 0
    _reserved: dict[_Place, ir.AffineExpr] = field(default_factory=dict[_Place, ir.AffineExpr])
    _stored: dict[_Place, ir.Value] = field(default_factory=dict[_Place, ir.Value])

    def load(self, e: "Memory", position: int, offset: ir.AffineExpr, guard: Guard | None) -> ir.Value | None:
        """The lanes' elements of operand `position` at `offset`, from scratch memory; None where they are not of a
        tile: what is contiguous along the lanes, or not contiguous along the tile, is loaded as it lies.
        """
        ranges = guard.ranges if guard is not None else ()
        place = self._place(e, position, offset, ranges)
        if place is None or (guard is not None and not (ranges and all(self._bounds(e, x[0]) for x in ranges))):
            return None
        memo = e.scopes[self.depth].memo
        if place not in memo:
            _TAKEN("loaded in bounds" if ranges else "loaded")
            with e.at(self.depth):
                memo[place] = self._bring(e, place)
        # Outside of what was brought is what another tile has left.
        mask = e.mask(guard) if guard is not None else None
        return e.b.vload(memo[place], self._row(e, place), place.width, mask)

    def store(self, e: "Memory", position: int, offset: ir.AffineExpr, value: ir.Value) -> bool:
        """Keep the lanes' elements of result `position` until the loop is done, if they are of a tile."""
        place = self._place(e, position, offset)
        if place is None:
            return False
        if place not in self._stored:
            _TAKEN("stored")
            with e.at(self.depth):
                self._stored[place] = self._scratch(e, place)
        e.b.vstore(value, self._stored[place], self._row(e, place))
        return True

    def flush(self, e: "Memory") -> None:
        """Write what the loop has kept to the results."""
        for place, kept in self._stored.items():
            self._write(e, place, kept)
        self._stored.clear()

    def _place(
        self, e: "Memory", position: int, offset: ir.AffineExpr, ranges: tuple[Range, ...] = ()
    ) -> _Place | None:
        if e.lane.dim is None or e.lane.width == 1:
            return None
        stride = stride_across(offset, self.dim, e.lane.dim)
        return None if stride is None else _Place(position, offset, stride, e.lane.width, ranges)

    def _scratch(self, e: "Memory", place: _Place) -> ir.Value:
        """Scratch memory for a tile: its element (d, lane) is at d * width + lane. Where a piece of the tile is
        brought, its last square may end behind the tile.
        """
        element = ir.MemRefType(e.buffers[place.position].type).element_type
        more = square(element) if place.ranges else 0
        count = _constant((self.size + more) * place.width)
        if place not in self._reserved:
            self._reserved[place] = e.scratch.reserve(count, element)
        return e.scratch.view(e, self._reserved[place], count, element)

    def _row(self, e: "Memory", place: _Place) -> Index:
        return e.b.muli(e.b.subi(e.values[self.dim], e.index(self._first())), place.width)

    def _first(self) -> ir.AffineExpr:
        """The tile's first value of the dim."""
        return ir.AffineDimExpr.get(self.tile) * self.size

    def _begin(self, e: "Memory", place: _Place) -> Index:
        """Where the tile's first element of the first lane is."""
        return e.index(e.loops.simplify(affine.substitute(place.offset, {self.dim: self._first()})))

    def _length(self, e: "Memory") -> Index:
        """How many values of the dim the tile has."""
        return e.b.mini(self.size, e.b.subi(e.index(e.loops.extents[self.dim]), e.index(self._first())))

    def _lanes(self, e: "Memory") -> Index:
        """How many lanes there are."""
        b, lane = e.b, e.lane
        assert lane.dim is not None
        if lane.mask is None:
            return lane.width
        return b.mini(lane.width, b.subi(e.index(e.loops.extents[lane.dim]), e.values[lane.dim]))

    # -- bounds ----------------------------------------------------------------------------------------------

    def _bounds(self, e: "Memory", expr: ir.AffineExpr) -> frozenset[int] | None:
        """Which of the lanes and the tile an expression counts one by one, besides what holds for the whole tile; None
        where it depends on them in another way.
        """
        used = affine.dims_in(expr) & {self.dim, e.lane.dim}
        linear = affine.linear_coefficients(expr)
        if not used:
            return frozenset({-1})
        is_one = len(used) == 1 and linear is not None and all(linear[1][d] == _constant(1) for d in used)
        return used if is_one else None

    def _part(self, e: "Memory", ranges: Iterable[Range]) -> _Part:
        """What of the tile is within `ranges`."""
        b, lane = e.b, e.lane
        part = _Part((0, self._lanes(e)), (0, self._length(e)))
        for expr, low, high in ranges:
            used = self._bounds(e, expr)
            assert used is not None and lane.dim is not None
            start = {self.dim: self._first()} if self.dim in used else {}
            at = e.index(e.loops.simplify(affine.substitute(expr, start)))
            first, stop = b.subi(e.index(low), at), b.subi(e.index(high), at)
            if lane.dim in used:
                part.lanes = b.maxi(part.lanes[0], first), b.mini(part.lanes[1], stop)
            elif self.dim in used:
                part.steps = b.maxi(part.steps[0], first), b.mini(part.steps[1], stop)
            else:
                inside = b.andc(b.cmpi("sle", first, 0), b.cmpi("sgt", stop, 0))
                part.exists = b.andc(part.exists, inside)
        for low, high in (part.lanes, part.steps):
            part.exists = b.andc(part.exists, b.cmpi("slt", low, high))
        return part

    # -- tiles -----------------------------------------------------------------------------------------------

    def _bring(self, e: "Memory", place: _Place) -> ir.Value:
        """Transposes a tile of an operand into scratch memory, or what is in bounds of it."""
        b = e.b
        target, part = self._scratch(e, place), self._part(e, place.ranges)
        source, begin, step = e.buffers[place.position], self._begin(e, place), e.index(place.stride)
        w = min(place.width, square(ir.MemRefType(source.type).element_type))
        (low, high), (start, stop) = part.lanes, part.steps

        def rows(first: Index) -> None:
            # Lanes out of bounds repeat others: nothing is there, and what is computed from them is never stored.
            numbers = [b.mini(b.maxi(b.addi(first, i), low), b.subi(high, 1)) for i in range(w)]
            starts = [b.addi(begin, b.muli(i, step)) for i in numbers]

            def block(at: Index, count: Index) -> None:
                mask = b.mask_below(count, w)
                loaded = [b.vload(source, b.addi(x, at), w, mask) for x in starts]
                for i, column in enumerate(transpose_registers(b, loaded)):
                    b.vstore(column, target, b.addi(b.muli(b.addi(at, i), place.width), first))

            _blocks(b, start, stop, w, block)

        b.if_(part.exists, lambda: b.for_(0, place.width, w, rows) and None)
        return target

    def _write(self, e: "Memory", place: _Place, kept: ir.Value) -> None:
        """Transposes a tile of a result from scratch memory to where it belongs."""
        b = e.b
        target, begin, step = e.buffers[place.position], self._begin(e, place), e.index(place.stride)
        w, lanes = min(place.width, square(ir.MemRefType(target.type).element_type)), self._lanes(e)

        def rows(first: Index) -> None:
            def block(at: Index, count: Index) -> None:
                places = [b.addi(b.muli(b.addi(at, i), place.width), first) for i in range(w)]
                for i, line in enumerate(transpose_registers(b, [b.vload(kept, x, w) for x in places])):
                    number = b.addi(first, i)
                    # A lane out of bounds writes nothing, where the last one is.
                    steps = b.select_index(b.cmpi("slt", number, lanes), count, 0)
                    start = b.sum_(begin, b.muli(b.mini(number, b.subi(lanes, 1)), step), at)
                    b.vstore(line, target, start, b.mask_below(steps, w))

            _blocks(b, 0, self._length(e), w, block)

        b.for_(0, place.width, w, rows)


def _blocks(b: Builder, start: Index, stop: Index, width: int, block: Callable[[Index, Index], None]) -> None:
    """`block(first, count)` of `width` numbers each, and of the rest."""
    whole = b.addi(start, b.round_down(b.subi(stop, start), width))
    b.for_(start, whole, width, lambda at: block(at, width))
    rest = b.subi(stop, whole)
    b.if_(b.cmpi("sgt", rest, 0), lambda: block(whole, rest))


def square(element: ir.Type) -> int:
    """Rows and columns that are transposed in registers at once: half of the registers, as wide as one at most."""
    target = isa.target()
    return min(target.vector_bytes * 8 // element.width, target.vector_registers // 2)
