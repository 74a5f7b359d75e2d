# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Groups of ops that become one kernel, and the paths between them."""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import opdef
from kiln.lowering.tile.body import output_map
from kiln.passes.fusion.cost import CostModel
from kiln.passes.fusion.graph import FusionGraph, Point, Read
from kiln.passes.fusion.tally import Machine, Tally

__all__ = ["Group", "Grouping"]

T = TypeVar("T")

Scope = int
"""A way through pads and concatenations, by its hash."""
_NO_GUARD: frozenset[Scope] = frozenset((0,))


@dataclass(eq=False)
class Group:
    """Ops that become one kernel. Two groups are equal if they are the same one.

    space: extents that the ops' points are expressed in. points: iteration points of each op over that space; a value
    that is read at several indices has several. reduced: dims of the space that the group's reductions reduce. parts:
    groups that share nothing but the kernel; each has a space and loops of its own, and the rest of this group is the
    first one's. recomputed: operations beyond those of computing each value once. guarded: ops whose result a pad or a
    concatenation of the group reads, directly or behind other ops; what is below is computed where it exists only.
    scopes: of these ops, one entry for each way of pads and concatenations to them: the kernel has their code once in
    each, because none sees what another one computes.
    Ops are added, in their order, and never taken out.
    """

    ops: list[ir.Operation]
    space: list[ir.AffineExpr]
    points: dict[ir.Operation, list[Point]]
    reduced: frozenset[int] | None = None
    named: ir.Operation | None = None
    parts: list["Group"] = field(default_factory=list["Group"])
    others: list[ir.Operation] = field(default_factory=list[ir.Operation])
    recomputed: int = 0
    guarded: set[ir.Operation] = field(default_factory=set[ir.Operation])
    scopes: dict[ir.Operation, frozenset[Scope]] = field(default_factory=dict[ir.Operation, frozenset[Scope]])
    found: dict[Any, tuple[int, Any]] = field(default_factory=dict[Any, tuple[int, Any]], init=False, repr=False)
    counted: Tally | None = field(default=None, init=False, repr=False)

    def once(self, what: Any, find: Callable[[], T]) -> T:
        """What `find` gives, asked again when the group has more ops."""
        known = self.found.get(what)
        if known is None or known[0] != len(self.ops):
            known = self.found[what] = len(self.ops), find()
        return known[1]

    @property
    def all_named(self) -> list[ir.Operation]:
        """The named ops of this part; products can be several (see rows.py)."""
        return [] if self.named is None else [self.named, *self.others]

    @property
    def all_parts(self) -> list["Group"]:
        """The parts; a group without any is its only one."""
        return self.parts or [self]

    @property
    def kind(self) -> str:
        """Which lowering takes it."""
        if self.parts:
            kinds = [part.kind for part in self.parts]
            return next((k for k in kinds if k not in ("pointwise", "reduction")), max(kinds))
        if self.named is not None:
            return opdef(self.named).kind
        return "pointwise" if self.reduced is None else "reduction"


class _Membership(dict[ir.Operation, Group]):
    """The group of each compute op; `at` has them by the op's position in the function, without a hash of the op."""

    def __init__(self, graph: FusionGraph) -> None:
        super().__init__()
        self.position = graph.position
        self.at: list[Group | None] = [None] * len(graph.operations)

    def __setitem__(self, op: ir.Operation, group: Group) -> None:
        super().__setitem__(op, group)
        self.at[self.position[op]] = group


class Grouping:
    """The groups of a graph; `of` maps each compute op to its group."""

    def __init__(
        self,
        graph: FusionGraph,
        row_blocks: bool = True,
        horizontal: bool = True,
        choices: Mapping[int, int] | None = None,
        most_accesses: int = 0,
        machine: Machine | None = None,
        cuts: bool = False,
    ):
        self.graph, self.row_blocks, self.horizontal, self.most_accesses = graph, row_blocks, horizontal, most_accesses
        self.cuts = cuts
        self.choices = choices or {}
        self.alternatives: dict[int, int] = {}  # position of an op that could go elsewhere -> number of its consumers
        self.model = CostModel(graph, machine)
        self.of = _Membership(graph)
        self.decisions: list[tuple[ir.Operation, str]] = []
        for op in graph.compute:
            self.of[op] = self._single(op)

    def _single(self, op: ir.Operation) -> Group:
        space = list(self.graph.space(op))
        point = tuple(ir.AffineDimExpr.get(i) for i in range(len(space)))
        group = Group([op], space, {op: [point]})
        if opdef(op).has_kernel:
            group.named = op
        elif self.graph.reduces(op):
            kept = {d for e in output_map(op.opview).results for d in affine.dims_in(e)}
            group.reduced = frozenset(set(range(len(space))) - kept)
        return group

    def groups(self) -> list[Group]:
        """All groups, each once, in order of their first op."""
        return list(dict.fromkeys(self.of[op] for op in self.graph.compute))

    def indices(self, group: Group, reads: list[Read]) -> list[tuple[ir.AffineExpr, ...]] | None:
        """Distinct indices, over the group's space, at which the group reads."""
        found: list[tuple[ir.AffineExpr, ...]] = []
        ranges = dict(enumerate(group.space))
        for r in reads:
            for point in group.points[r.consumer]:
                dims = {i: e for i, e in enumerate(point) if e is not None}
                if any(not affine.dims_in(e) <= dims.keys() for e in r.index):
                    return None
                index = tuple(affine.simplify(affine.substitute(e, dims), ranges) for e in r.index)
                if index not in found:
                    found.append(index)
        return found

    def adopt(self, op: ir.Operation, group: Group, points: list[Point]) -> None:
        """Put `op`, computed at `points` of the group's space, into a group."""
        # Producers are visited before their own producers, so `op` is alone in its group until now.
        if group.counted is not None:
            group.counted.add(op)
        insort(group.ops, op, key=self.graph.position.__getitem__)
        group.points[op] = points
        self.of[op] = group
        # Those that read `op` are in their groups for good, so that this is known for good, too.
        reads = [r for v in op.results for r in self.graph.readers.get(v, ())]
        if self.is_guarded(group, reads):
            group.guarded.add(op)
            group.scopes[op] = self.guard_scopes(group, reads)

    def guard_scopes(self, group: Group, reads: Iterable[Read]) -> frozenset[Scope]:
        """The ways through pads and concatenations of `group` to what is read: see `Group.scopes`."""
        found: set[Scope] = set()
        for number, read in enumerate(reads):
            if self.of[read.consumer] is not group:
                continue
            around = group.scopes.get(read.consumer, _NO_GUARD)
            if read.guarded:
                # Each operand of a concatenation is a way of its own, and `number` counts the reads of one value only.
                around = {hash((s, read.consumer, read.value, number)) for s in around}
            found |= around
        return frozenset(found)

    def is_guarded(self, group: Group, reads: Iterable[Read]) -> bool:
        """Whether a pad or concatenation in `group` lies between these reads and its loops, directly or behind other
        ops.
        """
        return any(self.of[r.consumer] is group and (r.guarded or r.consumer in group.guarded) for r in reads)

    def merge(self, a: Group, b: Group) -> Group:
        """One group with the parts of both. No path may lead from one to the other."""
        ops = sorted([*a.ops, *b.ops], key=lambda o: self.graph.position[o])
        first = min(a, b, key=lambda g: self.graph.position[g.ops[0]])
        parts = [*a.all_parts, *b.all_parts]
        merged = replace(first, ops=ops, parts=parts, guarded=a.guarded | b.guarded, scopes=a.scopes | b.scopes)
        for op in ops:
            self.of[op] = merged
        return merged

    def successors(self, group: Group) -> list[Group | ir.Operation]:
        """Kernels and calls that read what `group` makes, in the order of its ops."""
        users = group.once("users", lambda: list(dict.fromkeys(p for op in group.ops for p in self.graph.users(op))))
        return [node for node in self._behind(users) if node is not group]

    def _behind(self, users: Iterable[int]) -> list[Group | ir.Operation]:
        """Kernels and calls that the ops at some positions are in, each once."""
        at, operations = self.of.at, self.graph.operations
        nodes = [at[position] or operations[position] for position in users]
        return list({id(node): node for node in nodes}.values())

    def connected(self, a: Group, b: Group) -> bool:
        """Whether a path leads from one of two groups to the other."""
        return self._leads(self._next(a), b) or self._leads(self._next(b), a)

    def would_cycle(self, own: Group, group: Group) -> bool:
        """Whether `group` is reachable from `own` other than directly."""
        return self._leads([s for s in self._next(own) if s is not group], group)

    def _next(self, group: Group) -> list[Group | ir.Operation]:
        """`successors` in any order, and the group itself where it has parts that read each other."""
        return self._behind(self.model.tally(group).users)

    def _leads(self, work: list[Group | ir.Operation], group: Group) -> bool:
        """Whether a path leads from one of some kernels and calls to `group`."""
        seen: set[int] = set()
        while work:
            node = work.pop()
            if node is group:
                return True
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Group):
                work += self._next(node)
                continue
            work += self._behind(self.graph.users(node))
            if node in self.graph.next_call:
                work.append(self.graph.next_call[node])
        return False
