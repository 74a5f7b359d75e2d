# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Philox-4x32-10 in integer arithmetic.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011.
"""

import math as python_math
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, math

from kiln.dialects import scalar
from kiln.dialects.builder import Builder, here

# The multipliers and the key increments (golden ratio, sqrt(3) - 1) of the paper.
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def _i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def _word(value: int) -> ir.Value:
    """A 32-bit constant from its unsigned value."""
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return scalar.constant(_i32(), signed)


def _halves(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Low and high word of an i64."""
    shift = scalar.constant(ir.IntegerType.get_signless(64), 32)
    return arith.trunci(_i32(), x), arith.trunci(_i32(), arith.shrui(x, shift))


def philox(position: ir.Value, offset: ir.Value, seed: ir.Value) -> list[ir.Value]:
    """Four random words for counter (position, offset) and key `seed`, all i64."""
    c0, c1 = _halves(position)
    c2, c3 = _halves(offset)
    k0, k1 = _halves(seed)
    for r in range(_ROUNDS):
        if r:
            k0, k1 = arith.addi(k0, _word(_W0)), arith.addi(k1, _word(_W1))
        low0, high0 = arith.MulUIExtendedOp(c0, _word(_M0)).results
        low1, high1 = arith.MulUIExtendedOp(c2, _word(_M1)).results
        c0, c1, c2, c3 = arith.xori(arith.xori(high1, c1), k0), low1, arith.xori(arith.xori(high0, c3), k1), low0
    return [c0, c1, c2, c3]


def _uniform(word: ir.Value) -> ir.Value:
    """f32 in [0, 1) from the top 24 bits."""
    f32 = ir.F32Type.get()
    bits = arith.shrui(word, _word(8))
    return arith.mulf(arith.uitofp(f32, bits), scalar.constant(f32, 2.0**-24))


def _normal(first: ir.Value, second: ir.Value) -> ir.Value:
    """Box-Muller: sqrt(-2 log(1 - u)) cos(2 pi v)."""
    f32 = ir.F32Type.get()
    u = arith.subf(scalar.constant(f32, 1.0), _uniform(first))
    radius = math.sqrt(arith.mulf(scalar.constant(f32, -2.0), math.log(u)))
    return arith.mulf(radius, math.cos(arith.mulf(scalar.constant(f32, 2 * python_math.pi), _uniform(second))))


def random(op: Any, b: Builder) -> ir.Value:
    """One block of Philox per element."""
    sizes = b.sizes(op.result)
    lengths = [b.size_value(n) for n in sizes]
    kind = op.kind.value

    def body(seed: ir.Value, offset: ir.Value) -> ir.Value:
        position = scalar.constant(ir.IndexType.get(), 0)
        for i, n in enumerate(lengths):
            position = scalar.add(scalar.mul(position, n), here(i))
        words = philox(scalar.cast(position, ir.IntegerType.get_signless(64)), offset, seed)
        if kind == "bits":
            return words[0]
        return _uniform(words[0]) if kind == "uniform" else _normal(words[0], words[1])

    return b.map([(op.seed, []), (op.offset, [])], sizes, op.result.type.element_type, body)
