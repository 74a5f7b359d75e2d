# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Between which numbers the elements of tensors lie, as far as loops, constants and arithmetic on them say.

Asked for one value at a time, from its use backwards: a question costs the ops that the value is computed from. Floats
have a range only where none can be NaN; each op widens it by more than its rounding.
"""

import math
import operator
from collections.abc import Callable, Sequence

import numpy as np
from torch_mlir import ir

from kiln.dialects.kiln import CatOp, ViewOp, opdef
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import indexing_maps, reduction_dims

__all__ = ["ElementRanges", "Range"]

Range = tuple[float, float]
"""The least and the largest number; integers are exact."""

_MOST_OPS = 64
"""Ops from a value back to where its range is known or given up. It bounds the search, and was not measured."""
_SLT, _SGT, _SGE = 2, 4, 5
"""Predicates of `arith.cmpi`; sle lies between."""


class ElementRanges:
    """Ranges of the values of one function. Nothing may change what a value is computed from while it is in use."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, Range | None] = {}

    def of(self, value: ir.Value, depth: int = _MOST_OPS) -> Range | None:
        """The range of a tensor's elements, or of a scalar in the body of a `linalg.generic`; None if it is unknown."""
        if value not in self._known:
            self._known[value] = self._find(value, depth) if depth else None
        return self._known[value]

    def decided(self, condition: ir.Value, depth: int = _MOST_OPS) -> bool | None:
        """Whether a signed comparison holds for all numbers of its ranges, or for none; None if that is unknown."""
        op = defining_op(condition)
        if op is None or op.name != "arith.cmpi":
            return None
        a, b = (self.of(v, depth) for v in op.operands)
        predicate: int = ir.IntegerAttr(op.attributes["predicate"]).value
        if a is None or b is None or not _SLT <= predicate <= _SGE:
            return None
        if predicate >= _SGT:
            a, b, predicate = b, a, predicate - 2
        if predicate == _SLT:
            return True if a[1] < b[0] else False if a[0] >= b[1] else None
        return True if a[1] <= b[0] else False if a[0] > b[1] else None

    def _find(self, value: ir.Value, depth: int) -> Range | None:
        op = defining_op(value)
        if op is None:
            return self._of_argument(ir.BlockArgument(value), depth)
        if op.name == "arith.constant":
            return _of_constant(op.attributes["value"])
        if op.name == "linalg.generic":
            if reduction_dims(op.opview):
                return None
            *_, last = op.regions[0].blocks[0].operations
            return self.of(last.operands[ir.OpResult(value).result_number], depth - 1)
        if opdef(op).op in (ViewOp, CatOp):
            return _union([self.of(v, depth - 1) for v in op.operands if isinstance(v.type, ir.RankedTensorType)])
        if op.name == "linalg.index":
            return self._of_index(op)
        if op.name == "arith.select":
            holds = self.decided(op.operands[0], depth - 1)
            chosen = list(op.operands)[1:] if holds is None else [op.operands[1 if holds else 2]]
            return _union([self.of(v, depth - 1) for v in chosen])
        rule = _RULES.get(op.name)
        if rule is None:
            return None
        ranges = [self.of(v, depth - 1) for v in op.operands]
        known = [r for r in ranges if r is not None]
        if len(known) < len(ranges):
            return _one_sided(op, ranges)
        return _settled(rule(*known), op.results[0].type)

    def _of_argument(self, argument: ir.BlockArgument, depth: int) -> Range | None:
        op = argument.owner.owner
        if op is None or op.operation.name != "linalg.generic":
            return None
        number, operands = argument.arg_number, list(op.operation.operands)
        return self.of(operands[number], depth - 1) if number < len(operands) - len(op.operation.results) else None

    def _of_index(self, op: ir.Operation) -> Range | None:
        """The indices of a loop: from 0 to its extent, which one of the tensors has."""
        generic = op.parent
        assert generic is not None
        d = ir.AffineExpr.get_dim(ir.IntegerAttr(op.attributes["dim"]).value, op.context)
        for operand, map_ in zip(generic.operands, indexing_maps(generic.opview), strict=True):
            type_ = ir.RankedTensorType(operand.type)
            for k, e in enumerate(map_.results):
                if e == d and not type_.is_dynamic_dim(k):
                    return 0, max(0, type_.shape[k] - 1)
        return None


def _of_constant(attribute: ir.Attribute) -> Range | None:
    if isinstance(attribute, ir.IntegerAttr | ir.FloatAttr):
        number: float = attribute.value
        return None if math.isnan(number) or math.isinf(number) else (number, number)
    if isinstance(attribute, ir.DenseIntElementsAttr):
        element = ir.ShapedType(attribute.type).element_type
        if not isinstance(element, ir.IntegerType) or element.width < 8:
            return None
        numbers = np.array(attribute)
        return (int(numbers.min()), int(numbers.max())) if numbers.size else None
    return None


def _union(ranges: Sequence[Range | None]) -> Range | None:
    known = [r for r in ranges if r is not None]
    if not known or len(known) < len(ranges):
        return None
    return min(r[0] for r in known), max(r[1] for r in known)


def _one_sided(op: ir.Operation, ranges: Sequence[Range | None]) -> Range | None:
    """An extremum of an integer that may be any and one that is bounded."""
    element = op.results[0].type
    if op.name not in ("arith.maxsi", "arith.minsi") or not isinstance(element, ir.IntegerType):
        return None
    most = 2 ** (element.width - 1)
    whole: Range = (-most, most - 1)
    return _RULES[op.name](*(whole if r is None else r for r in ranges))


def _settled(found: Range | None, type_: ir.Type) -> Range | None:
    """A result that its type can hold; a float's with room for its rounding."""
    if found is None:
        return None
    low, high = found
    if isinstance(type_, ir.IntegerType | ir.IndexType):
        width = type_.width if isinstance(type_, ir.IntegerType) else 64
        return found if -(2 ** (width - 1)) <= low and high < 2 ** (width - 1) else None
    slack = {16: 2.0**-6, 32: 2.0**-20}.get(ir.FloatType(type_).width, 2.0**-40)
    low, high = low - abs(low) * slack - 1e-30, high + abs(high) * slack + 1e-30
    most = 65504.0 if isinstance(type_, ir.F16Type) else 3e38
    return (low, high) if -most < low and high < most else None


def _corners(combine: Callable[[float, float], float]) -> Callable[[Range, Range], Range]:
    """Of what is monotonic in each operand."""

    def rule(a: Range, b: Range) -> Range:
        found = [combine(x, y) for x in a for y in b]
        return min(found), max(found)

    return rule


def _divided(a: Range, b: Range) -> Range | None:
    return None if b[0] <= 0 <= b[1] else _corners(lambda x, y: x / y)(a, b)


def _quotient(a: Range, b: Range) -> Range | None:
    """Of integers that are not negative."""
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else None


def _remainder(a: Range, b: Range) -> Range | None:
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else None


def _common_bits(a: Range, b: Range) -> Range | None:
    return (0, min(a[1], b[1])) if a[0] >= 0 and b[0] >= 0 else None


def _kept(a: Range) -> Range:
    return a


def _unsigned(a: Range) -> Range | None:
    return a if a[0] >= 0 else None


def _each(function: Callable[[float], float]) -> Callable[[Range], Range]:
    def rule(a: Range) -> Range:
        return function(a[0]), function(a[1])

    return rule


_SUM, _DIFFERENCE, _PRODUCT = _corners(operator.add), _corners(operator.sub), _corners(operator.mul)
_LARGER, _SMALLER = _corners(max), _corners(min)
_RULES: dict[str, Callable[..., Range | None]] = {
    "arith.addi": _SUM,
    "arith.subi": _DIFFERENCE,
    "arith.muli": _PRODUCT,
    "arith.divsi": _quotient,
    "arith.divui": _quotient,
    "arith.remsi": _remainder,
    "arith.remui": _remainder,
    "arith.andi": _common_bits,
    "arith.maxsi": _LARGER,
    "arith.minsi": _SMALLER,
    "arith.extsi": _kept,
    "arith.extui": _unsigned,
    "arith.trunci": _kept,
    "arith.index_cast": _kept,
    "arith.index_castui": _unsigned,
    "arith.sitofp": _kept,
    "arith.uitofp": _unsigned,
    "arith.fptosi": _each(math.trunc),
    "arith.extf": _kept,
    "arith.truncf": _kept,
    "arith.addf": _SUM,
    "arith.subf": _DIFFERENCE,
    "arith.mulf": _PRODUCT,
    "arith.divf": _divided,
    "arith.maximumf": _LARGER,
    "arith.minimumf": _SMALLER,
    "arith.maxnumf": _LARGER,
    "arith.minnumf": _SMALLER,
    "math.floor": _each(math.floor),
    "math.ceil": _each(math.ceil),
    "math.roundeven": _each(round),
    "math.trunc": _each(math.trunc),
}
