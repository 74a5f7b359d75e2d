# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where a short formula of a function is enough: a forward error analysis from the op to all that is stored.

`erf`, `tanh` and `exp` have formulas of half the instructions or a tenth of them, whose error is small beside one, but
not beside a small result (`Formula`). GELU and SiLU add one to it, so that the error becomes a relative one of the sum.
The analysis follows the error through every op that is computed from the result, in whichever loops of the fusion:

- the result must be added to, or subtracted from, a constant of at least one;
- products, quotients by constants, selections, absolute values and extremes hand a relative error on;
- a sum hands it on where both terms have one sign. A sum that may cancel, a comparison, a reduction, another function,
  a quotient by the result (but by 1 + exp) end the analysis: the exact formula is used;
- nothing that decides is computed from it (`EXACT`);
- what is stored has 16 bits. The relative error is at most an eighth of half a unit in the last place, and the absolute
  one at most `MOST_ABSOLUTE` times the tensors that the sum was multiplied with. Near the end of GELU's tail, where one
  and `erf` cancel, that is all there is to say: f32 itself leaves an error of 2^-25 of one there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isfinite

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.elements import element_of
from kiln.dialects.kiln import name_of
from kiln.dialects.rounding import EXACT, is_narrow
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import reduction_dims
from kiln.lowering.tile.dataflow import Dataflow

__all__ = ["CPU_FORMULAS", "GPU_FORMULAS", "MOST_ABSOLUTE", "MOST_RELATIVE", "Formula", "is_short_enough"]

MOST_ABSOLUTE = 2.0**-20
MOST_RELATIVE = {"bf16": 2.0**-12, "f16": 2.0**-15}
"""An eighth of half a unit in the last place of the largest mantissa."""


@dataclass(frozen=True)
class Formula:
    """Error of a short formula: at most `distance` times the distance of the exact value from one or minus one, plus
    `relative` times the value, plus `absolute`. early: an exponential that is infinite from 2^127 on.
    """

    distance: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0
    early: bool = False


CPU_FORMULAS = {
    "math.erf": Formula(distance=2.0**-15, absolute=2e-7),
    "math.tanh": Formula(distance=2.0**-15, absolute=2e-7),
    "math.exp": Formula(relative=2.0**-22, absolute=2.0**-126, early=True),
}
"""`lowering/cpu/vector_math/short.py`, and exponentials without the steps for the ends of the range."""

GPU_FORMULAS = {"math.erf": Formula(absolute=7e-7), "math.tanh": Formula(absolute=4e-7)}
"""`lowering/gpu/tile/beside_one.py`, with the hardware's power of two and quotient (2 ulp each)."""


@dataclass(frozen=True)
class _Error:
    """A value in [low, high] that is off by at most `relative` times itself plus `absolute`; by nothing if both are 0.

    early: it is infinite from 2^127 on.
    """

    relative: float = 0.0
    absolute: float = 0.0
    low: float = -inf
    high: float = inf
    early: bool = False

    @property
    def is_exact(self) -> bool:
        return not self.relative and not self.absolute

    @property
    def size(self) -> float:
        """The largest absolute value; one, the unit of `absolute`, for a tensor's numbers."""
        largest = max(abs(self.low), abs(self.high))
        return largest if isfinite(largest) else 1.0


def is_short_enough(op: ir.Operation, formulas: dict[str, Formula]) -> bool:
    """Whether the short formula of `op`, in a loop of a fusion, is as good as the exact one for all that is stored."""
    formula = formulas.get(op.name)
    if formula is None or EXACT in op.attributes or not isinstance(op.results[0].type, ir.F32Type):
        return False
    if not all(_beside_one(use.owner.operation, op.results[0], formula) for use in op.results[0].uses):
        return False
    loops = op.parent
    fusion = None if loops is None else loops.operation.parent
    if fusion is None or name_of(fusion) != "kiln.fusion":
        return False
    return _Analysis(fusion.operation, op.results[0], formula).holds()


def _beside_one(op: ir.Operation, f: ir.Value, formula: Formula) -> _Error | None:
    """The error of what `op` makes of `f`, the result of the formula: c + f, c - f or f - c for a constant |c| >= 1.

    |c + f| and |c - f| are at least the distance of f from one or minus one, so that the error is relative to them.
    """
    operands = list(op.operands)
    if op.name not in ("arith.addf", "arith.subf") or operands.count(f) != 1:
        return None
    c = _constant(operands[1 - operands.index(f)])
    if c is None or abs(c) < 1:
        return None
    if formula.early:  # an exponential
        relative = formula.relative + formula.absolute
        return _Error(relative, 0.0, c, inf, early=True) if op.name == "arith.addf" and c >= 1 else None
    middle = -c if op.name == "arith.subf" and operands[0] == f else c
    return _Error(formula.distance, formula.absolute, middle - 1, middle + 1)


class _Analysis:
    """Errors of all that is computed from `source` in a fusion."""

    def __init__(self, fusion: ir.Operation, source: ir.Value, formula: Formula) -> None:
        self.flow, self.source, self.formula = Dataflow(fusion), source, formula
        self.known: dict[ir.Value, _Error | None] = {}
        self.affected = [source]
        for value in self.affected:
            self.affected += [made for _, made in self.flow.readers(value) if made and made not in self.affected]

    def holds(self) -> bool:
        """Whether each value has a bound, and what is stored a small one."""
        computed = self.affected[1:]
        if self.flow.is_stored(self.source) or not all(self._error(value) for value in computed):
            return False
        return all(_may_be_stored(value, self._error(value)) for value in computed if self.flow.is_stored(value))

    def _error(self, value: ir.Value) -> _Error | None:
        if value not in self.affected:
            constant = _constant(value)
            return _Error() if constant is None else _Error(low=constant, high=constant)
        if value not in self.known:
            self.known[value] = self._bound(value)
        return self.known[value]

    def _bound(self, value: ir.Value) -> _Error | None:
        op = defining_op(value)
        if op is not None and self.source in list(op.operands):
            return _beside_one(op, self.source, self.formula)
        if op is None or op.name == "linalg.generic":
            sums = op is not None and reduction_dims(op.opview)
            return None if sums else self._error(self.flow.sources(value)[0])
        errors = [self._error(v) for v in op.operands]
        operands = [error for error in errors if error is not None]
        rule = _RULES.get(name_of(op))
        return rule(op, operands) if rule is not None and len(operands) == len(errors) else None


def _may_be_stored(value: ir.Value, error: _Error | None) -> bool:
    limit = MOST_RELATIVE.get(str(element_of(value.type)))
    if error is None or limit is None or error.early:
        return False
    return error.relative <= limit and error.absolute <= MOST_ABSOLUTE


def _constant(value: ir.Value) -> float | None:
    op = defining_op(value)
    if op is None or op.name != "arith.constant" or not isinstance(op.attributes["value"], ir.FloatAttr):
        return None
    return op.attributes["value"].value


# ----------------------------------------------------------------------------------------------------- one op at a time


def _sum(op: ir.Operation, operands: list[_Error]) -> _Error | None:
    """Terms of one sign; the error is one term's."""
    x, y = operands
    if op.name == "arith.subf":
        y = replace(y, low=-y.high, high=-y.low)
    one_sign = min(x.low, y.low) >= 0 or max(x.high, y.high) <= 0
    if not one_sign or x.early or y.early or not (x.is_exact or y.is_exact):
        return None
    return _Error(x.relative + y.relative, x.absolute + y.absolute, x.low + y.low, x.high + y.high)


def _product(op: ir.Operation, operands: list[_Error]) -> _Error | None:
    x, y = operands
    if x.early or y.early:
        return None
    relative = x.relative + y.relative + x.relative * y.relative
    return _Error(relative, x.absolute * y.size + y.absolute * x.size, *_range(x, y))


def _range(x: _Error, y: _Error) -> tuple[float, float]:
    ends = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    return (min(ends), max(ends)) if all(map(isfinite, ends)) else (-inf, inf)


def _quotient(op: ir.Operation, operands: list[_Error]) -> _Error | None:
    """By a constant; or by one and an exponential, whose early infinity is an error of 2^-127."""
    x, y = operands
    if x.early:
        return None
    if y.early:
        absolute = x.absolute + x.size * 2.0**-127
        return _Error(x.relative + y.relative, absolute, min(x.low, 0.0), max(x.high, 0.0))
    if not y.is_exact or y.low != y.high or not y.low:
        return None
    inverse = 1 / y.low
    return _product(op, [x, _Error(low=inverse, high=inverse)])


def _same(op: ir.Operation, operands: list[_Error]) -> _Error | None:
    fits = op.name != "arith.truncf" or is_narrow(op.results[0].type)
    return operands[0] if fits else None


def _negative(op: ir.Operation, operands: list[_Error]) -> _Error | None:
    x = operands[0]
    return None if x.early else replace(x, low=-x.high, high=-x.low)


def _size(op: ir.Operation, operands: list[_Error]) -> _Error | None:
    x = operands[0]
    return replace(x, low=0.0, high=max(abs(x.low), abs(x.high)))


def _choice(op: ir.Operation, operands: list[_Error]) -> _Error | None:
    """One of several values; the condition of a selection is exact, for comparisons have no rule."""
    values = operands[1:] if op.name == "arith.select" else operands
    if any(x.early for x in values):
        return None
    return _Error(
        max(x.relative for x in values),
        max(x.absolute for x in values),
        min(x.low for x in values),
        max(x.high for x in values),
    )


_Rule = Callable[[ir.Operation, list[_Error]], _Error | None]
_RULES: dict[str, _Rule] = {
    "arith.addf": _sum, "arith.subf": _sum, "arith.mulf": _product, "arith.divf": _quotient,
    "arith.extf": _same, "arith.truncf": _same, "arith.negf": _negative, "math.absf": _size,
    "arith.select": _choice, "arith.maximumf": _choice, "arith.minimumf": _choice, "arith.maxnumf": _choice,
    "arith.minnumf": _choice,
    **kiln.by_name({kiln.ViewOp: lambda op, operands: operands[0], kiln.PadOp: _choice, kiln.CatOp: _choice}),
}  # fmt: skip
