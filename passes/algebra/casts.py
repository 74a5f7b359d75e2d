# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Conversions of element types."""

from torch_mlir import ir

from kiln.dialects.walk import defining_op

from .expressions import Match, NoMatch
from .rules import Safety, rule
from .values import dtype_of, is_tensor

T = "casts"
EXACT = Safety.EXACT

# Element type -> types that hold each of its values.
_HELD_BY: dict[str, frozenset[str]] = {
    "f16": frozenset({"f32", "f64"}),
    "bf16": frozenset({"f32", "f64"}),
    "f32": frozenset({"f64"}),
    "i1": frozenset({"ui8", "si8", "si16", "si32", "si64", "f16", "bf16", "f32", "f64"}),
    "ui8": frozenset({"si16", "si32", "si64", "f16", "bf16", "f32", "f64"}),
    "si8": frozenset({"si16", "si32", "si64", "f16", "bf16", "f32", "f64"}),
    "si16": frozenset({"si32", "si64", "f32", "f64"}),
    "si32": frozenset({"si64", "f64"}),
}


def _only_dtype(m: Match, value: ir.Value) -> None:
    """(self, dtype, layout, device, pin_memory, non_blocking, memory_format): the rest is what it was."""
    op = defining_op(value)
    assert op is not None
    fields = [m.const_of(op.operands[k], f"operand {k}") for k in (2, 4, 6)]
    m.need(fields[0] in (None, 0) and not fields[1], "it changes more than the element type")
    m.need(fields[2] in (None, 1), "it asks for a memory format")


@rule("cast-same", "cast(x)", "x  (same element type)", EXACT, "nothing is converted", T)
def cast_same(m: Match) -> ir.Value:
    """A cast to the dtype that `x` has is `x`."""
    if not is_tensor(m["x"]) or dtype_of(m["x"]) != dtype_of(m.result):
        raise NoMatch("")
    _only_dtype(m, m.result)
    return m.like_root(m["x"])


@rule(
    "cast-cast",
    "cast(cast(x))",
    "cast(x)",
    EXACT,
    "the type in between holds every value of x's type; other chains round or wrap and stay",
    T,
)
def cast_cast(m: Match) -> ir.Value:
    """Two casts are one where the dtype between them holds every value of the first."""
    middle = m.operand(0)
    _only_dtype(m, m.result)
    _only_dtype(m, middle)
    source = dtype_of(m["x"])
    held = dtype_of(middle) in _HELD_BY.get(source, frozenset())
    m.need(held, f"{dtype_of(middle)} does not hold every value of {source}")
    if source == dtype_of(m.result):
        return m.like_root(m["x"])
    return m.build("_to_copy", m["x"], *list(m.root.operands)[1:])
