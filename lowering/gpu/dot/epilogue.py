# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The pointwise ops behind a product, attention or convolution, evaluated on the tile that these leave."""

from collections.abc import Callable, Sequence

from torch_mlir import ir

from kiln.dialects import tt
from kiln.errors import UnsupportedError
from kiln.lowering.gpu.builder import Builder, Condition, Index, is_float
from kiln.lowering.gpu.dot.operands import Line, split_batch
from kiln.lowering.gpu.tile.evaluator import Evaluator
from kiln.lowering.gpu.tile.scopes import Axis
from kiln.lowering.tile.access import Indices, index_among, index_in_row, linear_offset
from kiln.lowering.tile.scopes import Scope


class FusedEpilogue:
    """Stores the fusion's roots for a tile of results whose index runs over batch, rows and columns, of the given
    extents, though their own dims may split the rows in another way (the `Epilogue` protocol).
    """

    def __init__(
        self,
        e: Evaluator,
        results: Sequence[ir.Value],
        batch: Sequence[ir.AffineExpr],
        rows: ir.AffineExpr,
        columns: ir.AffineExpr,
    ):
        _check(e, results[0])
        self.e, self.results, self.rows, self.columns = e, list(results), rows, columns
        self.batch = [e.loops.new(x) for x in batch]
        self.row = e.loops.new(_at_least_two(rows))
        self.column = e.loops.new(_at_least_two(columns))
        self.position = linear_offset([*self.batch, self.row], [*batch, rows])

    def at(self, value: ir.Value) -> Indices:
        """The index of `value`, which has the result's elements in their order, at the current row and column."""
        index = index_in_row(self.position, self.column, self.columns, self.e.body.dims(value))
        return tuple(self.e.loops.simplify(x) for x in index)

    def apply(self, b: Builder, batch: Sequence[Index], rows: Line, columns: Line, sums: Sequence[ir.Value]) -> None:
        """Evaluate and store every root for one tile."""
        scalars = {d.position: v for d, v in zip(self.batch, batch, strict=True)}
        lines = {self.row.position: (0, rows), self.column.position: (1, columns)}
        with_tile(self.e, scalars, lines, tt.shape_of(sums[0].type))
        bound = [(result, self.at(result), total) for result, total in zip(self.results, sums, strict=True)]
        store_roots(b, self.e, bound, self.at, _single(b, (self.rows, rows), (self.columns, columns)))


class ConvolutionEpilogue:
    """The same for a result [N, C, *spatial]: rows are its images and positions, columns its channels."""

    def __init__(self, e: Evaluator, result: ir.Value):
        _check(e, result)
        self.e, self.result = e, result
        self.sizes = e.body.dims(result)
        self.dims = [e.loops.new(_at_least_two(size)) for size in self.sizes]

    def at(self, value: ir.Value) -> Indices:
        """The index of a value of the result's shape, but for dims of size 1."""
        found = index_among(self.dims, self.sizes, self.e.body.dims(value))
        return tuple(self.e.loops.simplify(x) for x in found)

    def apply(self, b: Builder, batch: Sequence[Index], rows: Line, columns: Line, sums: Sequence[ir.Value]) -> None:
        """Evaluate and store every root for one tile."""
        sizes = [self.e.index(x) for x in (self.sizes[0], *self.sizes[2:])]
        self.apply_at(b, split_batch(b, rows.index, sizes), rows.mask, columns, sums[0])

    def apply_at(self, b: Builder, position: Sequence[Index], mask: Condition, columns: Line, sums: ir.Value) -> None:
        """The same where the images and positions of the rows, blocks [R, 1], are known. mask: which exist."""
        rows = [Line(0, index, mask) for index in position]
        dims = [self.dims[0], *self.dims[2:]]
        lines = {d.position: (0, along) for d, along in zip(dims, rows, strict=True)}
        lines[self.dims[1].position] = (1, columns)
        count = self.sizes[0]
        for size in self.sizes[2:]:
            count = count * size
        condition = _single(b, (count, rows[0]), (self.sizes[1], columns))
        with_tile(self.e, {}, lines, tt.shape_of(sums.type))
        store_roots(b, self.e, [(self.result, self.at(self.result), sums)], self.at, condition)


def with_tile(
    e: Evaluator, scalars: dict[int, Index], lines: dict[int, tuple[int, Line]], shape: Sequence[int]
) -> None:
    """Point the evaluator to a tile of this shape at the insertion point; nothing evaluated before is used again.

    scalars: dims that are the same for the whole tile; lines: those along an axis of it.
    """
    e.axes = [Axis(size) for size in shape]
    e.scopes = [Scope({*scalars, *lines}, ir.InsertionPoint.current.block.owner.operation)]
    e.values.update(scalars)
    for dim, (axis, positions) in lines.items():
        e.values[dim] = positions.index
        if shape[axis] > 1:
            e.axis_of[dim] = axis
        if isinstance(positions.mask, ir.Value):
            e.axes[axis].mask = positions.mask


def store_roots(
    b: Builder,
    e: Evaluator,
    bound: Sequence[tuple[ir.Value, Indices, ir.Value]],
    at: Callable[[ir.Value], Indices],
    condition: Condition,
) -> None:
    """Bind (result, index, sums), the sums as the result's element type, and store what the fusion yields,
    where the condition holds.
    """
    e.bound = {}
    for result, point, sums in bound:
        element = ir.RankedTensorType(result.type).element_type
        rounded = b.cast_float(sums, element) if is_float(element) else b.cast_int(sums, element)
        # A dim of one element is read at 0 through a view that drops it, else at the tile's position.
        zero = ir.AffineConstantExpr.get(0)
        single = tuple(
            zero if n == ir.AffineConstantExpr.get(1) else x for x, n in zip(point, e.body.dims(result), strict=True)
        )
        e.bound[result, point] = e.bound[result, single] = rounded
    for i in e.body.mine:
        root = e.body.roots[i]
        index = at(root)
        e.store(len(e.body.tensors) + i, index, e.eval(root, index), condition)


def _single(b: Builder, *axes: tuple[ir.AffineExpr, Line]) -> Condition:
    """Which positions exist along axes of a single element. No address depends on these, so that no mask follows from
    it: every position of the axis would be written to the same place.
    """
    condition: Condition = True
    for extent, positions in axes:
        if extent.maybe_downcast() == ir.AffineConstantExpr.get(1):
            condition = b.andc(condition, positions.mask)
    return condition


def _at_least_two(extent: ir.AffineExpr) -> ir.AffineExpr:
    """An extent for a dim along an axis of the tile: where it is 1, the axis is longer, and the dim no constant."""
    return ir.AffineConstantExpr.get(2) if extent == ir.AffineConstantExpr.get(1) else extent


def _check(e: Evaluator, result: ir.Value) -> None:
    if e.body.has_reductions:
        op = result.owner
        raise UnsupportedError(op.operation.name, str(op.location), "a reduction in the same GPU kernel")
