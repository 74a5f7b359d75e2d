# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Horizontal fusion: kernels that do not depend on each other become the parts of one kernel."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.passes.fusion.cost import amount
from kiln.passes.fusion.graph import FusionGraph
from kiln.passes.fusion.groups import Group, Grouping
from kiln.passes.fusion.loops import merge_loops, share_loops
from kiln.passes.fusion.order import Kernels, Schedule
from kiln.passes.fusion.reach import Reach
from kiln.passes.fusion.rules import fusion_rules

__all__ = ["MOST_PARTS", "Room", "fuse_nests", "fuse_products", "fuse_small"]

MOST_PARTS = 8
"""Parts of one kernel: its code grows with each, and what they share fits into a cache or it does not."""


@dataclass
class Room:
    """How much memory kernels may take: little more than before any of them become parts of one (`most`), and beyond
    what the ops take one by one (`free`) no more bytes than of traffic are saved.
    """

    kernels: Kernels
    most: int
    free: int

    @classmethod
    def of(cls, grouping: Grouping, one_by_one: int) -> "Room":
        """The room that the kernels of a grouping take; the ops one by one take `one_by_one` bytes."""
        kernels = Schedule.of(grouping).kernels(grouping)
        peak = kernels.best()[1]
        return cls(kernels, peak + peak // fusion_rules().spare_parts, max(peak, one_by_one))

    def merge(self, a: Group, b: Group, merged: Group) -> None:
        """Note that `merged` stands for `a` and `b` from now on."""
        self.kernels = self.kernels.merged(a, b, merged)

    def lacks(self, grouping: Grouping, a: Group, b: Group) -> int:
        """Bytes alive at once, if two groups were one, that there is no room for."""
        enough = min(self.most, self.free)
        if self.kernels.total <= enough:
            return 0
        _, held = self.kernels.merged(a, b, a).best(enough)
        if held <= enough:
            return 0
        model = grouping.model
        saved = model.shared(a, b)  # neither reads what the other makes
        return held - self.most if held > self.most else held - self.free if held - self.free > saved else 0


def fuse_products(grouping: Grouping, reach: Reach, room: Room) -> None:
    """Products of one lhs (query, key and value; gate and up) become one kernel.

    They walk the same rows of the lhs, which the first one brings into the cache, and one launch does for all.
    """
    families: dict[tuple[object, ...], list[Group]] = {}
    for group in grouping.groups():
        if group.named is not None and group.named.name == "kiln.matmul":
            families.setdefault(_rows(grouping.graph, group.named), []).append(group)
    for family in families.values():
        fuse_parts(grouping, reach, room, family, "a product of the same matrix")


def fuse_nests(grouping: Grouping, reach: Reach, room: Room) -> None:
    """Pointwise and reduction kernels that read the same values.

    Where they walk the same loops over a value they share these: several reductions of a tensor are one pass over it.
    Otherwise they become parts: what they save is a launch (the rotations of queries and of keys).
    """
    values = [*grouping.graph.block.arguments, *(r for op in grouping.graph.operations for r in op.results)]
    for value in values:
        for a, b in _pairs(_readers(grouping, value)):
            a, b = _now(grouping, a), _now(grouping, b)
            if a is not b and share_loops(grouping, a, b, [value]) and reach.independent(a, b):
                before = grouping.model.cost(a) + grouping.model.cost(b)
                merged = merge_loops(grouping, a, b)
                reach.merge(a, b, merged)
                room.merge(a, b, merged)
                saved = amount(before.moved - grouping.model.cost(merged).moved, "B")
                grouping.decisions.append((b.ops[-1], f"shares the loops of {a.ops[-1].name}: saves {saved}"))
    for value in values:
        family = _readers(grouping, value)
        if _large_and_dying(grouping, value):
            for group in family[1:]:
                grouping.decisions.append(
                    (group.ops[-1], "no part of another reader's kernel: writes over its operand")
                )
            continue
        fuse_parts(grouping, reach, room, family, "reads the same value, saves a launch")


def fuse_small(grouping: Grouping, reach: Reach, room: Room) -> None:
    """Kernels that a launch costs more than what they compute become parts of the next one that is independent.

    A batch norm's count of batches is one element; nothing that it reads or writes has to do with another kernel.
    """
    machine = grouping.model.machine
    groups = grouping.groups()
    nests = _Nests(grouping, groups)
    for small in groups:
        group = _now(grouping, small)
        computes = grouping.model.cost(group).seconds(machine) - machine.launch
        if group.kind not in ("pointwise", "reduction") or computes > fusion_rules().small_share * machine.launch:
            continue
        for other in nests.around(group):
            if len(group.all_parts) + len(other.all_parts) <= MOST_PARTS and reach.independent(group, other):
                fuse_parts(grouping, reach, room, [other, group], "computes less than a launch costs")
                if _now(grouping, group) is not group:
                    nests.replace((group, other), _now(grouping, group))
                break


class _Nests:
    """The kernels made of loops alone, in the order of their first ops."""

    def __init__(self, grouping: Grouping, groups: Sequence[Group]) -> None:
        self._position = grouping.graph.position
        self._all = [g for g in groups if g.kind in ("pointwise", "reduction")]
        self._starts = [self._start(g) for g in self._all]

    def _start(self, group: Group) -> int:
        return self._position[group.ops[0]]

    def around(self, group: Group) -> Iterator[Group]:
        """The others, the one whose first op is nearest to the last op of `group` first; of two, the one before it."""
        end = self._position[group.ops[-1]]
        after = bisect_left(self._starts, end)
        before = after - 1
        while before >= 0 or after < len(self._all):
            is_before = (
                after == len(self._all) or before >= 0 and end - self._starts[before] <= self._starts[after] - end
            )
            found = self._all[before if is_before else after]
            before, after = before - is_before, after + (not is_before)
            if found is not group:
                yield found

    def replace(self, old: Sequence[Group], new: Group) -> None:
        """Put one for others."""
        for group in old:
            i = bisect_left(self._starts, self._start(group))
            del self._starts[i], self._all[i]
        i = bisect_left(self._starts, self._start(new))
        self._starts.insert(i, self._start(new))
        self._all.insert(i, new)


def _now(grouping: Grouping, group: Group) -> Group:
    """The group that the ops of `group` are in by now."""
    return grouping.of[group.ops[0]]


def _pairs(groups: Sequence[Group]) -> list[tuple[Group, Group]]:
    return [(a, b) for i, a in enumerate(groups) for b in groups[i + 1 :]]


def _readers(grouping: Grouping, value: ir.Value) -> list[Group]:
    """Kernels made of loops alone that read `value` from memory, in order."""
    maker = defining_op(value)
    own = grouping.of.get(maker) if maker is not None else None
    found: list[Group] = []
    for read in grouping.graph.readers.get(value, []):
        group = grouping.of[read.consumer]
        is_nest = group.kind in ("pointwise", "reduction") and own is not group
        if is_nest and not any(group is g for g in found):
            found.append(group)
    return found


def _large_and_dying(grouping: Grouping, value: ir.Value) -> bool:
    """Whether the last reader of `value` may write over it, which saves more than a launch does."""
    return defining_op(value) in grouping.of and grouping.model.bytes_of(value) > grouping.model.machine.cache_bytes


def _rows(graph: FusionGraph, product: ir.Operation) -> tuple[object, ...]:
    """What is equal for products whose rows are those of one matrix."""
    lhs = product.operands[0]
    source, index = graph.element_of(lhs)
    batch = graph.dims(product.results[0])[:-2]
    return source, index, graph.dims(lhs), str(product.attributes["transpose_lhs"]), batch


def fuse_parts(grouping: Grouping, reach: Reach, room: Room, family: Sequence[Group], why: str) -> None:
    """Merge the groups of a family in order, as far as none depends on another and there is room for their results."""
    rest = list(family)
    while len(rest) > 1:
        first, *others = rest
        rest: list[Group] = []
        for other in others:
            if len(first.all_parts) + len(other.all_parts) > MOST_PARTS or not reach.independent(first, other):
                rest.append(other)
                continue
            op = other.named or other.ops[-1]
            lacks = room.lacks(grouping, first, other)
            if lacks:
                grouping.decisions.append((op, f"no part of {first.ops[-1].name}'s kernel: {_memory(lacks)}"))
                rest.append(other)
                continue
            before = grouping.model.cost(first) + grouping.model.cost(other)
            merged = grouping.merge(first, other)
            reach.merge(first, other, merged)
            room.merge(first, other, merged)
            saved = amount(before.moved - grouping.model.cost(merged).moved, "B")
            reason = f"fused into the kernel of {first.ops[-1].name}: {why}, saves {saved} of traffic"
            grouping.decisions.append((op, reason))
            first = merged


def _memory(bytes_: int) -> str:
    return f"its results would be alive for longer, and {amount(bytes_, 'B')} more at once than there is room for"
