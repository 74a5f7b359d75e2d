# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Quantisation as exported models write it (PT2E): between floats and 8- or 16-bit integers, as pointwise loops.

``quantize(x) = clamp(round(x / scale) + zero_point)`` and ``dequantize(q) = (q - zero_point) * scale``, computed in
float32 as PyTorch's ``torch/ao/quantization/fx/_decomposed.py`` does.
"""

from torch_mlir import ir

from kiln.dialects.dtypes import F32, DType

from .context import LoweringContext
from .emitter import At
from .registry import lowers
from .scalars import Number, Scalar, ScalarBuilder
from .sizes import dim


def _check_integers(cx: LoweringContext, dtype: DType) -> None:
    if not dtype.is_int or dtype.bits > 16:
        cx.unsupported(f"quantisation to {dtype.name}: float32 does not hold its bounds")


def _quantized(b: ScalarBuilder, x: Scalar, inverse: Number, zero: Number, low: int, high: int, to: DType) -> Scalar:
    """An element as an integer of the type `to`; `inverse` is one over the scale."""
    steps = b.add(b.math("roundeven", b.mul(x, inverse)), zero)
    steps = b.select(b.cmp("lt", steps, low), low, steps)
    return b.cast(b.select(b.cmp("gt", steps, high), high, steps), to)


@lowers("torch.quantized_decomposed.quantize_per_tensor")
def quantize_per_tensor(cx: LoweringContext) -> ir.Value:
    """One scale and zero point, known when compiling."""
    to, inverse, zero = cx.result_dtype(), 1.0 / cx.const_float(1), cx.const_int(2)
    low, high = cx.const_int(3), cx.const_int(4)
    _check_integers(cx, to)
    return cx.pointwise(
        [cx.tensor(0)],
        lambda b, x: _quantized(b, b.cast(x, F32), inverse, zero, low, high, to),
        to,
        compute=F32,
        shape=cx.result_shape(),
    )


@lowers("torch.quantized_decomposed.quantize_per_channel")
def quantize_per_channel(cx: LoweringContext) -> ir.Value:
    """A scale and a zero point for each index of one dim."""
    x, to = cx.tensor(0), cx.result_dtype()
    low, high = cx.const_int(4), cx.const_int(5)
    _check_integers(cx, to)
    channels = [At(_vector(cx, i), (dim(cx.dim(3, cx.rank(x))),)) for i in (1, 2)]

    def body(b: ScalarBuilder, v: Scalar, scale: Scalar, zero: Scalar) -> Scalar:
        return _quantized(b, v, b.div(1, scale), zero, low, high, to)

    return cx.pointwise([x, *channels], body, to, compute=F32, shape=cx.result_shape())


@lowers("torch.quantized_decomposed.dequantize_per_tensor")
def dequantize_per_tensor(cx: LoweringContext) -> ir.Value:
    """One scale and zero point, known when compiling."""
    scale, zero = cx.const_float(1), cx.const_int(2)
    _check_floats(cx)
    return cx.elementwise([cx.tensor(0)], lambda b, q: b.mul(b.sub(q, zero) if zero else q, scale), compute=F32)


@lowers("torch.quantized_decomposed.dequantize_per_channel")
def dequantize_per_channel(cx: LoweringContext) -> ir.Value:
    """A scale, and maybe a zero point, for each index of one dim."""
    q = cx.tensor(0)
    _check_floats(cx)
    at = (dim(cx.dim(3, cx.rank(q))),)
    channels = [At(_vector(cx, i), at) for i in (1, 2) if not cx.is_none(i)]

    def body(b: ScalarBuilder, v: Scalar, scale: Scalar, *zero: Scalar) -> Scalar:
        return b.mul(b.sub(v, zero[0]) if zero else v, scale)

    return cx.elementwise([q, *channels], body, compute=F32)


def _check_floats(cx: LoweringContext) -> None:
    """Differences of 8-bit integers are exact in every float type; those of longer ones are not in half types."""
    source, to = cx.dtype(cx.tensor(0)), cx.result_dtype()
    _check_integers(cx, source)
    if to != F32 and not (to.is_half and source.bits == 8):
        cx.unsupported(f"dequantisation of {source.name} to {to.name}")


def _vector(cx: LoweringContext, i: int) -> ir.Value:
    x = cx.tensor(i)
    if cx.rank(x) != 1 or cx.dtype(x).name == "float64":
        cx.unsupported(f"operand {i}: expected a vector of float32 or integers")
    return x
