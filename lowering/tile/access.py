# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which memory a value reads, as index expressions over loop dims: the walk of `Traversal` without the code.

The planner asks it which loops can be merged and which one should be the vector lane.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of, opdef
from kiln.lowering import paths
from kiln.lowering.tile.body import FusionBody, indexing_maps, invert, output_map

Indices = tuple[ir.AffineExpr, ...]
_BESIDE = paths.group("any results beside products", "no dim of a single column", "dims of size 1 behind columns")
UNKNOWN_EXTENT = 64
"""What a size known only at run time counts as in cost estimates."""


@dataclass(frozen=True)
class Access:
    """One load or store: element offset over loop dims, element size in bytes, loops that surround it, which it is.

    operand: position of the loaded operand among the body's tensors.
    share: of the iterations, how many make it: those in bounds of a pad, or of a piece of a concatenation.
    """

    offset: ir.AffineExpr
    bytes: int
    loops: frozenset[int]
    stored: bool = False
    operand: int | None = None
    share: float = 1.0


@dataclass
class Loops:
    """The loop dims of one kernel: extents by position; positions are never reused.

    pieces: of a loop that is cut at borders known at run time, between which two of them the code is that is emitted.
    """

    extents: list[ir.AffineExpr] = field(default_factory=list[ir.AffineExpr])
    pieces: dict[int, tuple[ir.AffineExpr, ir.AffineExpr]] = field(
        default_factory=dict[int, tuple[ir.AffineExpr, ir.AffineExpr]]
    )

    def new(self, extent: ir.AffineExpr) -> ir.AffineDimExpr:
        """A new innermost loop of this extent; returns its dim."""
        # Operators on expressions give the class of the operation even where it folded.
        self.extents.append(extent.maybe_downcast())
        return ir.AffineDimExpr.get(len(self.extents) - 1)

    def simplify(self, expr: ir.AffineExpr) -> ir.AffineExpr:
        """`expr` simplified under 0 <= d_i < extent_i."""
        return affine.simplify(expr, self.extents)

    def nonnegative(self, expr: ir.AffineExpr) -> bool:
        """Whether `expr >= 0` is provable, in the `pieces` of loops that code is emitted for."""
        extents, moved = dict(enumerate(self.extents)), dict[int, ir.AffineExpr]()
        for d, (low, high) in self.pieces.items():
            extents[d], moved[d] = affine.simplify(high - low), ir.AffineDimExpr.get(d) + low
        return affine.nonnegative(affine.substitute(expr, moved), extents)

    def is_inside(self, index: ir.AffineExpr, size: ir.AffineExpr) -> bool:
        """Whether `0 <= index < size` is provable."""
        return self.nonnegative(index) and self.nonnegative(size - 1 - index)

    def is_outside(self, index: ir.AffineExpr, size: ir.AffineExpr) -> bool:
        """Whether it is provable that `0 <= index < size` never holds."""
        return self.nonnegative(-1 - index) or self.nonnegative(index - size)

    def count(self, position: int) -> int:
        """Trip count, or a guess for a dynamic one."""
        return _count(self.extents[position])


@dataclass
class Accesses:
    """What evaluating some values touches.

    opaque: dims that occur in pads, concatenations or `linalg.index`, hence cannot be merged with others.
    reduced: the reductions met, each with the index it is asked for.
    inner: loop dims of the reductions met.
    """

    body: FusionBody
    loops: Loops
    layouts: Sequence[ir.AffineMap]
    found: list[Access] = field(default_factory=list[Access])
    opaque: set[int] = field(default_factory=set[int])
    reduced: list[tuple[ir.Value, Indices]] = field(default_factory=list[tuple[ir.Value, Indices]])
    inner: set[int] = field(default_factory=set[int])
    _seen: set[tuple[ir.Value, Indices]] = field(default_factory=set[tuple[ir.Value, Indices]])
    _share: float = 1.0

    def visit(self, value: ir.Value, indices: Indices, around: frozenset[int]) -> None:
        """Record the accesses of `value` at `indices` inside the loops `around`."""
        if (value, indices) in self._seen:
            return
        self._seen.add((value, indices))
        position = self.body.argument_position(value)
        if position is not None:
            self._touch(self.layouts[position], indices, value.type, around, operand=position)
            return
        op = value.owner.opview
        name = name_of(op)
        if name == "linalg.generic":
            self._visit_generic(op, value, indices, around)
        elif name == "kiln.view":
            m = self.body.local_map(op, "map")
            self.visit(op.operands[0], compose(m, indices, self.loops), around)
        elif (whole_piece := piece_at(self.body, op, indices, self.loops)) is not None:
            self.visit(*whole_piece, around)
        elif opdef(op).is_guarded:
            for e in indices:
                self.opaque |= affine.dims_in(e)
            pieces = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
            sizes = [math.prod(map(_count, self.body.dims(v))) for v in pieces]
            whole, outer = max(math.prod(map(_count, self.body.dims(value))), *sizes, 1), self._share
            if len(pieces) > 1:
                whole = max(sum(sizes), 1)
            for piece, size in zip(pieces, sizes, strict=True):
                self._share = outer * size / whole
                self.visit(piece, indices, around)
            self._share = outer

    def store(self, layout: ir.AffineMap, value: ir.Value, indices: Indices, around: frozenset[int]) -> None:
        """Record the store of a root."""
        self._touch(layout, indices, value.type, around, stored=True)

    def _touch(
        self,
        layout: ir.AffineMap,
        indices: Indices,
        type_: ir.Type,
        around: frozenset[int],
        stored: bool = False,
        operand: int | None = None,
    ) -> None:
        offset = compose_one(layout, indices, self.loops)
        self.found.append(Access(offset, element_bytes(type_), around, stored, operand, self._share))

    def visit_operands(self, op: ir.OpView, point: Sequence[ir.AffineExpr | None], around: frozenset[int]) -> None:
        """Record what one point of a `linalg.generic`'s iteration space reads."""
        if any(o.operation.name in ("linalg.index", "tensor.extract") for o in op.regions[0].blocks[0].operations):
            for e in point:
                if e is not None:
                    self.opaque |= affine.dims_in(e)
        outs = len(op.operands) - len(op.results)
        for k, (operand, m) in enumerate(zip(op.operands, indexing_maps(op), strict=True)):
            if k < outs and isinstance(operand.type, ir.RankedTensorType):
                self.visit(operand, compose(m, point, self.loops), around)

    def _visit_generic(self, op: ir.OpView, value: ir.Value, indices: Indices, around: frozenset[int]) -> None:
        point = invert(output_map(op), indices)
        reduction = self.body.reduction(op.results[0])
        extents = self.body.loop_extents(op)
        if reduction is not None:
            used = {d for e in indices for d in affine.dims_in(e)}
            self.reduced.append((value, indices))
            around = frozenset(used & around)
            for d in reduction.dims:
                fresh = self.loops.new(extents[d])
                self.inner.add(fresh.position)
                around |= {fresh.position}
                point[d] = fresh
        self.visit_operands(op, point, around)


def piece_at(body: FusionBody, op: ir.OpView, indices: Indices, loops: Loops) -> tuple[ir.Value, Indices] | None:
    """The operand of a concatenation that all values of an index lie in, as the extents of the loops tell, and the
    index into it; None where there is none.
    """
    if name_of(op) != "kiln.cat":
        return None
    dim = ir.IntegerAttr(op.operation.attributes["dim"]).value
    start: ir.AffineExpr = ir.AffineConstantExpr.get(0)
    for piece in op.operands:
        if not isinstance(piece.type, ir.RankedTensorType):
            continue
        size = body.dims(piece)[dim]
        at = loops.simplify(indices[dim] - start)
        if loops.is_inside(at, size):
            return piece, (*indices[:dim], at, *indices[dim + 1 :])
        start = loops.simplify(start + size)
    return None


def _count(extent: ir.AffineExpr) -> int:
    return extent.value if isinstance(extent, ir.AffineConstantExpr) else UNKNOWN_EXTENT


def compose(m: ir.AffineMap, indices: Sequence[ir.AffineExpr | None], loops: Loops) -> Indices:
    """Results of `m` at `indices`, simplified."""
    dims = {i: e for i, e in enumerate(indices) if e is not None}
    return tuple(loops.simplify(affine.substitute(e, dims)) for e in m.results)


def compose_one(m: ir.AffineMap, indices: Sequence[ir.AffineExpr], loops: Loops) -> ir.AffineExpr:
    """The single result of `m` (a layout) at `indices`."""
    return compose(m, indices, loops)[0]


def element_bytes(type_: ir.Type) -> int:
    """Size in memory of a tensor's element; booleans take one byte."""
    element = ir.RankedTensorType(type_).element_type
    if isinstance(element, ir.IndexType):
        return 8
    width = element.width if isinstance(element, (ir.IntegerType, ir.FloatType)) else 64
    return max(1, width // 8)


def memory_type(element: ir.Type) -> ir.Type:
    """Type of an element in memory."""
    if isinstance(element, ir.IntegerType) and element.width == 1:
        return ir.IntegerType.get_signless(8)
    return element


def linear_offset(indices: Sequence[ir.AffineExpr], sizes: Sequence[ir.AffineExpr]) -> ir.AffineExpr:
    """Row-major offset."""
    offset: ir.AffineExpr = ir.AffineConstantExpr.get(0)
    for e, size in zip(indices, sizes, strict=True):
        offset = offset * size + e
    return offset


def indices_at(offset: ir.AffineExpr, sizes: Sequence[ir.AffineExpr]) -> list[ir.AffineExpr]:
    """Indices at a row-major offset: the inverse of `linear_offset`."""
    indices: list[ir.AffineExpr] = []
    for size in reversed(sizes[1:]):
        indices.insert(0, ir.AffineExpr.get_mod(offset, size))
        offset = ir.AffineExpr.get_floor_div(offset, size)
    return [offset, *indices] if sizes else []


def index_among(
    indices: Sequence[ir.AffineExpr], sizes: Sequence[ir.AffineExpr], wanted: Sequence[ir.AffineExpr]
) -> Indices:
    """The index of the same element of a tensor whose sizes, `wanted`, are `sizes` but for dims of size 1: a value for
    each channel behind one image of one pixel.
    """
    if list(sizes) == list(wanted):
        return tuple(indices)
    walked = iter(index for index, size in zip(indices, sizes, strict=True) if affine.constant_of(size) != 1)
    zero = ir.AffineConstantExpr.get(0)
    return tuple(zero if affine.constant_of(size) == 1 else next(walked) for size in wanted)


def index_in_row(
    position: ir.AffineExpr, column: ir.AffineExpr, columns: ir.AffineExpr, wanted: Sequence[ir.AffineExpr]
) -> Indices:
    """The index of the element in `column` of the row at `position` (row-major among all rows) of a tensor of sizes
    `wanted`, which has the elements of a product's result in their order: its rows may be split in another way, a
    single column may be no dim, and dims of size 1 may come last. Raises ValueError where its last dim but for these is
    not the columns.
    """
    one = ir.AffineConstantExpr.get(1)
    if columns == one and (not wanted or wanted[-1] != one):
        _BESIDE("no dim of a single column")
        return tuple(indices_at(position, wanted))
    if columns != one and wanted and wanted[-1] == one:
        _BESIDE("dims of size 1 behind columns")
        return (*index_in_row(position, column, columns, wanted[:-1]), ir.AffineConstantExpr.get(0))
    sizes = affine.constant_of(wanted[-1]), affine.constant_of(columns)
    if None not in sizes and sizes[0] != sizes[1]:
        raise ValueError(f"a value of {wanted[-1]} columns beside a product of {columns}")
    return (*indices_at(position, wanted[:-1]), column)


def lane_coefficient(expr: ir.AffineExpr, dim: int, multiple_of: int) -> tuple[ir.AffineExpr, ir.AffineExpr] | None:
    """`expr` as base + coefficient * lane where d_dim = block + lane, block a multiple of `multiple_of` = lanes.

    Returns (coefficient, base) with d_dim standing for the block start in base, or None where the lanes do not
    lie on a line. Sound for floordiv and mod by multiples of the lane count when the rest is a multiple too, and of
    what is one number for all lanes.
    """
    zero, one = ir.AffineConstantExpr.get(0), ir.AffineConstantExpr.get(1)
    expr = expr.maybe_downcast()
    if dim not in affine.dims_in(expr):
        return zero, expr
    if isinstance(expr, ir.AffineDimExpr):
        return one, expr
    left = lane_coefficient(expr.lhs, dim, multiple_of)
    right = lane_coefficient(expr.rhs, dim, multiple_of)
    if left is None or right is None:
        return None
    if isinstance(expr, ir.AffineAddExpr):
        return left[0] + right[0], left[1] + right[1]
    if isinstance(expr, ir.AffineMulExpr):
        if right[0] == zero:
            return left[0] * right[1], expr
        return (right[0] * left[1], expr) if left[0] == zero else None
    if left[0] == zero and right[0] == zero:  # one quotient or remainder for all lanes
        return zero, expr
    k = expr.rhs
    aligned = isinstance(k, ir.AffineConstantExpr) and k.value % multiple_of == 0
    if not aligned or left[0] != one or not is_multiple(left[1], multiple_of, dim):
        return None
    if isinstance(expr, ir.AffineFloorDivExpr):
        return zero, expr
    return (one, expr) if isinstance(expr, ir.AffineModExpr) else None


def is_multiple(expr: ir.AffineExpr, k: int, aligned_dim: int) -> bool:
    """Whether `expr` is provably a multiple of k, given that d_aligned_dim is one."""
    expr = expr.maybe_downcast()
    if k == 1:
        return True
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value % k == 0
    if isinstance(expr, ir.AffineDimExpr):
        return expr.position == aligned_dim
    if isinstance(expr, ir.AffineAddExpr):
        return is_multiple(expr.lhs, k, aligned_dim) and is_multiple(expr.rhs, k, aligned_dim)
    if isinstance(expr, ir.AffineMulExpr):
        return is_multiple(expr.lhs, k, aligned_dim) or is_multiple(expr.rhs, k, aligned_dim)
    if isinstance(expr, ir.AffineModExpr):
        return is_multiple(expr.lhs, k, aligned_dim) and is_multiple(expr.rhs, k, aligned_dim)
    return False
