# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Positions of extrema in two steps (`split-reductions`): of each part by its own extremum.

The least index whose element equals the extremum of a whole row needs that first, so the row is read twice, by two
kernels. Parts whose extremum is the row's hold its positions, and the least of a part's own is what they contribute; so
extremum and position of a part come from one reading, in one kernel, and the second step reads partial results alone.
"""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import indexing_maps, output_map
from kiln.lowering.tile.combiner import Combiner
from kiln.passes.partial_reductions import Parts, clone_with, projection, second_step

__all__ = ["PartialExtremum", "find_position", "is_extremum"]

_EXTREMA = frozenset({"maximumf", "minimumf", "maxsi", "minsi", "maxui", "minui"})
"""Combiners that take a NaN as what wins, as the search for positions does."""
_COMPARISONS = frozenset({"arith.cmpf", "arith.cmpi", "arith.ori"})
_ORDERED_EQUAL, _UNORDERED, _EQUAL = 1, 14, 0
"""Predicates: of `arith.cmpf`, oeq and uno; of `arith.cmpi`, eq."""


@dataclass(frozen=True)
class PartialExtremum:
    """An extremum that was split: of what, its result, those of the parts, and its dims' loops of the original op."""

    of: ir.Value
    of_map: ir.AffineMap
    out_map: ir.AffineMap
    result: ir.Value
    partial: ir.Value
    parts: Parts


@dataclass(frozen=True)
class _Position:
    """A reduction to the least index of an element that equals the extremum: numbers of its inputs, and in its body
    what is true of such an element, and its index.
    """

    element: int
    best: int
    is_found: ir.Value
    index: ir.Value


def is_extremum(op: ir.OpView, combiner: Combiner) -> bool:
    """Whether a reduction is the extremum of its one input's elements, and of nothing else computed from these."""
    if combiner.kind not in _EXTREMA or len(op.operands) != 2:
        return False
    element, best = op.regions[0].blocks[0].arguments
    last = defining_op(list(op.regions[0].blocks[0].operations)[-1].operands[0])
    assert last is not None, "a reduction by a known combiner"
    return all(v == best or v in _compared(element) for v in last.operands)


def _compared(element: ir.Value) -> list[ir.Value]:
    """An element of 16 bits, or its extension, in which it is compared."""
    users = [use.owner for use in element.uses]
    return [element, *(u.results[0] for u in users if u.operation.name == "arith.extf")]


def find_position(op: ir.OpView, combiner: Combiner, extremum: PartialExtremum, parts: Parts) -> _Position | None:
    """How a reduction looks for the positions of a split extremum, if it does, in parts like these."""
    if combiner.kind != "minsi" or parts != extremum.parts or len(op.operands) != 3:
        return None
    maps = indexing_maps(op)
    inputs = list(op.operands)[:2]
    best = next((i for i, value in enumerate(inputs) if value == extremum.result), None)
    if best is None or inputs[1 - best] != extremum.of or maps[1 - best] != extremum.of_map:
        return None
    if maps[best] != extremum.out_map or output_map(op) != extremum.out_map:
        return None
    block = op.regions[0].blocks[0]
    least = defining_op(list(block.operations)[-1].operands[0])
    assert least is not None, "a reduction by a known combiner"
    chosen = next(v for v in least.operands if v != block.arguments[2])
    select = defining_op(chosen)
    if select is None or select.name != "arith.select" or not _is_constant(select.operands[2], combiner.identity):
        return None
    found = _Position(1 - best, best, select.operands[0], select.operands[1])
    value = block.arguments[found.best]
    elements = _compared(block.arguments[found.element])
    if _reads(found.index, [elements[0], value, block.arguments[2]]):
        return None
    return found if any(_is_equality(found.is_found, e, value) for e in elements) else None


def split_position(op: ir.OpView, combiner: Combiner, extremum: PartialExtremum, position: _Position) -> ir.Value:
    """The position in two steps."""
    parts = extremum.parts
    rank = len(parts.extents) + len(parts.within)
    own = ir.AffineMap.get(rank, 0, [*extremum.out_map.results, *parts.numbers.values()])
    partial = parts.partial(op, combiner, {position.best: (extremum.partial, own)})
    sizes = len(extremum.out_map.results)
    whole = projection(sizes + len(parts.splits), range(sizes))
    made, block = second_step(op, [(extremum.partial, None), (extremum.result, whole), (partial, None)])
    of_part, best, index, least = block.arguments
    source = op.regions[0].blocks[0]
    env: dict[ir.Value, ir.Value] = {
        **dict.fromkeys(_compared(source.arguments[position.element]), of_part),
        source.arguments[position.best]: best,
        source.arguments[2]: least,
        position.index: index,
    }
    with ir.InsertionPoint(block):
        for inner in _needed(list(source.operations)[-1].operation, list(env)):
            clone_with(inner, env)
    return made.results[0]


def _needed(last: ir.Operation, given: list[ir.Value]) -> list[ir.Operation]:
    """The ops of a body that one of its ops needs, where some values are given, and itself: in their order."""
    block = last.block
    found = [last]
    for op in reversed(list(block.operations)[:-1]):
        results = [r for r in op.operation.results if r not in given]
        if any(r in list(user.operands) for r in results for user in found):
            found.append(op.operation)
    return found[::-1]


def _is_constant(value: ir.Value, attribute: ir.Attribute | None) -> bool:
    owner = defining_op(value)
    return owner is not None and owner.name == "arith.constant" and owner.attributes["value"] == attribute


def _reads(value: ir.Value, arguments: list[ir.Value]) -> bool:
    """Whether a body computes a value from one of its arguments."""
    if value in arguments:
        return True
    owner = defining_op(value)
    return owner is not None and any(_reads(v, arguments) for v in owner.operands)


def _is_equality(value: ir.Value, element: ir.Value, best: ir.Value) -> bool:
    """Whether a condition holds for an element that equals the extremum, or is NaN, and for no other."""
    owner = defining_op(value)
    if owner is None or owner.name not in _COMPARISONS:
        return False
    operands = list(owner.operands)
    if owner.name == "arith.ori":
        return any(_is_equality(x, element, best) and _is_nan(y, element) for x, y in (operands, operands[::-1]))
    wanted = _ORDERED_EQUAL if owner.name == "arith.cmpf" else _EQUAL
    return ir.IntegerAttr(owner.attributes["predicate"]).value == wanted and operands in (
        [element, best],
        [best, element],
    )


def _is_nan(value: ir.Value, element: ir.Value) -> bool:
    owner = defining_op(value)
    return (
        owner is not None
        and owner.name == "arith.cmpf"
        and ir.IntegerAttr(owner.attributes["predicate"]).value == _UNORDERED
        and list(owner.operands) == [element, element]
    )
