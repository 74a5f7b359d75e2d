# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Greedy grouping: producers join the group of their consumers where one kernel can compute both well."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.cpu.tile.body import defining_op, output_map
from kiln.passes.fusion.cost import Cost, CostModel, amount
from kiln.passes.fusion.graph import IN_MEMORY, NAMED, FusionGraph, Point, Read
from kiln.passes.fusion.rows import why_not_joined

SLOWER = 1.02
"""A kernel less is worth this factor of the estimated time: what it saves outside of kernels is not in the estimate."""
MOST_INDICES = 8
"""Indices at which a kernel computes one value: its code grows with each, and may double with each op below."""
MOST_OPS = 64
"""Ops that loops are shared by: more do not fit into the registers."""
SERIAL_LIMIT = 1 << 14
"""Elements of a reduction over everything that are still fused with what follows: there is no row to share."""


@dataclass
class Group:
    """Ops that become one kernel.

    space: extents that the ops' points are expressed in. points: iteration points of each op over that space; a value
    that is read at several indices has several. reduced: dims of the space that the group's reductions reduce. parts:
    groups that share nothing but the kernel; each has a space and loops of its own, and the rest of this group is the
    first one's. recomputed: operations beyond those of computing each value once.
    """

    ops: list[ir.Operation]
    space: list[ir.AffineExpr]
    points: dict[ir.Operation, list[Point]]
    reduced: frozenset[int] | None = None
    named: ir.Operation | None = None
    parts: list["Group"] = field(default_factory=list)
    others: list[ir.Operation] = field(default_factory=list)
    recomputed: int = 0

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
            return self.named.name.removeprefix("kiln.")
        return "pointwise" if self.reduced is None else "reduction"


def row_major(index: Sequence[ir.AffineExpr], sizes: Sequence[ir.AffineExpr]) -> ir.AffineExpr:
    """Position of `index` in a row-major array."""
    position: ir.AffineExpr = ir.AffineConstantExpr.get(0)
    for e, size in zip(index, sizes, strict=True):
        position = position * size + e
    return position


class Grouping:
    """The groups of a graph; `of` maps each compute op to its group."""

    def __init__(
        self,
        graph: FusionGraph,
        row_blocks: bool = True,
        horizontal: bool = True,
        choices: Mapping[int, int] | None = None,
    ):
        self.graph, self.row_blocks, self.horizontal = graph, row_blocks, horizontal
        self.choices = choices or {}
        self.alternatives: dict[int, int] = {}  # position of an op that could go elsewhere -> number of its consumers
        self.model = CostModel(graph)
        self.of: dict[ir.Operation, Group] = {}
        self.decisions: list[tuple[ir.Operation, str]] = []
        for op in graph.compute:
            self.of[op] = self._single(op)

    def _single(self, op: ir.Operation) -> Group:
        space = list(self.graph.space(op))
        point = tuple(ir.AffineDimExpr.get(i) for i in range(len(space)))
        group = Group([op], space, {op: [point]})
        if op.name in NAMED:
            group.named = op
        elif self.graph.reduces(op):
            kept = {d for e in output_map(op.opview).results for d in affine.dims_in(e)}
            group.reduced = frozenset(set(range(len(space))) - kept)
        return group

    def groups(self) -> list[Group]:
        """All groups, each once, in order of their first op."""
        found: list[Group] = []
        for op in self.graph.compute:
            group = self.of[op]
            if group not in found:
                found.append(group)
        return found

    # -- the greedy walk ----------------------------------------

    def run(self) -> None:
        """Visit producers from the last to the first."""
        for op in reversed(self.graph.compute):
            self._place(op)

    def _place(self, op: ir.Operation) -> None:
        reads = [r for v in op.results for r in self.graph.readers.get(v, [])]
        if not reads:
            return
        in_memory = any(v in self.graph.external for v in op.results) or any(r.whole for r in reads)
        consumers: list[Group] = []
        for r in reads:
            if not r.whole and self.of[r.consumer] not in consumers:
                consumers.append(self.of[r.consumer])
        if not consumers:
            return
        consumers = self._joined([g for g in consumers if g is not self.of[op]], op)
        several = len(consumers) > 1
        position = self.graph.position[op]
        choice = self.choices.get(position, 0)
        if several or position in self.choices:
            self.alternatives[position] = len(consumers)
        if choice < 0:
            self.decisions.append((op, "a kernel of its own: the search found that to be faster"))
            return
        for group in [*consumers[choice:], *consumers[:choice]]:
            mine = [r for r in reads if not r.whole and self.of[r.consumer] is group]
            name, before = group.ops[-1].name, self.model.cost(self.of[op]) + self.model.cost(group)
            reason = self._try(op, group, mine, in_memory or several)
            self.decisions.append((op, reason or f"fused into the kernel of {name}: {self._saved(before, group)}"))
            if reason is None:
                break

    def _saved(self, before: Cost, group: Group) -> str:
        """What a merge that made `group` saves and costs."""
        after = self.model.cost(group)
        text = f"saves {amount(before.moved - after.moved, 'B')} of traffic"
        again = after.operations - before.operations
        return f"{text}, computes {amount(again, 'op')} again" if again > 0 else text

    def _joined(self, consumers: list[Group], op: ir.Operation) -> list[Group]:
        """The consumers of `op`; those that walk the same loops over it, and don't depend on each other, as one."""
        if not self.horizontal or self.of[op].named is not None and any(g.reduced is not None for g in consumers):
            return consumers  # a product takes a pointwise consumer into its own loops
        found: list[Group] = []
        for group in consumers:
            for i, other in enumerate(found):
                if self._awaits_product(group, op) or self._awaits_product(other, op):
                    continue
                if self.share_loops(other, group, list(op.results)) and not self._connected(other, group):
                    before = self.model.cost(other) + self.model.cost(group)
                    found[i] = self.merge_loops(other, group)
                    why = f"shares the loops of {other.ops[-1].name}: {self._saved(before, found[i])}"
                    self.decisions.append((group.ops[-1], why))
                    break
            else:
                found.append(group)
        return found

    def _awaits_product(self, group: Group, op: ir.Operation) -> bool:
        """Whether the group could become the epilogue of a product that is still to be placed."""
        for reader in group.ops:
            for read in self.graph.reads[reader]:
                owner = defining_op(read.value)
                if owner is not None and owner != op and owner.name in IN_MEMORY and self.of[owner] is not group:
                    return True
        return False

    def share_loops(self, a: Group, b: Group, values: Sequence[ir.Value]) -> bool:
        """Whether one nest can compute both groups, which then read one of `values` once instead of twice."""
        if a.named is not None or b.named is not None or a.parts or b.parts or a.space != b.space:
            return False
        kinds = {a.reduced, b.reduced}
        if len(kinds) > 1:
            reduced = next(r for r in kinds if r is not None)
            kept = len(a.space) - len(reduced)
            if None not in kinds or not kept or min(reduced) < kept:
                return False
        if len(a.ops) + len(b.ops) > MOST_OPS:
            return False
        for value in values:
            at: list[set[tuple[ir.AffineExpr, ...]]] = []
            for group in (a, b):
                reads = [r for o in group.ops for r in self.graph.reads[o] if r.value == value and not r.whole]
                at.append(set(self._indices(group, reads) or ()))
            if at[0] & at[1]:
                return True
        return False

    def merge_loops(self, a: Group, b: Group) -> Group:
        """One group that computes both in the same loops. `share_loops` must hold, and no path lead between them."""
        ops = sorted([*a.ops, *b.ops], key=lambda o: self.graph.position[o])
        reduced = a.reduced if a.reduced is not None else b.reduced
        again = a.recomputed + b.recomputed
        merged = replace(a, ops=ops, points=a.points | b.points, reduced=reduced, recomputed=again)
        for op in ops:
            self.of[op] = merged
        return merged

    def _connected(self, a: Group, b: Group) -> bool:
        """Whether a path leads from one of two groups to the other."""
        return self._leads(self.successors(a), b) or self._leads(self.successors(b), a)

    def _try(self, op: ir.Operation, group: Group, reads: list[Read], stored: bool) -> str | None:
        """Merge `op`'s group into `group`; returns why not."""
        own = self.of[op]
        if any(r.whole and self.of[r.consumer] is group for v in op.results for r in self.graph.readers.get(v, [])):
            return "gathered from, or a matrix operand, in the consumer's kernel"
        indices = self._indices(group, reads)
        if indices is None:
            return "read at an index that is not affine in the consumer's loops"
        if self._would_cycle(own, group):
            return "a path through another kernel leads back"
        if own.named is not None:
            return self._try_epilogue(own, group, indices, reads)
        if own.reduced is not None:
            return self._try_reduction(op, group, indices, reads)
        return self._try_pointwise(op, group, indices, stored, reads)

    def _indices(self, group: Group, reads: list[Read]) -> list[tuple[ir.AffineExpr, ...]] | None:
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

    def _try_pointwise(
        self,
        op: ir.Operation,
        group: Group,
        indices: list[tuple[ir.AffineExpr, ...]],
        stored: bool,
        reads: list[Read],
    ) -> str | None:
        if stored and group.named is not None and group.named.name not in IN_MEMORY:
            return "needed in memory, and the consumer's kernel writes one result"
        if len(indices) > MOST_INDICES:
            return f"read at {len(indices)} indices: a kernel computes a value at {MOST_INDICES} at most"
        plain = [self._plain(i, group) for i in indices]
        if stored:
            full = len(indices) == 1 and plain[0] is not None and not any(r.guarded for r in reads)
            if not full or not self._storable(op, group, plain[0] or []):
                return "needed in memory, and not over the consumer's loops"
        times = self.model.evaluations(indices, group.space)
        again = max(0, times - self.model.count(self.graph.space(op))) * self.graph.cost(op)
        if again:
            before = self.model.cost(self.of[op]) + self.model.cost(group)
            after = self.model.cost(replace(group, ops=[*group.ops, op]), again)
            seconds = before.seconds(self.model.machine), after.seconds(self.model.machine)
            if seconds[1] > SLOWER * seconds[0]:
                saves, costs = amount(before.moved - after.moved, "B"), amount(again, "op")
                where = f"at {len(indices)} indices" if len(indices) > 1 else "again and again"
                slower = f"{1e6 * seconds[1]:.3g} instead of {1e6 * seconds[0]:.3g} us"
                return f"read {where}: saves {saves} of traffic, but computes {costs} more ({slower})"
            group.recomputed += again
            self.alternatives.setdefault(self.graph.position[op], 1)
        self._adopt(op, group, [self.graph.producer_point(op, index) for index in indices])
        return None

    def _plain(self, index: tuple[ir.AffineExpr, ...], group: Group) -> list[int] | None:
        """Positions of the group's dims that index an operand, each at most once; constants are left out."""
        dims: list[int] = []
        for e in index:
            if isinstance(e, ir.AffineConstantExpr):
                continue
            if not isinstance(e, ir.AffineDimExpr) or e.position in dims:
                return None
            dims.append(e.position)
        return dims

    def _storable(self, op: ir.Operation, group: Group, dims: list[int]) -> bool:
        """Whether the op's result can be written by the group's loops without writing it many times over."""
        every = frozenset(range(len(group.space)))
        mine = _loops(frozenset(dims), group.space)
        kept = every - (group.reduced or frozenset())
        return dims == sorted(dims) and mine in (_loops(every, group.space), _loops(kept, group.space))

    def _try_reduction(
        self,
        op: ir.Operation,
        group: Group,
        indices: list[tuple[ir.AffineExpr, ...]],
        reads: list[Read],
    ) -> str | None:
        if group.named is not None:
            return "a reduction before a matrix product or attention"
        if any(r.guarded for r in reads):
            return "a reduction below a pad or concatenation"
        if len(indices) != 1:
            return "a reduction read at several indices"
        dims = self._plain(indices[0], group)
        if dims is None or dims != sorted(dims):
            return "a reduction read at an index that is not a subset of the consumer's loops"
        own_space = self.graph.space(op)
        point = list(self.graph.producer_point(op, indices[0]))
        reduced = [i for i, e in enumerate(point) if e is None]
        zero = ir.AffineConstantExpr.get(0)
        rest = [d for d in range(len(group.space)) if d not in dims]
        if any(not _is_one(own_space[i]) for i in reduced):
            # A dim of size 1 is read at 0: it is none of the loops that the reduction walks.
            point = [zero if e is None and _is_one(own_space[i]) else e for i, e in enumerate(point)]
            reduced = [i for i in reduced if not _is_one(own_space[i])]
            rest = [d for d in rest if not _is_one(group.space[d])]
        extents = [own_space[i] for i in reduced]
        if group.reduced is not None and _loops(frozenset(rest), group.space) != _loops(group.reduced, group.space):
            return "the consumer's kernel reduces other loops"
        if not rest and group.reduced is None:
            rest = list(range(len(group.space), len(group.space) + len(extents)))
            group.space += extents
        elif [group.space[d] for d in rest] != extents:
            return "the reduced loops differ from the consumer's"
        if not dims:
            total = 1
            for x in extents:
                total *= x.value if isinstance(x, ir.AffineConstantExpr) else SERIAL_LIMIT
            if total > SERIAL_LIMIT:
                return "a reduction over everything: its kernel has no rows to share among threads"
        for i, d in zip(reduced, rest, strict=True):
            point[i] = ir.AffineDimExpr.get(d)
        group.reduced = frozenset(rest)
        self._adopt(op, group, [tuple(point)])
        return None

    def _try_epilogue(
        self, own: Group, group: Group, indices: list[tuple[ir.AffineExpr, ...]], reads: list[Read]
    ) -> str | None:
        op = own.named
        assert op is not None
        if op.name not in IN_MEMORY:
            return "its kernel takes nothing behind it"
        if group.named is not None or group.reduced is not None:
            if not self.row_blocks and (group.reduced is not None or not _same_lhs(op, group.all_named)):
                return "the consumer is no pointwise kernel"
            reason = why_not_joined(self.graph, op, group.all_named, group.reduced, len(group.space))
            if reason is not None:
                return reason
        if any(r.guarded for r in reads) or len(indices) != 1:
            return "the result is read at several indices, or in part"
        same = self._same_loops if op.name == "kiln.conv" else self._same_rows
        if not same(group, indices[0], self.graph.dims(op.results[0])):
            return "the consumer's loops are not those of the result"
        if group.named is None:
            group.named = op
        else:
            group.others.append(op)
        self._adopt(op, group, [indices[0]])
        return None

    def _same_loops(self, group: Group, index: tuple[ir.AffineExpr, ...], dims: tuple[ir.AffineExpr, ...]) -> bool:
        """Whether the group's loops are the dims of a convolution's result, in their order."""
        ranges = dict(enumerate(group.space))
        return list(dims) == list(group.space) and all(
            affine.equal(e, ir.AffineDimExpr.get(i), ranges) for i, e in enumerate(index)
        )

    def _same_rows(self, group: Group, index: tuple[ir.AffineExpr, ...], dims: tuple[ir.AffineExpr, ...]) -> bool:
        """Whether the group's loops walk a product's elements in their own order, up to a split of the rows."""
        rank = len(group.space)
        if not index or not rank or dims[-1] != group.space[-1]:
            return False
        if index[-1] != ir.AffineDimExpr.get(rank - 1) and not (_is_one(dims[-1]) and _is_zero(index[-1])):
            return False
        loops = [ir.AffineDimExpr.get(i) for i in range(rank - 1)]
        ranges = dict(enumerate(group.space))
        return affine.equal(row_major(index[:-1], dims[:-1]), row_major(loops, group.space[:-1]), ranges)

    # -- merging ----------------------------------------

    def _adopt(self, op: ir.Operation, group: Group, points: list[Point]) -> None:
        # Producers are visited before their own producers, so `op` is alone in its group until now.
        group.ops = sorted([*group.ops, op], key=lambda o: self.graph.position[o])
        group.points[op] = points
        self.of[op] = group

    def merge(self, a: Group, b: Group) -> Group:
        """One group with the parts of both. No path may lead from one to the other."""
        ops = sorted([*a.ops, *b.ops], key=lambda o: self.graph.position[o])
        first = min(a, b, key=lambda g: self.graph.position[g.ops[0]])
        parts = [*a.all_parts, *b.all_parts]
        merged = replace(first, ops=ops, parts=parts)
        for op in ops:
            self.of[op] = merged
        return merged

    def reads_of(self, op: ir.Operation) -> list[ir.Value]:
        """Operands of `op` and of the ops inside of it."""
        inner = [o.operation for r in op.regions for block in r.blocks for o in block.operations]
        return [*op.operands, *(v for o in inner for v in o.operands)]

    def successors(self, group: Group) -> list[Group | ir.Operation]:
        """Kernels and calls that read what `group` makes."""
        found: list[Group | ir.Operation] = []
        for op in group.ops:
            self._collect(op, found, group)
        return found

    def _collect(self, op: ir.Operation, found: list[Group | ir.Operation], origin: Group | None) -> None:
        for result in op.results:
            for use in result.uses:
                user = self._top(use.owner)
                if user in self.of:
                    group = self.of[user]
                    if group is not origin and group not in found:
                        found.append(group)
                elif self.graph.is_free(user):
                    self._collect(user, found, origin)
                elif user not in found:
                    found.append(user)

    def _top(self, owner: ir.Operation | ir.OpView) -> ir.Operation:
        op = owner.operation
        while op not in self.graph.position:
            op = op.parent.operation
        return op

    def _would_cycle(self, own: Group, group: Group) -> bool:
        """Whether `group` is reachable from `own` other than directly."""
        return self._leads([s for s in self.successors(own) if s is not group], group)

    def _leads(self, work: list[Group | ir.Operation], group: Group) -> bool:
        """Whether a path leads from one of some kernels and calls to `group`."""
        seen: list[Group | ir.Operation] = []
        while work:
            node = work.pop()
            if node is group:
                return True
            if any(node is s for s in seen):
                continue
            seen.append(node)
            if isinstance(node, Group):
                work += self.successors(node)
            else:
                onward: list[Group | ir.Operation] = []
                self._collect(node, onward, None)
                work += onward
        return False


def _is_one(extent: ir.AffineExpr) -> bool:
    return affine.constant_of(extent) == 1


def _is_zero(e: ir.AffineExpr) -> bool:
    return affine.constant_of(e) == 0


def _loops(dims: frozenset[int], space: Sequence[ir.AffineExpr]) -> frozenset[int]:
    """Those of `dims` that go round more than once."""
    return frozenset(d for d in dims if not _is_one(space[d]))


def _same_lhs(op: ir.Operation, others: Sequence[ir.Operation]) -> bool:
    """Whether products multiply the same rows: one program can sum a tile of each (a gate and what it scales)."""
    key = (
        (op.operands[0], bool(ir.IntegerAttr(op.attributes["transpose_lhs"]).value))
        if op.name == "kiln.matmul"
        else None
    )
    return key is not None and all(
        other.name == op.name
        and (other.operands[0], bool(ir.IntegerAttr(other.attributes["transpose_lhs"]).value)) == key
        for other in others
    )
