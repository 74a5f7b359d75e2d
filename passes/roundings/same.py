# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which roundings of several fusions make one number.

Fusion computes a value again where that is cheaper than to read it. A value that one kernel stores or decides with is
rounded there; another one that computes it without its rounding would have another number. ``exp(x - max(x))`` of the
two is off by the rounding of `x`, which is more than one for large `x`.

Two kernels may compute a value in two shapes, one split into groups, say. So which elements a loop or a view takes is
no part of a number: what equal ops compute from elements of equal tensors has one. Where that takes two values for one,
a rounding is kept that could be left out, as in eager.
"""

from collections.abc import Callable, Iterator

from torch_mlir import ir

from kiln.dialects.rounding import EXACT, is_implicit
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.dataflow import Dataflow, scalar_ops
from kiln.passes.roundings.kept import element_type

__all__ = ["Numbering"]

_Key = tuple[object, ...]

_OTHER = {EXACT, "indexing_maps", "iterator_types", "shape"}
"""Attributes that say nothing about the numbers: what a kernel decides, and which elements a loop takes."""


class Numbering:
    """Numbers of tensors: equal ones where equal ops compute their elements from those of equal tensors, in whichever
    fusions and shapes. is_wanted: of which ops in the bodies of loops it tells the numbers; the implicit roundings
    unless given.
    """

    def __init__(self, is_wanted: Callable[[ir.Operation], bool] = is_implicit) -> None:
        self._is_wanted = is_wanted
        self._numbers: dict[_Key, int] = {}
        self._tensors: dict[ir.Value, int] = {}

    def add(self, fusion: ir.Operation, flow: Dataflow) -> dict[int, list[ir.Operation]]:
        """Number what a fusion computes; returns the wanted ops by number. Fusions come in order."""
        for argument, operand in zip(flow.block.arguments, fusion.operands, strict=True):
            self._tensors[argument] = self._of(operand)
        found: dict[int, list[ir.Operation]] = {}
        for op in flow.ops:
            if op.name == "kiln.view":
                continue  # the numbers of what it shows
            operands = op.operands if op.name != "kiln.empty" else ()  # whose sizes say nothing, either
            number = self._number((_form(op), tuple(map(self._of, operands)), *self._body(op)))
            for i, result in enumerate(op.results):
                self._tensors[result] = self._number((number, i))
            if op.name == "linalg.generic":
                for i, inner in enumerate(scalar_ops(op)):
                    if self._is_wanted(inner):
                        found.setdefault(self._number((number, "inside", i)), []).append(inner)
        for root, result in zip(flow.roots, fusion.results, strict=True):
            self._tensors[result] = self._of(root)
        return found

    def _of(self, value: ir.Value) -> int:
        while value not in self._tensors and (maker := defining_op(value)) is not None and maker.name == "kiln.view":
            value = maker.operands[0]
        if value not in self._tensors:
            self._tensors[value] = self._number(("value", len(self._tensors)))
        return self._tensors[value]

    def _number(self, key: _Key) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _body(self, op: ir.Operation) -> Iterator[_Key]:
        """The ops of a loop's body, each with where its operands come from."""
        if op.name != "linalg.generic":
            yield from ((str(region),) for region in op.regions)
            return
        block = op.regions[0].blocks[0]
        known: dict[ir.Value, object] = {argument: i for i, argument in enumerate(block.arguments)}
        for number, inner in enumerate(block.operations):
            operands = tuple(
                known[v] if v in known else ("outside", self._outside(v)) for v in inner.operation.operands
            )
            yield _form(inner.operation), operands
            known.update((result, (number, i)) for i, result in enumerate(inner.operation.results))

    def _outside(self, value: ir.Value) -> object:
        maker = defining_op(value)
        return _form(maker) if maker is not None and maker.name == "arith.constant" else self._of(value)


def _form(op: ir.Operation) -> _Key:
    """Name, attributes and element types of an op, without shapes; what a kernel decides does not change its number."""
    attributes = ((name, op.attributes[name]) for name in sorted(op.attributes) if name not in _OTHER)
    return op.name, *attributes, *map(element_type, op.results)
