# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The nests of a fusion: results that share loops, cut where they pass from one operand of a concatenation to the next.

An uncut nest computes every operand for each of its elements, and keeps one. A cut nest is several, each with the code
of the operand that it reads; those of one size that load the same elements are one nest with several stores, as the
halves that a rotary embedding exchanges, the gradients of a gate and of what it gates, or the channels of an image in
other colours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.lowering.tile.access import Accesses, Indices, Loops, compose_one, element_bytes
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.roots import group_roots

__all__ = ["Group", "Stored", "cut_group", "whole_groups"]


@dataclass(frozen=True)
class Stored:
    """A result that a nest stores: its position, its value, the nest's dim for each of its own dims (None: index 0),
    and what is added to the index in each of the nest's dims.
    """

    position: int
    value: ir.Value
    mapping: Sequence[int | None]
    start: Sequence[ir.AffineExpr]


@dataclass
class Group:
    """Results that share a nest over dims of these extents; the main one, which has all dims, is first."""

    extents: list[ir.AffineExpr]
    stored: list[Stored]


@dataclass
class _Concatenations(Accesses):
    """Accesses that also record each concatenation that is met, with the index it is asked for."""

    cats: list[tuple[ir.OpView, Indices]] = field(default_factory=list[tuple[ir.OpView, Indices]])

    def visit(self, value: ir.Value, indices: Indices, around: frozenset[int]) -> None:
        if self.body.argument_position(value) is None and name_of(value.owner.opview) == "kiln.cat":
            self.cats.append((value.owner.opview, indices))
        super().visit(value, indices, around)


def whole_groups(body: FusionBody) -> list[Group]:
    """Results that can share a nest, uncut."""
    found: list[Group] = []
    for roots in group_roots(body):
        extents = list(body.dims(roots[0][1]))
        nothing = [ir.AffineConstantExpr.get(0)] * len(extents)
        found.append(Group(extents, [Stored(i, value, mapping, nothing) for i, value, mapping in roots]))
    return found


def cut_group(body: FusionBody, layouts: Sequence[ir.AffineMap], group: Group, run: int, most: int) -> list[Group]:
    """The nests of a group, cut into `most` pieces at most, which write runs of `run` bytes or more, in the mean; the
    group itself where it cannot be cut so, or need not be.
    """
    if not any(name_of(op) == "kiln.cat" for op in body.operations):
        return [group]
    whole = list(range(len(group.extents)))
    if "in_place" in body.fusion.operation.attributes or any(list(s.mapping) != whole for s in group.stored):
        return [group]
    found, dims = _accesses(body, layouts, group)
    if found.reduced:
        return [group]
    borders = [_borders(body, found, d) for d in dims]
    dim = max(whole, key=lambda k: len(borders[k]), default=0)
    starts = [*borders[dim], group.extents[dim]] if whole else []
    if not 2 < len(starts) <= most + 1 or not _has_runs(body, layouts, group, dim, run * (len(starts) - 1)):
        return [group]
    pieces = [_piece(group, dim, start, found.loops.simplify(stop - start)) for start, stop in pairwise(starts)]
    return _joined(body, layouts, [p for p in pieces if affine.constant_of(p.extents[dim]) != 0])


def _accesses(
    body: FusionBody, layouts: Sequence[ir.AffineMap], group: Group
) -> tuple[_Concatenations, list[ir.AffineDimExpr]]:
    found = _Concatenations(body, Loops(), layouts)
    dims = [found.loops.new(extent) for extent in group.extents]
    for stored in group.stored:
        indices = tuple(found.loops.simplify(d + start) for d, start in zip(dims, stored.start, strict=True))
        found.visit(stored.value, indices, frozenset())
    return found, dims


def _borders(body: FusionBody, found: _Concatenations, dim: ir.AffineDimExpr) -> list[ir.AffineExpr]:
    """Where the operands of concatenations along a loop begin, in order; empty where one can't be told from another."""
    borders: list[ir.AffineExpr] = []
    for op, indices in found.cats:
        along = ir.IntegerAttr(op.operation.attributes["dim"]).value
        if indices[along] != dim:
            continue
        start: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        mine: list[ir.AffineExpr] = []
        for piece in op.operands:
            if isinstance(piece.type, ir.RankedTensorType):
                mine.append(start)
                start = found.loops.simplify(start + body.dims(piece)[along])
        if _ends_in(start, found.loops.extents[dim.position]):
            borders += [b for b in mine if b not in borders]
    known = [affine.constant_of(b) for b in borders]
    if None not in known:
        return [ir.AffineConstantExpr.get(x) for x in sorted(x for x in known if x is not None)]
    cats = {tuple(map(str, op.operation.operands)) for op, indices in found.cats if dim in indices}
    return borders if len(cats) == 1 else []  # the borders of two are in an order that run-time sizes decide


def _ends_in(size: ir.AffineExpr, extent: ir.AffineExpr) -> bool:
    """Whether a concatenation of this size ends where a loop does, or before: a slice of it may be all that is read."""
    known = affine.constant_of(size), affine.constant_of(extent)
    return size == extent or (known[0] is not None and known[1] is not None and known[0] <= known[1])


def _has_runs(body: FusionBody, layouts: Sequence[ir.AffineMap], group: Group, dim: int, run: int) -> bool:
    """Whether all pieces together write runs of `run` bytes."""
    main = group.stored[0]
    loops = Loops()
    dims = [loops.new(extent) for extent in group.extents]
    offset = affine.linear_coefficients(compose_one(layouts[len(body.tensors) + main.position], dims, loops))
    step = affine.constant_of(offset[1].get(dim, ir.AffineConstantExpr.get(0))) if offset is not None else None
    extent = affine.constant_of(group.extents[dim])
    if step is None or extent is None:
        return True  # known at run time only
    return extent * step * element_bytes(main.value.type) >= run


def _piece(group: Group, dim: int, start: ir.AffineExpr, extent: ir.AffineExpr) -> Group:
    extents = [extent if k == dim else x for k, x in enumerate(group.extents)]
    starts = [[start if k == dim else x for k, x in enumerate(s.start)] for s in group.stored]
    stored = [Stored(s.position, s.value, s.mapping, at) for s, at in zip(group.stored, starts, strict=True)]
    return Group(extents, stored)


def _joined(body: FusionBody, layouts: Sequence[ir.AffineMap], pieces: list[Group]) -> list[Group]:
    """Pieces of one size that load the same elements become one nest, which loads them once."""
    found: list[tuple[Group, set[tuple[int | None, ir.AffineExpr]]]] = []
    for piece in pieces:
        accesses, _ = _accesses(body, layouts, piece)
        loads = {(a.operand, a.offset) for a in accesses.found if _covers(a.offset, piece.extents)}
        for group, theirs in found:
            if group.extents == piece.extents and loads & theirs:
                group.stored += piece.stored
                theirs |= loads
                break
        else:
            found.append((piece, loads))
    return [group for group, _ in found]


def _covers(offset: ir.AffineExpr, extents: Sequence[ir.AffineExpr]) -> bool:
    """Whether each point of the loops loads an element of its own."""
    used = affine.dims_in(offset)
    return all(d in used or affine.constant_of(extent) == 1 for d, extent in enumerate(extents))
