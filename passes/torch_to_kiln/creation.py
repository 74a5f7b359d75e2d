# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tensors made from numbers: constants, ranges, identity matrices."""

from torch_mlir import ir

from kiln.dialects.dtypes import BOOL, F64, I64

from .context import LoweringContext
from .emitter import Argument
from .registry import lowers
from .scalars import Scalar, ScalarBuilder
from .sizes import Expr, constant_of


def _filled(cx: LoweringContext, value: Argument) -> ir.Value:
    info = cx.result_info()
    if isinstance(value, int | float):
        return cx.full(value, info.shape, info.dtype)
    return cx.pointwise([value], lambda b, x: x, info.dtype, shape=info.shape, extend=False)


@lowers("torch.aten.full", "torch.aten.full_like", "torch.aten.fill.Scalar", "torch.aten.fill.Tensor")
def full(cx: LoweringContext) -> ir.Value:
    """One number everywhere."""
    return _filled(cx, cx.argument(1))


@lowers("torch.aten.new_full")
def new_full(cx: LoweringContext) -> ir.Value:
    """One number everywhere."""
    return _filled(cx, cx.argument(2))


@lowers("torch.aten.scalar_tensor")
def scalar_tensor(cx: LoweringContext) -> ir.Value:
    """A number as a 0-d tensor."""
    return _filled(cx, cx.argument(0))


# Uninitialised tensors are zeros: what is read from them must not depend on what a buffer held before.
@lowers(
    *(f"torch.aten.{name}" for name in ("zeros", "zeros_like", "new_zeros", "empty_like", "new_empty")),
    *(f"torch.aten.{name}" for name in ("empty.memory_format", "empty_strided", "new_empty_strided", "empty_permuted")),
)
def zeros(cx: LoweringContext) -> ir.Value:
    """Zeros."""
    return _filled(cx, 0)


@lowers("torch.aten.ones", "torch.aten.ones_like", "torch.aten.new_ones")
def ones(cx: LoweringContext) -> ir.Value:
    """Ones."""
    return _filled(cx, 1)


@lowers("torch.aten.arange", "torch.aten.arange.start", "torch.aten.arange.start_step", "torch.prims.iota")
def arange(cx: LoweringContext) -> ir.Value:
    """``start + step * i``; floats computed in float64 and rounded once, as PyTorch does on CPUs."""
    start: Argument = 0
    step: Argument = 1
    if cx.name == "torch.prims.iota":
        start, step = cx.argument(1), cx.argument(2)
    elif cx.name != "torch.aten.arange":
        start = cx.argument(0)
        if cx.name == "torch.aten.arange.start_step":
            step = cx.argument(2)
    info = cx.result_info()

    def body(b: ScalarBuilder, first: Scalar, stride: Scalar) -> Scalar:
        offset = b.cast(b.index(0), first.dtype)
        return b.add(first, offset if step == 1 else b.mul(offset, stride))

    return cx.pointwise([start, step], body, info.dtype, compute=F64 if info.dtype.is_float else I64, shape=info.shape)


@lowers("torch.aten.linspace")
def linspace(cx: LoweringContext) -> ir.Value:
    """``steps`` numbers from start to end, the second half counted from the end."""
    start, end, steps = cx.number(0), cx.number(1), cx.const_int(2)
    info = cx.result_info()
    if not info.dtype.is_float:
        cx.unsupported("linspace of integers")
    step = (end - start) / (steps - 1) if steps > 1 else 0.0

    def body(b: ScalarBuilder, first: Scalar, last: Scalar, stride: Scalar) -> Scalar:
        i = b.index(0)
        upper = b.mul(stride, b.cast(b.sub(steps - 1, i), first.dtype))
        lower = b.add(first, b.mul(stride, b.cast(i, first.dtype)))
        return b.select(b.cmp("lt", i, steps // 2), lower, b.sub(last, upper)) if steps > 1 else first

    return cx.pointwise([start, end, step], body, info.dtype, compute=info.dtype, shape=info.shape)


@lowers("torch.aten.eye", "torch.aten.eye.m")
def eye(cx: LoweringContext) -> ir.Value:
    """Ones on the main diagonal."""
    info = cx.result_info()
    return cx.pointwise([], lambda b: b.cmp("eq", b.index(0), b.index(1)), info.dtype, shape=info.shape)


def count(sizes: list[Expr]) -> "int | Expr":
    """Number of elements, as an int where it is one."""
    total = 1
    expr: Expr | None = None
    for size in sizes:
        value = constant_of(size)
        if value is None:
            expr = size if expr is None else expr * size
        else:
            total *= value
    return total if expr is None else expr * total


@lowers("torch.aten.tril_indices", "torch.aten.triu_indices")
def triangle_indices(cx: LoweringContext) -> ir.Value:
    """Left to ATen: the coordinates have no affine form."""
    cx.unsupported("the coordinates of a triangle have no affine form")


@lowers("torch.aten.isin.Tensor_Scalar")
def isin_scalar(cx: LoweringContext) -> ir.Value:
    """Whether each element equals a number."""
    invert = cx.const_bool(3, False)
    args = [cx.argument(0), cx.argument(1)]
    predicate = "ne" if invert else "eq"
    return cx.pointwise(
        args, lambda b, x, y: b.cmp(predicate, x, y), BOOL, compute=cx.common_dtype(args), shape=cx.result_shape()
    )
