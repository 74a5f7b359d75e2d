# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Negated comparisons, and comparisons of booleans with false."""

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.passes.torch_to_kiln.torch_values import op_name

from .expressions import Match, NoMatch
from .rules import Safety, rule
from .values import dtype_of

T = "comparisons"
EXACT, INTEGER = Safety.EXACT, Safety.INTEGER

_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def _negated(m: Match) -> ir.Value:
    comparison = defining_op(m.operand(0))
    assert comparison is not None
    _, _, name, overload = op_name(comparison).split(".")
    return m.build(f"{_OPPOSITE[name]}.{overload}", *comparison.operands)


for _not in ("logical_not", "bitwise_not"):
    for _name, _other in _OPPOSITE.items():
        _equality = _name in ("eq", "ne")
        _why = "NaN is equal to nothing, and so unlike all" if _equality else "neither holds for NaN"
        rule(
            f"{_not.replace('_', '-')}-{_name}",
            f"{_not}({_name}(x, y))",
            f"{_other}(x, y)",
            EXACT if _equality else INTEGER,
            _why,
            T,
        )(_negated)


def _boolean(m: Match) -> ir.Value:
    if dtype_of(m["x"]) != "i1":
        raise NoMatch("")
    return m.like_root(m["x"])


@rule("eq-false", "eq(x, 0)", "logical_not(x)", EXACT, "for booleans", T)
def eq_false(m: Match) -> ir.Value:
    """`x == False` is `not x`, for booleans."""
    return m.build("logical_not", _boolean(m))


rule("ne-false", "ne(x, 0)", "x", EXACT, "for booleans", T)(_boolean)
