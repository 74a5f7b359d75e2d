# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""bf16 and f16 to and from f32 with integer ops, maximum/minimum without LLVM's care for the sign of zero, and classes.

Without AVX512-BF16 LLVM calls a runtime function for every lane that it rounds to bf16, and with it the
instruction flushes denormals to zero. For f16 it does so on x86 without F16C.
"""

import math

from torch_mlir import ir

from kiln.lowering.cpu.vector_math.lanes import Emitter, Lanes


def extend_bf16(e: Emitter, x: Lanes) -> Lanes:
    """bf16 to f32, exactly: the upper half of the bits."""
    half = e.op("arith.bitcast", e.like(ir.IntegerType.get_signless(16)), x)
    return e.as_float(e.int_op("shli", e.op("arith.extui", e.int_type, half), 16))


def round_bf16(e: Emitter, x: Lanes) -> Lanes:
    """f32 to bf16, round to nearest even; a NaN stays one (its payload may change)."""
    bits = e.as_int(x)
    odd = e.int_op("andi", e.int_op("shrui", bits, 16), 1)
    rounded = e.int_op("shrui", e.int_op("addi", e.int_op("addi", bits, 0x7FFF), odd), 16)
    # no select of the result: LLVM would do that on bf16 vectors, one lane at a time
    nan = e.int_op("andi", e.op("arith.extsi", e.int_type, e.compare("uno", x, x)), 0x7FC0)
    half = e.op("arith.trunci", e.like(ir.IntegerType.get_signless(16)), e.int_op("ori", rounded, nan))
    return e.op("arith.bitcast", e.like(ir.BF16Type.get()), half)


def extend_f16(e: Emitter, x: Lanes) -> Lanes:
    """f16 to f32, exactly: the exponent moves by the difference of the biases; denormals are integers times 2^-24."""
    bits = e.op("arith.extui", e.int_type, e.op("arith.bitcast", e.like(ir.IntegerType.get_signless(16)), x))
    sign = e.int_op("shli", e.int_op("andi", bits, 0x8000), 16)
    size = e.int_op("andi", bits, 0x7FFF)
    normal = e.int_op("addi", e.int_op("shli", size, 13), (127 - 15) << 23)
    special = e.int_op("addi", normal, (127 - 15) << 23)  # the largest exponent of f16 is the largest of f32
    denormal = e.as_int(e.op("arith.sitofp", e.float_type, size) * 2.0**-24)
    result = e.select(e.compare_int("sgt", size, e.i(0x7BFF)), special, normal)
    result = e.select(e.compare_int("slt", size, e.i(0x0400)), denormal, result)
    return e.as_float(e.int_op("ori", result, sign))


def round_f16(e: Emitter, x: Lanes) -> Lanes:
    """f32 to f16, round to nearest even; beyond the largest number infinite; a NaN stays one.

    Source: F. Giesen, https://gist.github.com/rygorous/2156668 (float_to_half_fast3_rtne).
    """
    bits = e.as_int(x)
    size = e.int_op("andi", bits, 0x7FFFFFFF)
    odd = e.int_op("andi", e.int_op("shrui", size, 13), 1)
    rebiased = e.int_op("addi", size, 0xFFF - ((127 - 15) << 23))
    normal = e.int_op("shrui", e.int_op("addi", rebiased, odd), 13)
    # The sum with 0.5, whose last place is f16's least number, rounds as the result has to.
    denormal = e.int_op("subi", e.as_int(e.as_float(size) + 0.5), 126 << 23)
    special = e.select(e.compare("uno", x, x), e.i(0x7E00), e.i(0x7C00))
    result = e.select(e.compare_int("slt", size, e.i((127 - 14) << 23)), denormal, normal)
    result = e.select(e.compare_int("sge", size, e.i((127 + 16) << 23)), special, result)
    sign = e.int_op("andi", e.int_op("shrui", bits, 16), 0x8000)
    half = e.op("arith.trunci", e.like(ir.IntegerType.get_signless(16)), e.int_op("ori", result, sign))
    return e.op("arith.bitcast", e.like(ir.F16Type.get()), half)


def _is_number(value: ir.Value) -> bool:
    """Whether ``value`` is a constant (or the broadcast of one) without NaN."""
    op = value.owner
    if not isinstance(op, ir.Operation | ir.OpView):
        return False
    if op.operation.name == "vector.broadcast":
        return _is_number(op.operation.operands[0])
    if op.operation.name != "arith.constant":
        return False
    attribute = op.operation.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        dense = attribute
        if not dense.is_splat:
            return False
        attribute = dense.get_splat_value()
    if not isinstance(attribute, ir.FloatAttr):
        return False
    number = attribute.value
    return number == number


def _extremum(e: Emitter, predicate: str, a: Lanes, b: Lanes) -> Lanes:
    """a where ``a predicate b``, else b; NaN where either is.  Of +0 and -0, whichever comes: as in PyTorch."""
    if _is_number(a.value):
        a, b = b, a
    if _is_number(b.value):
        return e.select(e.compare("olt" if predicate == "ogt" else "ogt", a, b), b, a)
    chosen = e.select(e.compare(predicate, a, b), a, b)  # b if either is NaN: one maxps or minps
    return e.select(e.compare("uno", a, a), a, chosen)


def maximum(e: Emitter, a: Lanes, b: Lanes) -> Lanes:
    """The larger operand; NaN where one is NaN."""
    return _extremum(e, "ogt", a, b)


def minimum(e: Emitter, a: Lanes, b: Lanes) -> Lanes:
    """The smaller operand; NaN where one is NaN."""
    return _extremum(e, "olt", a, b)


def clamp(e: Emitter, x: Lanes, low: Lanes, high: Lanes) -> Lanes:
    """min(max(x, low), high); NaN where any is."""
    return minimum(e, maximum(e, x, low), high)


def is_nan(e: Emitter, x: Lanes) -> Lanes:
    """Whether each lane is NaN, as i1."""
    return e.compare("uno", x, x)


def is_infinite(e: Emitter, x: Lanes) -> Lanes:
    """Whether each lane is an infinity, as i1."""
    return e.compare("oeq", e.abs(x), math.inf)


def is_finite(e: Emitter, x: Lanes) -> Lanes:
    """Whether each lane is neither NaN nor an infinity, as i1."""
    return e.compare("olt", e.abs(x), math.inf)
