# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Neutral and absorbing elements, idempotent functions, signs."""

import math

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.passes.torch_to_kiln.torch_values import op_name

from .expressions import Match, NoMatch
from .rules import Safety, row, rule
from .values import dtype_of, is_integral, sizes_of, splat_of

T = "identities"
EXACT, INTEGER, FAST = Safety.EXACT, Safety.INTEGER, Safety.FAST

row("mul-one", "mul(x, 1)", "x", EXACT, "IEEE 754: x * 1 is x", T)
row("div-one", "div(x, 1)", "x", EXACT, "x / 1 is x; integers become floats and are left alone", T)
row("mul-zero", "mul(x, 0)", "full(x, 0)", INTEGER, "NaN * 0 and Inf * 0 are NaN, -1 * 0 is -0", T)
row("mul-minus-one", "mul(x, -1)", "neg(x)", EXACT, "both flip the sign bit", T)
row("div-minus-one", "div(x, -1)", "neg(x)", EXACT, "both flip the sign bit", T)
row("sub-self", "sub(x, x)", "full(x, 0)", INTEGER, "Inf - Inf and NaN - NaN are NaN", T)
row("div-self", "div(x, x)", "full(x, 1)", FAST, "0 / 0, Inf / Inf and NaN / NaN are NaN", T)
row("add-neg", "add(x, neg(y))", "sub(x, y)", EXACT, "IEEE 754 defines x - y as x + (-y)", T)
row("sub-neg", "sub(x, neg(y))", "add(x, y)", EXACT, "IEEE 754 defines x - y as x + (-y)", T)
row("mul-neg-neg", "mul(neg(x), neg(y))", "mul(x, y)", EXACT, "the signs cancel before rounding", T)
row("abs-neg", "abs(neg(x))", "abs(x)", EXACT, "abs clears the sign bit", T)
row("maximum-self", "maximum(x, x)", "x", EXACT, "idempotent; NaN stays NaN", T)
row("minimum-self", "minimum(x, x)", "x", EXACT, "idempotent; NaN stays NaN", T)
row("and-self", "bitwise_and(x, x)", "x", EXACT, "idempotent", T)
row("xor-self", "bitwise_xor(x, x)", "full(x, 0)", EXACT, "every bit is equal to itself", T)
row("mul-abs-abs", "mul(abs(x), abs(x))", "mul(x, x)", EXACT, "the signs cancel before rounding", T)
row("neg-sub", "neg(sub(x, y))", "sub(y, x)", INTEGER, "1 - 1 is +0.0, and -(1 - 1) is -0.0", T)
row("rsub-zero", "rsub(x, 0)", "neg(x)", INTEGER, "0.0 - 0.0 is +0.0, and -(+0.0) is -0.0", T)
row("or-self", "bitwise_or(x, x)", "x", EXACT, "idempotent", T)

for _name in ("relu", "abs", "floor", "ceil", "round", "trunc", "sign"):
    row(f"{_name}-{_name}", f"{_name}({_name}(x))", f"{_name}(x)", EXACT, "idempotent", T)
for _outer in ("relu", "abs"):
    for _inner in ("sigmoid", "exp"):
        _why = f"{_inner} is never negative and never -0; NaN stays NaN"
        row(f"{_outer}-{_inner}", f"{_outer}({_inner}(x))", f"{_inner}(x)", EXACT, _why, T)


@rule(
    "add-zero",
    "add(x, c)",
    "x  (c = 0)",
    EXACT,
    "exact for integers, for c = -0.0 and where x is never -0.0; else -0.0 + 0.0 is +0.0 and it needs fast_math",
    T,
)
def add_zero(m: Match) -> ir.Value:
    """`x + 0` is `x`; for floats where `x` is never -0.0, or with fast_math."""
    zero = splat_of(m["c"])
    if zero is None or zero != 0:
        raise NoMatch("")
    value = m.like_root(m["x"])
    if not is_integral(m.result) and not _negative_zero(zero) and not never_negative_zero(value) and not m.fast_math:
        raise NoMatch("needs fast_math: -0.0 + 0.0 is +0.0")
    return value


@rule(
    "sub-zero",
    "sub(x, c)",
    "x  (c = 0)",
    EXACT,
    "exact for integers and for c = +0.0; x - (-0.0) is x + 0.0 and needs fast_math",
    T,
)
def sub_zero(m: Match) -> ir.Value:
    """`x - 0` is `x`; `x - (-0.0)` for floats only with fast_math."""
    zero = splat_of(m["c"])
    if zero is None or zero != 0:
        raise NoMatch("")
    if not is_integral(m.result) and _negative_zero(zero) and not m.fast_math:
        raise NoMatch("needs fast_math: -0.0 - (-0.0) is +0.0")
    return m.like_root(m["x"])


def _scalar_operand(m: Match) -> ir.Value:
    """An operand without dimensions as a number: what other rules and patterns look for."""
    number = _constant_number(m["c"])
    if number is None or sizes_of(m["c"]) != () or dtype_of(m["c"]) != dtype_of(m.result):
        raise NoMatch("")
    name = op_name(m.root).removeprefix("torch.aten.").removesuffix(".Tensor")
    return m.build(f"{name}.Scalar", m.like_root(m["x"]), m.number(number), *list(m.root.operands)[2:])


def _constant_number(value: ir.Value) -> float | None:
    """The number in a constant tensor of one: a literal, or an argument whose value is known."""
    from kiln.passes.folding.tensors import argument_constant

    literal = defining_op(value)
    if literal is not None:
        number = splat_of(value) if literal.name == "torch.vtensor.literal" else None
    else:
        tensor = argument_constant(value)
        number = tensor.item() if tensor is not None and tensor.numel() == 1 else None
    return number if isinstance(number, int | float) and not isinstance(number, bool) else None


for _name in ("add", "sub", "mul", "div"):
    _why = "the constant has the result's element type, so that it is the same number"
    rule(f"{_name}-literal", f"{_name}(x, c)", f"{_name}(x, number)  (c constant, without dimensions)", EXACT, _why, T)(
        _scalar_operand
    )


def _negative_zero(number: float) -> bool:
    return math.copysign(1.0, number) < 0


_NEVER_NEGATIVE_ZERO = frozenset(f"torch.aten.{name}" for name in ("abs", "exp", "sigmoid", "_softmax", "cosh", "exp2"))


def never_negative_zero(value: ir.Value) -> bool:
    """Whether no element can be -0.0, by the op that makes the value."""
    op = defining_op(value)
    return op is not None and op_name(op) in _NEVER_NEGATIVE_ZERO


@rule(
    "mul-mul-constants",
    "mul(mul(x, a), b)",
    "mul(x, a * b)",
    INTEGER,
    "one rounding instead of two, and a * x may overflow where x * (a * b) does not",
    T,
)
def mul_constants(m: Match) -> ir.Value:
    """`(x * a) * b` is `x * (a * b)`."""
    a, b = _numbers(m)
    return m.build("mul.Scalar", m.like_root(m["x"]), m.number(_combined(a * b)))


@rule(
    "add-add-constants",
    "add(add(x, a), b)",
    "add(x, a + b)",
    INTEGER,
    "reassociation: one rounding instead of two",
    T,
)
def add_constants(m: Match) -> ir.Value:
    """`(x + a) + b` is `x + (a + b)`."""
    a, b = _numbers(m)
    return m.build("add.Scalar", m.like_root(m["x"]), m.number(_combined(a + b)), m.number(1))


def _numbers(m: Match) -> tuple[float, float]:
    a, b = m.const("a"), m.const("b")
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        raise NoMatch("")
    return a, b


def _combined(number: float) -> float:
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise NoMatch("the combined constant overflows")
    return number
