# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a matrix product in a fusion multiplies: sizes and strides over the fusion's symbols."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.errors import UnsupportedError
from kiln.lowering.gpu.dot.schedule import Known, ProductShape, known_product
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import offset_of, strides_of

_INTEGERS = ("i8", "i16", "i32", "i64")
_FLOATS = ("f64", "f32", "bf16", "f16", "f8E4M3FN", "f8E5M2")


@dataclass(frozen=True)
class Operand:
    """A matrix in memory: the position of the fusion's tensor, and its strides by [*batch, rows, columns], in elements.

    offset: of element [0, ..., 0].
    """

    position: int
    strides: tuple[ir.AffineExpr, ...]
    offset: ir.AffineExpr


@dataclass(frozen=True)
class Product:
    """result[*batch, m, n] = sum over k of lhs[*batch, m, k] * rhs[*batch, k, n].

    Batch dims through which the rows of lhs walk evenly, and that rhs lacks, are part of m: one tall product.
    """

    op: ir.OpView
    batch: tuple[ir.AffineExpr, ...]
    m: ir.AffineExpr
    n: ir.AffineExpr
    k: ir.AffineExpr
    lhs: Operand
    rhs: Operand
    element: str

    @property
    def sum_element(self) -> str:
        """Element type of the sums."""
        if self.element in _INTEGERS:
            return "i32" if self.element == "i8" else self.element
        return "f64" if self.element == "f64" else "f32"

    def shape(self, tf32: bool, hint: Callable[[ir.AffineExpr], int | None]) -> ProductShape:
        """What a schedule is chosen by. tf32: whether tensor cores may round f32 operands. hint: what a size is, or is
        likely to be.
        """

        def known(size: ir.AffineExpr) -> int | None:
            # A vector's schedules are for sizes that are 1, not for those that were.
            likely = hint(size)
            return likely if likely is None or likely > 1 else affine.constant_of(size)

        return ProductShape(
            batch=known_product([known(x) for x in self.batch]),
            m=known(self.m),
            n=known(self.n),
            k=known(self.k),
            lhs_strides=_pair(self.lhs),
            rhs_strides=_pair(self.rhs),
            dtype="tf32" if tf32 and self.element == "f32" else self.element,
        )


def _pair(operand: Operand) -> tuple[Known, Known]:
    return affine.constant_of(operand.strides[-2]), affine.constant_of(operand.strides[-1])


def find_products(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> list[Product]:
    """The products of a fusion (or of one part of it): several only of the same sizes and the same lhs.

    Raises UnsupportedError where they differ, for element types without a product and for operands that are computed in
    the fusion or are not strided.
    """
    ops = [op for op in body.operations if isinstance(op, kiln.MatmulOp)]
    for merge in (True, False):  # rows of one lhs follow each other from batch to batch, those of another do not
        found = [_product(body, layouts, op, merge) for op in ops]
        if all(_rows(other) == _rows(found[0]) for other in found):
            return found
    reason = "products of different rows in one kernel"
    raise UnsupportedError("kiln.matmul", str(found[-1].op.location), reason)


def _rows(product: Product) -> tuple[object, ...]:
    return product.batch, product.m, product.n, product.k, product.lhs


def _product(body: FusionBody, layouts: Sequence[ir.AffineMap], op: ir.OpView, merge: bool) -> Product:
    """merge: a batch whose rhs is one matrix becomes rows."""
    element = element_name(op.operands[0])
    if element not in _INTEGERS + _FLOATS:
        raise UnsupportedError("kiln.matmul", str(op.location), f"element type {element} on a GPU")
    dims = body.dims(op.results[0])
    batch, m, n = list(dims[:-2]), dims[-2], dims[-1]
    lhs_transposed, rhs_transposed = (_flag(op, name) for name in ("transpose_lhs", "transpose_rhs"))
    lhs = find_operand(body, layouts, op, 0, len(dims), lhs_transposed)
    rhs = find_operand(body, layouts, op, 1, len(dims), rhs_transposed)
    k = body.dims(op.operands[0])[-2 if lhs_transposed else -1]
    lhs_strides, rhs_strides = list(lhs.strides), list(rhs.strides)
    while merge and batch and rhs_strides[len(batch) - 1] == _zero():
        position = len(batch) - 1
        if not _same(lhs_strides[position], lhs_strides[-2] * m):
            break
        m = affine.simplify(m * batch.pop())
        del lhs_strides[position], rhs_strides[position]
    lhs = Operand(lhs.position, tuple(lhs_strides), lhs.offset)
    rhs = Operand(rhs.position, tuple(rhs_strides), rhs.offset)
    return Product(op, tuple(batch), m, n, k, lhs, rhs, element)


def find_operand(
    body: FusionBody, layouts: Sequence[ir.AffineMap], op: ir.OpView, number: int, rank: int, transposed: bool = False
) -> Operand:
    """Operand `number` of a named op as a strided tensor of `rank` dims; those that it lacks, in front, have stride 0.

    transposed: exchange the last two strides.
    """
    position = body.argument_position(op.operands[number])
    name = kiln.name_of(op.operation)
    if position is None:
        raise UnsupportedError(name, str(op.location), f"operand {number} is computed inside of the kernel")
    strides = strides_of(layouts[position], rank)
    # A dim of one element has no stride that matters.
    sizes = [None] * (rank - layouts[position].n_dims) + [affine.constant_of(x) for x in body.dims(op.operands[number])]
    strides = [
        _zero() if size == 1 and i < rank - 2 else s for i, (s, size) in enumerate(zip(strides, sizes, strict=True))
    ]
    if transposed:
        strides[-2], strides[-1] = strides[-1], strides[-2]
    return Operand(position, tuple(strides), offset_of(layouts[position]))


def element_name(value: ir.Value) -> str:
    """Name of a tensor value's element type: "f32", "i8"."""
    return str(ir.RankedTensorType(value.type).element_type)


def _zero() -> ir.AffineExpr:
    return ir.AffineConstantExpr.get(0)


def _same(a: ir.AffineExpr, b: ir.AffineExpr) -> bool:
    return affine.simplify(a - b) == _zero()


def _flag(op: ir.OpView, name: str) -> bool:
    return bool(ir.IntegerAttr(op.operation.attributes[name]).value)
