# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""ATen calls that a GPU's library does from the launch table, without Python between the kernels: matrix products.

`kiln.aten` of linear, mm, addmm (with GELU, too) and bmm, whose operands are matrices in memory. Everything else stays
a call of ATen.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.host.elements import dtype_name
from kiln.lowering.host.layout import Exprs, Layout, constant, is_constant, mul

__all__ = ["LIBRARY_KERNEL", "LibraryProduct", "library_product"]

LIBRARY_KERNEL = "cublasLtMatmul"
"""Name of the kernel that stands for the library in a plan."""

CANDIDATE = "candidate"
"""Attribute of a `kiln.aten`: which of the library's algorithms, by its place in the library's ranking."""

_TYPES = ("bfloat16", "float16", "float32", "float64")


@dataclass(frozen=True)
class LibraryProduct:
    """`operands`: which operands of the op are lhs, rhs and the bias, if any; the rest is as in `runtime.plan.Product`,
    over the function's symbols.
    """

    operands: tuple[int, ...]
    dtype: str
    sizes: Exprs
    lhs: Exprs
    rhs: Exprs
    result: Exprs
    candidate: int = 0
    activation: str = ""


def library_product(op: ir.Operation, operands: Sequence[Layout], result: Layout) -> LibraryProduct | None:
    """The product that an ATen call is, given where its tensors lie; None if it is none that the library takes."""
    name = ir.StringAttr(op.attributes["op"]).value
    order = _OPERANDS.get((name, len(operands)))
    arguments = json.loads(ir.StringAttr(op.attributes["args"]).value)
    plain = [{"operand": i} for i in range(len(operands))]
    named = json.loads(ir.StringAttr(op.attributes["kwargs"]).value)
    activated = name == _ACTIVATED
    if order is None or arguments != plain or named != ({"use_gelu": True} if activated else {}):
        return None
    dtype = dtype_name(op.results[0].type)
    tensors = list(op.operands)[: len(operands)]  # sizes follow
    if dtype not in _TYPES or any(dtype_name(v.type) != dtype for v in tensors):
        return None
    lhs, rhs, *bias = (operands[i] for i in order)
    if bias and (len(bias[0].shape) != 1 or not is_constant(bias[0].strides[0], 1)):
        return None
    if name == "aten.linear.default":
        if len(rhs.shape) != 2 or len(lhs.shape) < 2:
            return None
        turned = Layout(rhs.root, rhs.shape[::-1], rhs.strides[::-1], rhs.offset)
        return _tall(order, dtype, lhs, turned, result, _candidate(op))
    if name == "aten.bmm.default":
        return _batched(order, dtype, lhs, rhs, result, _candidate(op))
    product = _tall(order, dtype, lhs, rhs, result, _candidate(op))
    return replace(product, activation="gelu") if product is not None and activated else product


_ACTIVATED = "aten._addmm_activation.default"
# (op, number of operands) -> which are lhs, rhs, bias.
_OPERANDS: dict[tuple[str, int], tuple[int, ...]] = {
    ("aten.linear.default", 2): (0, 1),
    ("aten.linear.default", 3): (0, 1, 2),
    ("aten.mm.default", 2): (0, 1),
    ("aten.addmm.default", 3): (1, 2, 0),
    (_ACTIVATED, 3): (1, 2, 0),
    ("aten.bmm.default", 2): (0, 1),
}


def _candidate(op: ir.Operation) -> int:
    return ir.IntegerAttr(op.attributes[CANDIDATE]).value if CANDIDATE in op.attributes else 0


def _tall(
    order: tuple[int, ...], dtype: str, lhs: Layout, rhs: Layout, result: Layout, candidate: int
) -> LibraryProduct | None:
    """A product of one matrix [k, n] with all rows of lhs [..., k]."""
    rows, moved = _rows(lhs), _rows(result)
    if rows is None or moved is None:
        return None
    zero = constant(0)
    return _checked(
        LibraryProduct(
            order,
            dtype,
            (constant(1), rows[0], result.shape[-1], lhs.shape[-1]),
            (zero, rows[1], lhs.strides[-1]),
            (zero, *rhs.strides),
            (zero, moved[1], result.strides[-1]),
            candidate,
        )
    )


def _batched(
    order: tuple[int, ...], dtype: str, lhs: Layout, rhs: Layout, result: Layout, candidate: int
) -> LibraryProduct | None:
    batch, m, n = result.shape
    sizes = (batch, m, n, lhs.shape[-1])
    return _checked(LibraryProduct(order, dtype, sizes, lhs.strides, rhs.strides, result.strides, candidate))


def _checked(product: LibraryProduct) -> LibraryProduct | None:
    """The product, if its operands are matrices with neighbours in memory along one of their dims.

    A size of 0, or of rows that overlap, is not for the library.
    """
    _, m, n, k = product.sizes
    if not _is_positive(k) or any(is_constant(x, 0) for x in product.sizes):
        return None
    shapes = ((product.lhs, (m, k)), (product.rhs, (k, n)), (product.result, (m, n)))
    for strides, (rows, columns) in shapes:
        if not (_is_matrix(strides[1], columns, strides[2]) or _is_matrix(strides[2], rows, strides[1])):
            return None
    return product if is_constant(product.result[2], 1) else None


def _is_positive(size: ir.AffineExpr) -> bool:
    known = affine.constant_of(size)
    return known is not None and known > 0


def _is_matrix(across: ir.AffineExpr, length: ir.AffineExpr, along: ir.AffineExpr) -> bool:
    """Whether lines of `length` elements, each the neighbour of the one before, are `across` apart."""
    if not is_constant(along, 1):
        return False
    a, n = affine.constant_of(across), affine.constant_of(length)
    return a >= n if a is not None and n is not None else a != 0


def _rows(layout: Layout) -> tuple[ir.AffineExpr, ir.AffineExpr] | None:
    """(number, stride) of the rows, all dims but the last, if one stride walks through all of them."""
    count, stride, reach = constant(1), None, None
    for size, step in zip(reversed(layout.shape[:-1]), reversed(layout.strides[:-1]), strict=True):
        if is_constant(size, 1):
            continue
        if stride is None:
            stride = step
        elif reach is None or not affine.equal(reach, step):
            return None
        count, reach = mul(count, size), mul(step, size)
    return count, layout.shape[-1] if stride is None else stride
