# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matrix products."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import kiln

from .context import LoweringContext
from .emitter import Argument, At, Size
from .reductions import sum_of
from .registry import lowers
from .scalars import Scalar, ScalarBuilder
from .sizes import as_expr, constant_of, dim


def product_of(
    cx: LoweringContext, lhs: ir.Value, rhs: ir.Value, shape: Sequence[Size], *, transpose_rhs: bool = False
) -> ir.Value:
    """``kiln.matmul`` with a result of sizes ``shape``."""
    dtype = cx.dtype(lhs)
    if cx.dtype(rhs) != dtype:
        cx.unsupported(f"a product of {dtype.name} and {cx.dtype(rhs).name}")
    if dtype.is_bool:
        cx.unsupported("a product of bool matrices")
    sizes = [as_expr(size) for size in shape]
    result = kiln.matmul(lhs, rhs, cx.state.tensor_type(sizes, dtype), transpose_rhs=transpose_rhs)
    return cx.named(result, sizes, dtype)


@lowers("torch.aten.mm", "torch.aten.bmm")
def mm(cx: LoweringContext) -> ir.Value:
    """The product of two matrices, or of two batches of them."""
    return product_of(cx, cx.tensor(0), cx.tensor(1), cx.result_shape())


def _scale_and_add(cx: LoweringContext, product: ir.Value, added: ir.Value, beta: float, alpha: float) -> ir.Value:
    """``beta * added + alpha * product``; ``beta = 0`` ignores ``added``, NaN and all."""

    def body(b: ScalarBuilder, p: Scalar, *rest: Scalar) -> Scalar:
        if alpha != 1:
            p = b.mul(p, alpha)
        if not rest:
            return p
        return b.add(p, rest[0] if beta == 1 else b.mul(rest[0], beta))

    inputs: list[Argument] = [product] if beta == 0 else [product, added]
    if beta == 0 and alpha == 1:
        return product
    return _of_one_rounding(cx.elementwise(inputs, body, round_numbers=False))


def _of_one_rounding(summed: ir.Value) -> ir.Value:
    """Says that something is added to a product's sums, before the rounding, as in PyTorch: `drop-roundings` asks."""
    summed.owner.operation.attributes["adds_to_product"] = ir.UnitAttr.get()
    return summed


@lowers("torch.aten.addmm", "torch.aten.baddbmm")
def addmm(cx: LoweringContext) -> ir.Value:
    """``beta * input + alpha * (lhs @ rhs)``."""
    beta, alpha = (cx.number(i) if not cx.is_none(i) else 1 for i in (3, 4))
    product = product_of(cx, cx.tensor(1), cx.tensor(2), cx.result_shape())
    return _scale_and_add(cx, product, cx.tensor(0), beta, alpha)


@lowers("torch.aten.addbmm")
def addbmm(cx: LoweringContext) -> ir.Value:
    """``beta * input + alpha * sum over the batch of (lhs @ rhs)``."""
    beta, alpha = (cx.number(i) if not cx.is_none(i) else 1 for i in (3, 4))
    lhs, rhs = cx.tensor(1), cx.tensor(2)
    products = product_of(cx, lhs, rhs, [*cx.shape(lhs)[:2], cx.shape(rhs)[2]])
    total = sum_of(cx, products, [0], cx.dtype(products))
    return _scale_and_add(cx, total, cx.tensor(0), beta, alpha)


@lowers("torch.aten.addmv")
def addmv(cx: LoweringContext) -> ir.Value:
    """``beta * input + alpha * (matrix @ vector)``."""
    beta, alpha = (cx.number(i) if not cx.is_none(i) else 1 for i in (3, 4))
    product = _row_sums(cx, cx.tensor(1), cx.tensor(2))
    return _scale_and_add(cx, product, cx.tensor(0), beta, alpha)


@lowers("torch.aten.addr")
def addr(cx: LoweringContext) -> ir.Value:
    """``beta * input + alpha * outer(x, y)``."""
    beta, alpha = (cx.number(i) if not cx.is_none(i) else 1 for i in (3, 4))
    x, y = At.dims(cx.tensor(1), [0]), At.dims(cx.tensor(2), [1])
    info = cx.result_info()
    outer = cx.pointwise([x, y], lambda b, u, v: b.mul(u, v), info.dtype, compute=info.dtype, shape=info.shape)
    return _scale_and_add(cx, outer, cx.tensor(0), beta, alpha)


def _row_sums(cx: LoweringContext, matrix: ir.Value, vector: ir.Value) -> ir.Value:
    """``matrix @ vector`` as a reduction: it reads every element once, so a matmul kernel has nothing to gain."""
    dtype = cx.dtype(matrix)
    if cx.dtype(vector) != dtype or dtype.is_bool:
        cx.unsupported(f"a product of {dtype.name} and {cx.dtype(vector).name}")
    axis = cx.rank(matrix) - 1
    return cx.reduce(
        [matrix, At.dims(vector, [axis])],
        [axis],
        0,
        lambda b, acc, v: b.add(acc, v),
        dtype,
        element=lambda b, x, y: b.mul(x, y),
    )


@lowers("torch.aten.mv", "torch.aten.dot", "torch.aten.vdot")
def mv(cx: LoweringContext) -> ir.Value:
    """A matrix, or a vector, times a vector."""
    return _row_sums(cx, cx.tensor(0), cx.tensor(1))


@lowers("torch.aten.linear")
def linear(cx: LoweringContext) -> ir.Value:
    """``x @ weight^T + bias``."""
    x, weight, bias = cx.tensor(0), cx.tensor(1), cx.optional_tensor(2)
    if cx.rank(weight) != 2:
        cx.unsupported("a linear layer whose weight is no matrix")
    shape = cx.result_shape()
    if cx.rank(x) == 1:
        row = cx.view(x, [dim(1)], [1, cx.shape(x)[0]])
        product = product_of(cx, row, weight, [1, shape[0]], transpose_rhs=True)
        product = cx.view(product, [0, dim(0)], shape)
    else:
        product = product_of(cx, x, weight, shape, transpose_rhs=True)
    if bias is None:
        return product
    return _of_one_rounding(cx.elementwise([product, bias], lambda b, p, v: b.add(p, v)))


@lowers("torch.aten.matmul")
def matmul(cx: LoweringContext) -> ir.Value:
    """PyTorch's ``matmul`` for vectors, matrices and broadcast batches."""
    lhs, rhs = cx.tensor(0), cx.tensor(1)
    ranks = cx.rank(lhs), cx.rank(rhs)
    if ranks[1] == 1:
        return _row_sums(cx, lhs, rhs)
    shape = list(cx.result_shape())
    if ranks[0] == 1:
        lhs = cx.view(lhs, [dim(1)], [1, cx.shape(lhs)[0]])
        shape.insert(len(shape) - 1, as_expr(1))
    batch = shape[:-2]
    lhs = _batched(cx, lhs, batch)
    rhs = rhs if cx.rank(rhs) == 2 else _batched(cx, rhs, batch)
    product = product_of(cx, lhs, rhs, shape)
    if ranks[0] > 1:
        return product
    last = len(shape) - 2
    return cx.view(product, [*(dim(k) for k in range(last)), 0, dim(last)], cx.result_shape())


def _batched(cx: LoweringContext, x: ir.Value, batch: Sequence[Size]) -> ir.Value:
    """``x`` expanded to the batch dimensions ``batch``."""
    own = cx.shape(x)
    first = len(batch) + 2 - len(own)
    indices = [
        as_expr(0) if k < len(own) - 2 and constant_of(size) == 1 != constant_of(batch[first + k]) else dim(first + k)
        for k, size in enumerate(own)
    ]
    return cx.view(x, indices, [*batch, *own[-2:]])
