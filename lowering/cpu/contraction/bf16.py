# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of bf16 in pairs (VDPBF16PS of AVX512-BF16): when they can be had, and their operands.

The instruction takes subnormal numbers as zero, as oneDNN's kernels, which use it, do; sums are f32.
"""

from torch_mlir import ir
from torch_mlir.dialects import llvm, vector

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.intrinsics import call
from kiln.lowering.cpu.isa import Isa

__all__ = [
    "LANES",
    "add_pairs",
    "as_integers",
    "as_pairs",
    "broadcast_last",
    "broadcast_pair",
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
    """A vector of 32 bf16, or of 16 pairs as i32, as an operand of `add_pairs`."""
    return llvm.bitcast(b.vec(2 * LANES, ir.BF16Type.get()), x)


def as_integers(b: Builder, x: ir.Value) -> ir.Value:
    """A vector of 32 bf16 as 16 pairs in i32."""
    return llvm.bitcast(b.vec(LANES, b.i32), x)


def add_pairs(x: ir.Value, y: ir.Value, acc: ir.Value) -> ir.Value:
    """Lane i of `acc` plus the products of lanes 2 i and 2 i + 1 of two operands (see `as_pairs`)."""
    return call("avx512bf16.dpbf16ps.512", acc.type, acc, x, y)


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


def broadcast_pair(b: Builder, buffer: ir.Value, at: Index) -> ir.Value:
    """Elements `at` and `at` + 1 of a bf16 buffer in all lanes, as an operand of `add_pairs`."""
    pair = llvm.bitcast(b.i32, b.vload(buffer, at, 2))
    return as_pairs(b, b.broadcast(pair, LANES))


def broadcast_last(b: Builder, buffer: ir.Value, at: Index) -> ir.Value:
    """Element `at` and a zero in all lanes: the pair at the end of an odd number of elements."""
    zero = b.zero(ir.BF16Type.get())
    pair = vector.from_elements(b.vec(2, ir.BF16Type.get()), [b.load(buffer, at), zero])
    return as_pairs(b, b.broadcast(llvm.bitcast(b.i32, pair), LANES))


def interleave(b: Builder, even: ir.Value, odd: ir.Value) -> ir.Value:
    """Two vectors of 16 bf16 as one: even[0], odd[0], even[1], odd[1], ..."""
    return b.shuffle(even, odd, [lane for i in range(LANES) for lane in (i, LANES + i)])
