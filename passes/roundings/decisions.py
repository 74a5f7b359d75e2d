# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Values of a fusion that have to be what eager's ops would make of them, to the bit.

Small changes of a number make small changes of a sum, but may turn a comparison, a rounding to integers or the place
of a maximum. Where the same decision is made again by another kernel, or by the backward pass, the two have to agree:
`x == x.amax()` must hold somewhere, whichever of the two was recomputed. So what decides is computed with eager's
roundings, from the first op to the last: it is then the same wherever it is computed, and from whatever is in memory.

A comparison with a constant that only selects between values of the same kernel is none of these: in the kernel it is
consistent with the values it chooses between (a ReLU, a clamp), and nothing else sees it.
"""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.kiln import Role, name_of, opdef
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import reduction_dims
from kiln.lowering.tile.dataflow import Dataflow, scalar_ops, yielded

__all__ = ["ARITHMETIC", "decided", "deciding_arguments", "is_float"]

_BINARY = ("addf", "subf", "mulf", "divf", "maximumf", "minimumf", "maxnumf", "minnumf")
_FUNCTIONS = {
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp", "exp2"),
    *("expm1", "fma", "fpowi", "log", "log10", "log1p", "log2", "powf", "rsqrt", "sin", "sincos", "sinh", "sqrt"),
    *("tan", "tanh"),
}
ARITHMETIC = {*(f"arith.{name}" for name in _BINARY), *(f"math.{name}" for name in _FUNCTIONS)}
"""Ops on floats whose result changes little where an operand does."""

_HANDED_ON = {"arith.extf", "arith.truncf", "arith.negf", "math.absf"}
_CONTINUOUS = ARITHMETIC | _HANDED_ON | {"arith.select", "math.copysign"}
_LOGIC = {"arith.andi", "arith.ori", "arith.xori", "arith.select"}
_EXTREMES = {"arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf"}
_ORDERED = {2, 3, 4, 5, 9, 10, 11, 12}  # gt, ge, lt, le
_NAN = {7, 14}  # ord, uno


def is_float(type_: ir.Type) -> bool:
    """Whether a scalar type is a float."""
    return isinstance(type_, ir.FloatType)


def decided(flow: Dataflow, wanted: Sequence[ir.Value] = ()) -> set[ir.Value]:
    """What decides in the body, and all that it is computed from there. wanted: results with which others decide."""
    return _computed_from(flow, [*_decisions(flow), *wanted])


def deciding_arguments(flow: Dataflow, wanted: Sequence[ir.Value] = ()) -> list[ir.Value]:
    """The body's arguments from which what decides is computed without a product: one kernel may compute such a value
    from what another has stored, and one from what that was computed from.
    """
    found = _computed_from(flow, [*_decisions(flow), *wanted], through_products=False)
    return [v for v in flow.block.arguments if v in found]


def _computed_from(flow: Dataflow, work: list[ir.Value], through_products: bool = True) -> set[ir.Value]:
    """Products are computed once, and their operands are rounded wherever they come from."""
    found: set[ir.Value] = set()
    while work:
        value = work.pop()
        op = defining_op(value)
        if value not in found and (through_products or op is None or opdef(op).role is not Role.CONTRACTION):
            found.add(value)
            work += flow.sources(value)
    return found


def _decisions(flow: Dataflow) -> list[ir.Value]:
    """The operands of ops that decide."""
    found: list[ir.Value] = []
    for op in flow.ops:
        if name_of(op) == "kiln.scan" and str(op.attributes["kind"]).strip('"') in ("max", "min"):
            found.append(op.operands[0])
        elif name_of(op) == "kiln.recurrence" and any(o.name == "arith.cmpf" for o in scalar_ops(op)):
            found += op.operands
    for generic in flow.generics:
        for op in scalar_ops(generic):
            if any(is_float(v.type) for v in op.operands) and _decides(flow, op):
                found += op.operands
        if reduction_dims(generic.opview):
            found += [
                v for v, r in zip(yielded(generic), generic.results, strict=True) if _is_stored_extreme(flow, v, r)
            ]
    return found


def _decides(flow: Dataflow, op: ir.Operation) -> bool:
    if op.name == "arith.cmpf":
        return not (_has_fixed_bound(op) and _stays_inside(flow, op.results[0]))
    if op.name == "arith.truncf":  # to 8 bits: no float type that ops compute in
        return op.results[0].type.width < 16
    return op.name not in _CONTINUOUS


def _has_fixed_bound(op: ir.Operation) -> bool:
    """Whether a comparison is with a constant, and of order, with zero, or for NaN."""
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    if predicate in _NAN:
        return True
    constants = [v for v in map(_constant, op.operands) if v is not None]
    return bool(constants) and (predicate in _ORDERED or 0.0 in constants)


def _constant(value: ir.Value) -> float | None:
    op = defining_op(value)
    if op is None or op.name != "arith.constant" or not isinstance(op.attributes["value"], ir.FloatAttr):
        return None
    return op.attributes["value"].value


def _hands_on(op: ir.Operation) -> bool:
    """Whether elements pass through an op on tensors as they are; a loop's body says what becomes of them."""
    return op.name in ("linalg.generic", "linalg.yield") or opdef(op).role is Role.MOVEMENT


def _stays_inside(flow: Dataflow, condition: ir.Value) -> bool:
    """Whether a boolean only selects between values, in whichever loops of the fusion."""
    work, seen = [condition], {condition}
    while work:
        for op, made in flow.readers(work.pop()):
            if op.name == "arith.select" and made is not None and is_float(made.type):
                continue
            moved = _hands_on(op) or op.name in _LOGIC
            if (
                not moved
                or made is None
                or (op.name == "linalg.yield" and op.parent is not None and reduction_dims(op.parent.opview))
            ):
                return False
            if made not in seen:
                seen.add(made)
                work.append(made)
    return True


def _is_stored_extreme(flow: Dataflow, value: ir.Value, result: ir.Value) -> bool:
    """Whether a reduction that yields `value` takes the largest or smallest element, and its result is stored as it is:
    others may look for the element that it came from.
    """
    op = defining_op(value)
    if op is None or op.name not in _EXTREMES:
        return False
    work, seen = [result], {result}
    while work:
        for reader, made in flow.readers(work.pop()):
            if made is None:
                return True
            handed_on = _hands_on(reader) or reader.name in _HANDED_ON
            if handed_on and made not in seen:
                seen.add(made)
                work.append(made)
    return False
