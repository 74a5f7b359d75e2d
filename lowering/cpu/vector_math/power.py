# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""powf, fpowi, ipowi, cbrt, rsqrt and the remainder of a division."""

import math

from torch_mlir import ir
from torch_mlir.dialects import arith, scf, vector

from kiln.dialects.elements import element_of
from kiln.lowering.cpu.vector_math.coefficients import COEFFICIENTS
from kiln.lowering.cpu.vector_math.exponential import round_magic
from kiln.lowering.cpu.vector_math.fallback import repair_with_libm
from kiln.lowering.cpu.vector_math.lanes import Emitter, Lanes
from kiln.lowering.cpu.vector_math.logarithm import split
from kiln.lowering.cpu.vector_math.power_pair import power_of_magnitude


def _double(e: Emitter) -> Emitter:
    """The emitter of the same shape in f64."""
    return e.with_element(ir.F64Type.get())


def _power_of_magnitude(d: Emitter, a: Lanes, y: Lanes) -> Lanes:
    """a^y in f64 to about 2^-33 for a > 0 that came from f32: exp2(y log2(a)); a = 0 and inf as limits."""
    n, f = split(d, a, denormals=False)
    s = f / (f + 2.0)
    log = d.fma(s, d.polynomial(COEFFICIENTS["pow_log2", "f64"], s * s), n)
    log = d.select(d.compare("oeq", a, 0.0), -math.inf, log)
    log = d.select(d.compare("uge", a, math.inf), a, log)
    z = d.clamp(y * log, -200.0, 200.0)  # f32 is 0 or inf from -150 and 128 on
    magic = round_magic(d, d.bias)
    t = z + magic
    p = d.polynomial(COEFFICIENTS["pow_exp2", "f64"], z - (t - magic))
    return p * d.as_float(d.int_op("shli", d.as_int(t), d.mantissa))


def _magnitude(e: Emitter, a: Lanes, y: Lanes) -> Lanes:
    """a^y for a >= 0; f32 in f64 lanes (y may be f64 already)."""
    if e.bits == 64:
        return power_of_magnitude(e, a, y)
    d = _double(e)
    y = y if y.value.type == d.float_type else d.op("arith.extf", d.float_type, y)
    return e.op("arith.truncf", e.float_type, _power_of_magnitude(d, d.op("arith.extf", d.float_type, a), y))


def powf(e: Emitter, x: Lanes, y: Lanes) -> Lanes:
    """x^y with the special cases of C99 Annex F."""
    a = e.abs(x)
    result = _magnitude(e, a, y)
    half = y * 0.5
    integer = e.compare("oeq", e.trunc(y), y)
    odd = integer & e.compare("one", e.trunc(half), half)  # halves of large numbers are exact
    result = e.flip_sign(result, e.select(odd, e.sign_bit(x), e.i(0)))
    invalid = e.compare("olt", x, 0.0) & e.compare("one", e.trunc(y), y) & e.compare("one", a, math.inf)
    result = e.select(invalid, math.nan, result)
    infinite = e.compare("oeq", e.abs(y), math.inf)
    one = e.compare("oeq", y, 0.0) | e.compare("oeq", x, 1.0) | (e.compare("oeq", a, 1.0) & infinite)
    return e.select(one, 1.0, result)


def fpowi(e: Emitter, x: Lanes, n: Lanes) -> Lanes:
    """x^n for an integer n, as pow(x, (double)n)."""
    d = _double(e)
    y = d.op("arith.sitofp", d.float_type, n)
    result = _magnitude(e, e.abs(x), y)
    width = ir.IntegerType(element_of(n.value.type)).width
    if width != e.bits:  # the lowest bit stays
        n = e.op("arith.extsi" if width < e.bits else "arith.trunci", e.int_type, n)
    result = e.flip_sign(result, e.sign_bit(x) & e.int_op("shli", n, e.bits - 1))
    return e.select(d.compare("oeq", y, 0.0) | e.compare("oeq", x, 1.0), 1.0, result)


def ipowi(base: ir.Value, exponent: ir.Value) -> ir.Value:
    """base^exponent on integers (wrapping) by squaring, until no lane has a bit left.

    A negative exponent gives the truncated inverse: 1 for base 1, +-1 for base -1, 0 otherwise (0^-n: 0).
    """
    type_ = base.type
    is_vector = isinstance(type_, ir.VectorType)
    element = type_.element_type if is_vector else type_

    def constant(x: int) -> ir.Value:
        value: ir.Attribute = ir.IntegerAttr.get(element, x)
        if is_vector:
            value = ir.DenseElementsAttr.get_splat(type_, value)
        return ir.Operation.create("arith.constant", [type_], [], {"value": value}).result

    zero, one = constant(0), constant(1)
    negative = arith.CmpIOp(arith.CmpIPredicate.slt, exponent, zero).result
    odd = arith.AndIOp(exponent, one).result
    start = arith.SelectOp(negative, zero, exponent).result
    loop = scf.WhileOp([type_, type_, type_], [start, base, one])
    before = loop.before.blocks.append(type_, type_, type_)
    after = loop.after.blocks.append(type_, type_, type_)
    with ir.InsertionPoint(before):
        left = before.arguments[0]
        if is_vector:
            left = vector.ReductionOp(element, vector.CombiningKind.OR, left).result
        none = arith.ConstantOp(element, 0).result
        more = arith.CmpIOp(arith.CmpIPredicate.ne, left, none).result
        scf.ConditionOp(more, list(before.arguments))
    with ir.InsertionPoint(after):
        left, power, product = after.arguments
        bit = arith.AndIOp(left, one).result
        taken = arith.CmpIOp(arith.CmpIPredicate.ne, bit, zero).result
        product = arith.SelectOp(taken, arith.MulIOp(product, power).result, product).result
        power = arith.MulIOp(power, power).result
        scf.YieldOp([arith.ShRUIOp(left, one).result, power, product])
    result = loop.results[2]
    minus_one = constant(-1)
    is_one = arith.CmpIOp(arith.CmpIPredicate.eq, base, one).result
    is_minus_one = arith.CmpIOp(arith.CmpIPredicate.eq, base, minus_one).result
    is_odd = arith.CmpIOp(arith.CmpIPredicate.ne, odd, zero).result
    inverse = arith.SelectOp(is_odd, minus_one, one).result
    inverse = arith.SelectOp(is_minus_one, inverse, zero).result
    inverse = arith.SelectOp(is_one, one, inverse).result
    return arith.SelectOp(negative, inverse, result).result


def rsqrt(e: Emitter, x: Lanes) -> Lanes:
    """1/sqrt(x), two correctly rounded steps."""
    return 1.0 / e.sqrt(x)


def cbrt(e: Emitter, x: Lanes) -> Lanes:
    """Halley's iteration from a third of the exponent (W. Kahan, "Computing a real cube root", 1991)."""
    a = e.abs(x)
    # Denormals need a scale for their exponent, large numbers one for 3a; both are cubes.
    step = 24 if e.bits == 32 else 54
    tiny, huge = e.compare("olt", a, 2.0 ** (1 - e.bias)), e.compare("ogt", a, 2.0 ** (e.bias - step))
    a = a * e.select(tiny, 2.0**step, e.select(huge, 2.0**-step, 1.0))
    third = e.int_op("divui", e.as_int(a), 3)
    # (bias - bias/3) in the exponent, less the mean error of the linear interpolation (0.0387) of log2
    t = e.as_float(e.int_op("addi", third, int((e.bias - 0.0450) * 2 / 3 * 2**e.mantissa)))
    for _ in range(1 if e.bits == 32 else 2):
        cube = t * t * t
        t = t * ((cube + 2.0 * a) / (2.0 * cube + a))
    square = t * t  # the last step as a correction, with the residual a - t^3 to twice the precision
    residual = e.fma(-square, t, a) - t * e.fma(t, t, -square)
    t = e.fma(t, residual / e.fma(square * t, 2.0, a), t)
    t = t * e.select(tiny, 2.0 ** -(step // 3), e.select(huge, 2.0 ** (step // 3), 1.0))
    t = e.select(e.compare("oeq", a, 0.0), 0.0, t)
    t = e.select(e.compare("uge", a, math.inf), a, t)
    return e.with_sign(t, e.sign_bit(x))


def remainder(e: Emitter, x: Lanes, y: Lanes) -> Lanes:
    """C's fmod, exact: x - trunc(x/y) y, whose quotient the rounded division may miss by one.

    Exact in one fma while the quotient has a bit less than the mantissa; libm takes the lanes beyond, and those with
    y = inf.  y = 0 and NaNs come out as NaN by themselves, so that empty lanes of a loop's tail cost nothing.
    """
    a, b = e.abs(x), e.abs(y)
    quotient = a / b
    q = e.trunc(quotient)
    r = e.fma(-q, b, a)
    r = e.select(e.compare("olt", r, 0.0), r + b, r)
    r = e.select(e.compare("oge", r, b), r - b, r)
    large = e.compare("oge", quotient, 2.0 ** (e.mantissa - 1)) & e.compare("ogt", b, 0.0)
    rare = large | e.compare("oeq", b, math.inf)
    return repair_with_libm(e, "fmod", rare, e.with_sign(e.abs(r), e.sign_bit(x)), x, y)
