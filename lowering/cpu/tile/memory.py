# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Loads and stores of a kernel: addresses from layouts, vectors, gathers, masks, scratch memory."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from kiln.dialects import affine
from kiln.dialects.elements import element_of, with_element
from kiln.lowering import paths
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.builder import Builder, Index, is_interleaved
from kiln.lowering.cpu.tile.lines import Bend, Piece, pieces
from kiln.lowering.cpu.tile.row_stage import RowStage
from kiln.lowering.cpu.tile.scopes import Scopes
from kiln.lowering.cpu.tile.stage import Stage
from kiln.lowering.tile.access import Indices, compose_one, linear_offset, memory_type
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.scopes import Guard

_TAKEN = paths.group("cpu loads", "two lines", "interleaved", "backwards", "pieces", "behind a branch")


class Memory(Scopes):
    """Access to a kernel's buffers.

    buffers: one 1-D memref per tensor operand of the fusion, then per result.
    layouts: element offset of each of them as an affine map over its indices and the fusion's symbols.
    stage: the tiles of operands that the lanes stride over, inside of a loop over one.
    """

    stage: "Stage | RowStage | None" = None

    def __init__(
        self,
        b: Builder,
        body: FusionBody,
        buffers: Sequence[ir.Value],
        layouts: Sequence[ir.AffineMap],
        symbols: Sequence[Index],
        scratch: "Scratch",
    ):
        super().__init__(b, symbols)
        self.body, self.buffers, self.layouts, self.scratch = body, list(buffers), list(layouts), scratch

    def load(self, position: int, indices: Indices, guard: Guard | None) -> ir.Value:
        """An element (uniform) or the lanes' elements of a buffer."""
        buffer = self.buffers[position]
        offset = compose_one(self.layouts[position], indices, self.loops)
        type_ = ir.RankedTensorType(self.body.tensors[position].type).element_type
        staged = self.stage.load(self, position, offset, guard) if self.stage is not None else None
        return self.boolean(staged if staged is not None else self.load_at(buffer, offset, guard), type_)

    def load_at(self, buffer: ir.Value, offset: ir.AffineExpr, guard: Guard | None) -> ir.Value:
        """The element, or the lanes, at an offset of a buffer; where the guard fails, a zero."""
        b, lane = self.b, self.lane
        if self.is_uniform([offset]):
            return self.load_one(buffer, self.index(offset), guard)
        assert lane.dim is not None
        mask = self.mask(guard)
        linear = lane.line(offset)
        if linear is not None:
            stride, base = linear
            by = affine.constant_of(stride)
            element = ir.MemRefType(buffer.type).element_type
            if guard is not None and by == 1 and self._branches(guard):
                return self._load_if(buffer, self.index(base), guard)
            if by is not None and is_interleaved(by, lane.width, element):
                if guard is not None and by != 2:
                    # Lanes that are off may be far from the buffer: loads of none are slow where nothing is mapped.
                    return self.gather(buffer, self.index_value(offset), mask)
                _TAKEN("interleaved" if by > 1 else "backwards")
            return b.gather(buffer, self.index(base), self.index(stride), lane.width, mask, _phase(base, stride))
        pattern = lane.pattern(offset)
        parts = pieces(pattern[1]) if pattern is not None else None
        if pattern is not None and parts is not None:
            return self._load_pieces(buffer, self.index(pattern[0]), parts, mask)
        bend = lane.bend(offset)
        if bend is not None and bend.stride == ir.AffineConstantExpr.get(1):
            return self._load_bent(buffer, bend, mask)
        return self.gather(buffer, self.index_value(offset), mask)

    def _branches(self, guard: Guard) -> bool:
        """Whether a guard of all lanes at once is a branch: without registers for masks, a load of no lanes and the
        choice of what stands for them take as long as several loads.
        """
        alike = not isinstance(guard.mask, bool) and not isinstance(guard.mask.type, ir.VectorType)
        return alike and self.lane.mask is None and not isa.target().has_masks

    def _load_if(self, buffer: ir.Value, base: Index, guard: Guard) -> ir.Value:
        """Neighbours in memory, or zeros where the guard fails."""
        _TAKEN("behind a branch")
        b, width = self.b, self.lane.width
        type_ = b.vec(width, ir.MemRefType(buffer.type).element_type)
        return b.if_(guard.mask, lambda: [b.vload(buffer, base, width, None)], lambda: [b.zero(type_)], [type_])[0]

    def _load_bent(self, buffer: ir.Value, bend: Bend, mask: ir.Value | None) -> ir.Value:
        """Neighbours up to where their line jumps, and neighbours from there on."""
        b, width = self.b, self.lane.width
        base, at = self.index(bend.base), self.index(bend.at)
        below = b.mask_below(at, width)
        if below is None:
            return b.vload(buffer, base, width, mask)
        _TAKEN("two lines")
        above = arith.xori(below, b.int_(-1, below.type))
        if mask is not None:
            below, above = arith.andi(below, mask), arith.andi(above, mask)
        first = b.vload(buffer, base, width, below)
        # A load of no lanes still takes long where nothing is mapped: it stays where the first one was.
        jumped = b.select_index(b.cmpi("slt", at, width), b.addi(base, self.index(bend.jump)), base)
        return b.vload(buffer, jumped, width, above, first)

    def _load_pieces(self, buffer: ir.Value, base: Index, parts: Sequence[Piece], mask: ir.Value | None) -> ir.Value:
        """What lanes read of a few vectors, each element by up to a few lanes."""
        _TAKEN("pieces")
        b, width = self.b, self.lane.width
        result: ir.Value | None = None
        for piece in parts:
            count = 1 << (piece.count - 1).bit_length()
            readers = [*piece.lanes, *[()] * (count - piece.count)]
            on = b.mask_of([i < piece.count for i in range(count)]) if mask is None and count > piece.count else None
            if mask is not None:
                off = b.zero(mask.type)
                for turn in range(max(map(len, readers))):
                    wanted = [lanes[turn] if turn < len(lanes) else width for lanes in readers]
                    one = b.shuffle(mask, off, wanted)
                    on = one if on is None else arith.ori(on, one)
            part = b.vload(buffer, b.addi(base, piece.start), count, on)
            place = {lane: i for i, lanes in enumerate(readers) for lane in lanes}
            spread = b.shuffle(part, part, [place.get(lane, 0) for lane in range(width)])
            keep = [lane + width * (lane in place) for lane in range(width)]
            result = spread if result is None else b.shuffle(result, spread, keep)
        assert result is not None
        return result if mask is None else b.select(mask, result, b.zero(result.type))

    def gather(self, buffer: ir.Value, offsets: ir.Value, mask: ir.Value | None) -> ir.Value:
        """Elements at a vector of offsets."""
        b = self.b
        type_ = b.vec(self.lane.width, ir.MemRefType(buffer.type).element_type)
        if mask is None:
            mask = b.constant(
                ir.DenseElementsAttr.get_splat(b.vec(self.lane.width, b.i1), ir.BoolAttr.get(True)),
                b.vec(self.lane.width, b.i1),
            )
        return vector.gather(type_, buffer, [b.value(0)], offsets, mask, b.zero(type_))

    def load_one(self, buffer: ir.Value, offset: Index, guard: Guard | None) -> ir.Value:
        """A uniform element; behind a guard, only if a lane is in bounds."""
        if guard is None:
            return self.b.load(buffer, offset)
        wanted = self.b.condition(guard.mask)
        if isinstance(wanted.type, ir.VectorType):
            wanted = self.b.reduce("or", wanted)
        one = vector.broadcast(self.b.vec(1, self.b.i1), wanted)
        return self.b.extract(self.b.vload(buffer, offset, 1, one), 0)

    def store(self, position: int, indices: Indices, value: ir.Value) -> None:
        """Write a result's element, or its lanes' elements."""
        b, lane = self.b, self.lane
        buffer = self.buffers[position]
        offset = compose_one(self.layouts[position], indices, self.loops)
        value = self.stored(value)
        if self.is_uniform([offset]):
            if isinstance(value.type, ir.VectorType):
                value = b.extract(value, 0)
            b.store(value, buffer, self.index(offset))
            return
        assert lane.dim is not None
        value = self.splat(value)
        linear = lane.line(offset)
        if linear is not None and linear[0] == ir.AffineConstantExpr.get(1):
            b.vstore(value, buffer, self.index(linear[1]), lane.mask)
            return
        if self.stage is not None and self.stage.store(self, position, offset, value):
            return
        full = ir.DenseElementsAttr.get_splat(b.vec(lane.width, b.i1), ir.BoolAttr.get(True))
        mask = lane.mask if lane.mask is not None else b.constant(full, b.vec(lane.width, b.i1))
        vector.ScatterOp(None, buffer, [b.value(0)], self.index_value(offset), mask, value)

    def stored(self, value: ir.Value) -> ir.Value:
        """A value as it is in memory."""
        b = self.b
        return arith.extui(with_element(value.type, b.i8), value) if element_of(value.type) == b.i1 else value

    def boolean(self, value: ir.Value, element: ir.Type) -> ir.Value:
        """Booleans are bytes in memory and i1 in registers."""
        if element == self.b.i1:
            return arith.cmpi(1, value, self.b.zero(value.type))
        return value

    def reload(self, value: ir.Value, indices: Indices) -> ir.Value | None:
        """A value that an outer scope has spilled, at these indices; None if none has."""
        for scope in reversed(self.scopes):
            kept = scope.spilled.get(value)
            if kept is not None and all(indices[i] == e for i, e in kept.fixed.items()):
                offset = linear_offset([indices[i] for i in kept.free], kept.sizes)
                loaded = self.load_at(kept.buffer, self.loops.simplify(offset), None)
                return self.boolean(loaded, ir.RankedTensorType(value.type).element_type)
        return None

    def load_line(
        self, buffer: ir.Value, layout: ir.AffineMap, at: Sequence[Any], guard: Guard | None
    ) -> ir.Value | None:
        """Lanes that lie on a line of a layout, in one load; None where they do not."""
        line = self.line(layout, at)
        if line is None:
            return None
        return self.b.gather(buffer, line[0], line[1], self.lane.width, self.mask(guard))

    def line(self, layout: ir.AffineMap, at: Sequence[Any]) -> tuple[Index, Index] | None:
        """Where the first lane is in memory and how far the next one is from it, at indices of which some are values
        found at run time; None where lanes do not lie on a line.
        """
        linear = affine.linear_coefficients(layout.results[0])
        if linear is None or self.lane.dim is None:
            return None
        base: Index = self.index(linear[0])
        along: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        for d, coefficient in linear[1].items():
            if isinstance(at[d], ir.AffineExpr):
                along = along + at[d] * coefficient
            elif isinstance(at[d].type, ir.VectorType):
                return None
            else:
                base = self.b.addi(base, self.b.muli(at[d], self.index(coefficient)))
        line = self.lane.line(self.loops.simplify(along))
        if line is None or self.is_uniform([along]):
            return None
        return self.b.addi(base, self.index(line[1])), self.index(line[0])


def _phase(base: ir.AffineExpr, stride: ir.AffineExpr) -> int:
    """How many elements before `base`, which is not negative, the last multiple of the stride is."""
    by, linear = affine.constant_of(stride), affine.linear_coefficients(base)
    first = affine.constant_of(linear[0]) if linear is not None else None
    if not by or linear is None or first is None or not all(affine.is_multiple(c, by) for c in linear[1].values()):
        return 0
    return first % by


class Scratch:
    """This thread's private memory: typed areas given out at symbolic offsets, each aligned to 64 bytes."""

    def __init__(self, memory: ir.Value):
        self.memory = memory
        self.bytes: ir.AffineExpr = ir.AffineConstantExpr.get(0)

    def allocate(self, e: Scopes, count: ir.AffineExpr, element: ir.Type) -> ir.Value:
        """A memref<?xelement> of `count` elements."""
        return self.view(e, self.reserve(count, element), count, element)

    def reserve(self, count: ir.AffineExpr, element: ir.Type) -> ir.AffineExpr:
        """Room for `count` elements, at this many bytes from the start."""
        stored = memory_type(element)
        size = 8 if isinstance(stored, ir.IndexType) else stored.width // 8
        offset = self.bytes
        self.bytes = self.bytes + ir.AffineExpr.get_ceil_div(count * size, 64) * 64
        return offset

    def view(self, e: Scopes, offset: ir.AffineExpr, count: ir.AffineExpr, element: ir.Type) -> ir.Value:
        """A memref<?xelement> of what was reserved at `offset`."""
        return e.b.view(self.memory, e.index(offset), e.index(count), memory_type(element))
