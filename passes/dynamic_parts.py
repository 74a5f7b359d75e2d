# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Partial results of a reduction over dims whose sizes are known at run time only (`split-reductions`).

Parts have one length, and there are as many as it takes. What the last one has behind the end is a pad, and masked.
Where several dims are split, they are walked as one, of as many elements as all have: neighbours in memory stay
neighbours.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import affine
from kiln.dialects.builder import Builder, Expr
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import indexing_maps, output_map, reduction_dims
from kiln.lowering.tile.combiner import Combiner
from kiln.passes.loops import generic
from kiln.passes.partial_reductions import copy_body, fill

__all__ = ["DynamicParts", "can_be_walked"]


def can_be_walked(op: ir.OpView, dims: Sequence[int]) -> bool:
    """Whether views can give a reduction its operands in parts of `dims`: each of these is an index of its own, and the
    body knows no index.
    """
    if any(inner.operation.name == "linalg.index" for inner in op.regions[0].blocks[0].operations):
        return False
    for value, m in zip(op.operands, indexing_maps(op), strict=True):
        alone = [e.position for e in map(ir.AffineExpr.maybe_downcast, m.results) if isinstance(e, ir.AffineDimExpr)]
        used = [d for e in m.results for d in affine.dims_in(e) if d in dims]
        if sorted(used) != sorted(d for d in alone if d in dims) or len(used) != len(set(used)):
            return False
        if used and not isinstance(value.type, ir.RankedTensorType):
            return False
    return True


@dataclass(frozen=True)
class DynamicParts:
    """How the loops of a reduction over dims of any extent are cut.

    op: the reduction. extents: of its loops. dims: the split ones, in their order, which `can_be_walked`. length:
    elements of a part.
    """

    op: ir.OpView
    build: Builder
    extents: Sequence[ir.AffineExpr]
    dims: Sequence[int]
    length: int

    @property
    def _total(self) -> ir.AffineExpr:
        return affine.simplify(_product(self.extents[d] for d in self.dims))

    @property
    def _count(self) -> ir.AffineExpr:
        return ir.AffineExpr.get_floor_div(self._total + (self.length - 1), self.length)

    def partial(self, combiner: Combiner) -> ir.Value:
        """Results of the parts: a tensor of the results' dims and, behind them, the parts."""
        op, first = self.op, self.dims[0]
        kept = [d for d in range(len(self.extents)) if d not in self.dims[1:]]
        place = {d: ir.AffineExpr.get_dim(i) for i, d in enumerate(kept)}
        part = ir.AffineExpr.get_dim(len(kept))
        inputs: list[ir.Value] = []
        maps: list[list[ir.AffineExpr]] = []
        for value, m in list(zip(op.operands, indexing_maps(op), strict=True))[:-1]:
            walked = [i for i, e in enumerate(m.results) if affine.dims_in(e) & set(self.dims)]
            index = [affine.substitute(e, place) for i, e in enumerate(m.results) if i not in walked]
            if walked:
                value = self._in_parts(value, m, walked)
                index[walked[0] : walked[0]] = [place[first]]
                index.append(part)
            inputs.append(value)
            maps.append(index)
        # What is behind the end counts as the combiner's identity.
        inputs.append(self._is_element())
        maps.append([place[first], part])
        maps.append([*(affine.substitute(e, place) for e in output_map(op).results), part])
        element = ir.RankedTensorType(op.results[0].type).element_type
        reduced = reduction_dims(op)
        made = generic(
            inputs,
            fill(self.build, element, [*self.build.sizes(op.results[0]), self._count], combiner),
            [ir.AffineMap.get(len(kept) + 1, 0, index) for index in maps],
            [*("reduction" if d in reduced else "parallel" for d in kept), "parallel"],
        )
        copy_body(op, made, len(inputs) - 1, [ir.IntegerType.get_signless(1)], {})
        _mask(made, combiner)
        return made.results[0]

    def _is_element(self) -> ir.Value:
        """For each position of each part, whether it is an element: `[length, parts]`."""
        whole = self.build.fill(ir.IntegerType.get_signless(1), [self._total], 1)
        return self._cut(whole, 0)

    def _in_parts(self, value: ir.Value, m: ir.AffineMap, walked: Sequence[int]) -> ir.Value:
        """An operand with one dim of a part's elements in the place of its split ones, and the parts as last dim."""
        if len(self.dims) == 1:
            return self._cut(value, walked[0])
        at, sizes = walked[0], self.build.sizes(value)
        shape: list[Expr] = [n for i, n in enumerate(sizes) if i not in walked]
        shape.insert(at, self._total)
        others = iter([ir.AffineExpr.get_dim(i) for i in range(len(shape)) if i != at])
        element = ir.AffineExpr.get_dim(at)
        index: list[Expr] = []
        for i, e in enumerate(m.results):
            index.append(self._index(element, ir.AffineDimExpr(e).position) if i in walked else next(others))
        return self._cut(self.build.view(value, index, shape), at)

    def _index(self, element: ir.AffineExpr, d: int) -> ir.AffineExpr:
        """The index along a split dim of one of all elements."""
        number = self.dims.index(d)
        if number + 1 < len(self.dims):
            element = ir.AffineExpr.get_floor_div(element, _product(self.extents[k] for k in self.dims[number + 1 :]))
        return ir.AffineExpr.get_mod(element, self.extents[d]) if number else element

    def _cut(self, value: ir.Value, at: int) -> ir.Value:
        """A tensor with a part's elements along a dim that has all, and the parts as last dim."""
        sizes: list[Expr] = [*self.build.sizes(value)]
        none: list[Expr] = [0] * len(sizes)
        behind = affine.simplify(self._count * self.length - self._total)
        padded = self.build.pad(value, 0, none, [*none[:at], behind, *none[at + 1 :]])
        index: list[Expr] = [ir.AffineExpr.get_dim(i) for i in range(len(sizes))]
        index[at] = ir.AffineExpr.get_dim(len(sizes)) * self.length + ir.AffineExpr.get_dim(at)
        return self.build.view(padded, index, [*sizes[:at], self.length, *sizes[at + 1 :], self._count])


def _mask(made: ir.Operation, combiner: Combiner) -> None:
    """Have a reduction combine the identity where its last input, a condition, does not hold."""
    assert combiner.identity is not None, "checked by the caller"
    block = made.regions[0].blocks[0]
    *_, holds, total = block.arguments
    last = defining_op(list(block.operations)[-1].operands[0])
    assert last is not None, "a reduction by a known combiner"
    number = next(i for i, value in enumerate(last.operands) if value != total)
    with last.location, ir.InsertionPoint(last):
        identity = arith.constant(total.type, combiner.identity)
        last.operands[number] = arith.select(holds, last.operands[number], identity)


def _product(sizes: Iterable[ir.AffineExpr]) -> ir.AffineExpr:
    return math.prod(sizes, start=ir.AffineExpr.get_constant(1))
