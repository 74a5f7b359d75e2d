# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Comparisons, logic, bits and selection."""

from collections.abc import Callable

from torch_mlir import ir

from kiln.dialects.dtypes import BOOL

from .context import LoweringContext
from .registry import lowers
from .scalars import Scalar, ScalarBuilder


def _comparison(predicate: str) -> Callable[[LoweringContext], ir.Value]:
    def rule(cx: LoweringContext) -> ir.Value:
        args = [cx.argument(0), cx.argument(1)]
        return cx.elementwise(args, lambda b, x, y: b.cmp(predicate, x, y), compute=cx.common_dtype(args))

    return rule


for _predicate in ("eq", "ne", "lt", "le", "gt", "ge"):
    lowers(f"torch.aten.{_predicate}.Tensor", f"torch.aten.{_predicate}.Scalar")(_comparison(_predicate))


def _logical(fn: Callable[[ScalarBuilder, Scalar, Scalar], Scalar]) -> Callable[[LoweringContext], ir.Value]:
    return lambda cx: cx.elementwise([cx.argument(0), cx.argument(1)], fn, compute=BOOL)


lowers("torch.aten.logical_and")(_logical(lambda b, x, y: b.and_(x, y)))
lowers("torch.aten.logical_or")(_logical(lambda b, x, y: b.or_(x, y)))
lowers("torch.aten.logical_xor")(_logical(lambda b, x, y: b.xor(x, y)))


def _bitwise(fn: Callable[[ScalarBuilder, Scalar, Scalar], Scalar]) -> Callable[[LoweringContext], ir.Value]:
    return lambda cx: cx.elementwise([cx.argument(0), cx.argument(1)], fn)


_BITWISE: dict[str, Callable[[ScalarBuilder, Scalar, Scalar], Scalar]] = {
    "and": lambda b, x, y: b.and_(x, y),
    "or": lambda b, x, y: b.or_(x, y),
    "xor": lambda b, x, y: b.xor(x, y),
}
for _name, _fn in _BITWISE.items():
    lowers(
        *(f"torch.aten.bitwise_{_name}.{suffix}" for suffix in ("Tensor", "Scalar", "Scalar_Tensor")),
        *(f"torch.aten.__{_name}__.{suffix}" for suffix in ("Tensor", "Scalar")),
    )(_bitwise(_fn))


def _shift_left(b: ScalarBuilder, x: Scalar, count: Scalar) -> Scalar:
    """0 for a negative count or one not below the width."""
    bits = x.dtype.bits
    valid = b.and_(b.cmp("ge", count, 0), b.cmp("lt", count, bits))
    return b.select(valid, b.shl(x, b.select(valid, count, 0)), 0)


def _shift_right(b: ScalarBuilder, x: Scalar, count: Scalar) -> Scalar:
    """All sign bits (0 if unsigned) for a negative count or one not below the width."""
    bits = x.dtype.bits
    valid = b.and_(b.cmp("ge", count, 0), b.cmp("lt", count, bits))
    if x.dtype.is_signed:
        return b.shr(x, b.select(valid, count, bits - 1))
    return b.select(valid, b.shr(x, b.select(valid, count, 0)), 0)


for _direction, _shift in (("left", _shift_left), ("right", _shift_right)):
    _short = "l" if _direction == "left" else "r"
    _names = [f"torch.aten.bitwise_{_direction}_shift.{s}" for s in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")]
    lowers(*_names, *(f"torch.aten.__{_short}shift__.{suffix}" for suffix in ("Tensor", "Scalar")))(_bitwise(_shift))


def _select(cx: LoweringContext, condition: ir.Value, x: object, y: object) -> ir.Value:
    """``condition ? x : y`` in the result's type, bits of half types untouched."""
    info = cx.result_info()

    def body(b: ScalarBuilder, c: Scalar, u: Scalar, v: Scalar) -> Scalar:
        u = b.cast(u, info.dtype) if isinstance(u, Scalar) else b.const(u, info.dtype)
        v = b.cast(v, info.dtype) if isinstance(v, Scalar) else b.const(v, info.dtype)
        return b.select(b.cast(c, BOOL), u, v)

    return cx.pointwise([condition, x, y], body, info.dtype, shape=info.shape, extend=False)  # type: ignore[list-item] - numbers are taken as well


@lowers(
    "torch.aten.where.self", "torch.aten.where.ScalarSelf", "torch.aten.where.ScalarOther", "torch.aten.where.Scalar"
)
def where(cx: LoweringContext) -> ir.Value:
    """``condition ? x : y``."""
    return _select(cx, cx.tensor(0), cx.argument(1), cx.argument(2))


@lowers("torch.aten.masked_fill.Scalar", "torch.aten.masked_fill.Tensor")
def masked_fill(cx: LoweringContext) -> ir.Value:
    """``mask ? value : x``."""
    return _select(cx, cx.tensor(1), cx.argument(2), cx.tensor(0))


@lowers("torch.aten.isclose")
def isclose(cx: LoweringContext) -> ir.Value:
    """``|x - y| <= atol + rtol * |y|``, or equal; with ``equal_nan`` also both NaN."""
    x, y = cx.tensor(0), cx.tensor(1)
    rtol, atol, equal_nan = cx.const_float(2), cx.const_float(3), cx.const_bool(4)
    if not cx.dtype(x).is_float:
        cx.unsupported("isclose of integers")

    def body(b: ScalarBuilder, u: Scalar, v: Scalar) -> Scalar:
        distance, bound = b.abs(b.sub(u, v)), b.add(b.mul(b.abs(v), rtol), atol)
        near = b.and_(b.cmp("le", distance, bound), b.cmp("lt", distance, float("inf")))
        close = b.or_(b.cmp("eq", u, v), near)
        return b.or_(close, b.and_(b.is_nan(u), b.is_nan(v))) if equal_nan else close

    return cx.elementwise([x, y], body, compute=cx.dtype(x))
