# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The pointwise ops behind a matrix product or attention, evaluated on the rows that these leave."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.walk import defining_op
from kiln.lowering.cpu.bf16 import LANES, has_pairs, narrow
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.scopes import Lane, Scope
from kiln.lowering.tile.access import Indices, compose_one, index_in_row, linear_offset


class FusedEpilogue:
    """Evaluates the fusion's roots for one row vector of sums (the `Epilogue` protocol of the matmul kernels).

    result: the value that the sums are; its index runs over batch, rows and columns, of the given extents, though its
    own dims may split the rows in another way.
    """

    def __init__(
        self,
        e: Evaluator,
        result: ir.Value,
        batch: Sequence[ir.AffineExpr],
        rows: ir.AffineExpr,
        columns: ir.AffineExpr,
    ):
        self.e, self.result, self.columns = e, result, columns
        self.batch = [e.loops.new(x) for x in batch]
        self.row = e.loops.new(rows)
        self.column = e.loops.new(columns)
        self.dims = {d.position for d in (*self.batch, self.row, self.column)}
        self.position = linear_offset([*self.batch, self.row], [*batch, rows])
        self.indices = self.at(self.result)

    def at(self, value: ir.Value) -> Indices:
        """The index of `value`, which has the product's elements in their order, for the current row and column."""
        index = index_in_row(self.position, self.column, self.columns, self.e.body.dims(value))
        return tuple(x if x == self.column else self.e.loops.simplify(x) for x in index)

    def apply(
        self, b: Builder, index: Sequence[Index], column: Index, width: int, acc: ir.Value, mask: ir.Value | None
    ) -> None:
        """Store every root for columns [column, column + width) of a row."""
        e = self.e
        saved = e.scopes
        e.scopes = [Scope(set(self.dims), b.entry.owner.operation)]
        e.values.update({d.position: v for d, v in zip((*self.batch, self.row), index, strict=True)})
        e.values[self.column.position] = column
        element = ir.RankedTensorType(self.result.type).element_type
        # A single column is read at 0 by an op behind another whose index was simplified.
        simple = tuple(e.loops.simplify(x) for x in self.indices)
        e.bound = dict.fromkeys(((self.result, self.indices), (self.result, simple)), b.cast_float(acc, element))
        with e.lanes(Lane(self.column.position, width, mask, aligned=False)):
            for i in e.body.mine:
                root = e.body.roots[i]
                point = self.at(root)
                e.store(len(e.body.tensors) + i, point, rounded(b, e.eval(root, point)))
        e.scopes = saved

    def destination(self, b: Builder, batch: Sequence[Index]) -> Place | None:
        """A result with unit column stride that can hold the sums until `apply` overwrites them."""
        e = self.e
        element = ir.RankedTensorType(self.result.type).element_type
        if not isinstance(element, (ir.F32Type, ir.F64Type)) and str(element) != "i32":
            return None
        zero, one = ir.AffineConstantExpr.get(0), ir.AffineConstantExpr.get(1)
        for i in e.body.mine:
            root = e.body.roots[i]
            if ir.RankedTensorType(root.type).element_type != element:
                continue
            offset = compose_one(e.layouts[len(e.body.tensors) + i], self.at(root), e.loops)
            linear = affine.linear_coefficients(offset)
            if linear is None or linear[1].get(self.column.position, zero) != one:
                continue
            coefficients = linear[1]
            saved, e.scopes = e.scopes, [Scope(set(self.dims), b.entry.owner.operation)]
            start = e.index(linear[0])
            for d, value in zip(self.batch, batch, strict=True):
                stride = coefficients.get(d.position)
                if stride is not None:
                    start = b.addi(start, b.muli(value, e.index(stride)))
            row = e.index(coefficients.get(self.row.position, zero))
            e.scopes = saved
            return Place(e.buffers[len(e.body.tensors) + i], start, row)
        return None

    @property
    def is_plain_store(self) -> bool:
        """Whether the product itself is the only root."""
        return [self.e.body.roots[i] for i in self.e.body.mine] == [self.result]


def rounded(b: Builder, value: ir.Value) -> ir.Value:
    """`value`; what is rounded to bf16 last, by the instruction for that where there is one. As the instruction for
    products of bf16 it takes subnormal numbers as zero.
    """
    rounding = defining_op(value)
    if rounding is None or rounding.name != "arith.truncf" or not isinstance(value.type, ir.VectorType):
        return value
    wide = rounding.operands[0]
    lanes, narrow_enough = value.type.shape[0], isinstance(ir.VectorType(wide.type).element_type, ir.F32Type)
    has_rounding = has_pairs(str(value.type.element_type), LANES, target())
    if lanes not in (LANES, 2 * LANES) or not narrow_enough or not has_rounding:
        return value
    return narrow(b, wide)
