# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Vectors of bf16 for VDPBF16PS (AVX512-BF16), which multiplies pairs: when it can be had, and its operands.

It takes subnormal numbers as zero, as oneDNN's kernels, which use it, do; sums are f32.
"""

from torch_mlir import ir
from torch_mlir.dialects import llvm, vector

from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.intrinsics import call
from kiln.lowering.cpu.isa import Isa

__all__ = [
    "LANES",
    "as_integers",
    "as_pairs",
    "from_memory",
    "has_pairs",
    "interleave",
    "narrow",
]

LANES = 16
"""Sums in a vector: the instruction is used at 64 bytes."""


def has_pairs(dtype: str, width: int, cpu: Isa) -> bool:
    """Whether a CPU multiplies operands of `dtype` in pairs, with `width` f32 sums a vector."""
    return dtype == "bf16" and width == LANES and cpu.has("avx512bf16")


def as_pairs(b: Builder, x: ir.Value) -> ir.Value:
    """A vector of 32 bf16, or of 16 pairs as i32, as an operand of the instruction."""
    return llvm.bitcast(b.vec(2 * LANES, ir.BF16Type.get()), x)


def as_integers(b: Builder, x: ir.Value) -> ir.Value:
    """A vector of 32 bf16 as 16 pairs in i32."""
    return llvm.bitcast(b.vec(LANES, b.i32), x)


def from_memory(b: Builder, x: ir.Value) -> ir.Value:
    """A vector of 16 or 32 elements of an operand as bf16: itself, or i8 converted."""
    if isinstance(ir.VectorType(x.type).element_type, ir.BF16Type):
        return x
    lanes = ir.VectorType(x.type).shape[0]
    if lanes == LANES:
        return narrow(b, b.cast_float(x, b.f32))
    low, high = (b.shuffle(x, x, range(start, start + LANES)) for start in (0, LANES))
    return b.shuffle(from_memory(b, low), from_memory(b, high), range(2 * LANES))


def narrow(b: Builder, x: ir.Value) -> ir.Value:
    """16 f32, or 32, rounded to bf16; subnormal numbers become zero."""
    type_ = b.vec(ir.VectorType(x.type).shape[0], ir.BF16Type.get())
    return vector.bitcast(type_, _narrow(b, x))


def _narrow(b: Builder, x: ir.Value) -> ir.Value:
    lanes = ir.VectorType(x.type).shape[0]
    if lanes > LANES:
        low, high = (_narrow(b, b.shuffle(x, x, range(at, at + LANES))) for at in (0, LANES))
        return b.shuffle(low, high, range(2 * LANES))
    return llvm.bitcast(b.vec(LANES, b.i16), call("avx512bf16.cvtneps2bf16.512", b.vec(LANES, ir.BF16Type.get()), x))


def interleave(b: Builder, even: ir.Value, odd: ir.Value) -> ir.Value:
    """Two vectors of 16 bf16 as one: even[0], odd[0], even[1], odd[1], ..."""
    return b.shuffle(even, odd, [lane for i in range(LANES) for lane in (i, LANES + i)])
