# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Cheap values that several kernels read, computed in each of them instead of stored once.

A mask, a cast, a dequantised weight or a batch norm's `rsqrt` costs less to compute again than to write and read, and a
kernel that has its own copy waits for no other and may share loops with any. The decision is made on a grouping: what
is stored there, by whom it is read, what it is computed from. The ops get copies in the function, one for each kernel
that reads them, and the function is grouped anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.passes.fusion.cost import Cost, amount
from kiln.passes.fusion.groups import Group, Grouping
from kiln.passes.fusion.joining import MOST_INDICES
from kiln.passes.fusion.rules import fusion_rules

__all__ = ["Copies", "Repeated", "copy_for_readers", "estimate", "worth_repeating"]

MOST_READERS = 8
"""Kernels that compute one value: the code of each grows."""


@dataclass(frozen=True)
class Repeated:
    """A value that kernels compute for themselves. ops: what computes it from what is in memory, in order; the last
    one's result is the value. readers: ops that read it, of each kernel that gets a copy. why: for the remark.
    """

    ops: list[ir.Operation]
    readers: list[list[ir.Operation]]
    why: str


@dataclass
class Copies:
    """Ops that were copied, and how to undo that."""

    origin: dict[ir.Value, ir.Value] = field(default_factory=dict[ir.Value, ir.Value])
    """Result of a copy -> that of the op it is a copy of."""
    made: list[ir.Operation] = field(default_factory=list[ir.Operation])
    rewired: list[tuple[ir.Operation, int, ir.Value]] = field(default_factory=list[tuple[ir.Operation, int, ir.Value]])

    def undo(self) -> None:
        """The function as it was."""
        for op, number, value in reversed(self.rewired):
            op.operands[number] = value
        for op in reversed(self.made):
            op.erase()


def worth_repeating(grouping: Grouping) -> list[Repeated]:
    """Values of a grouping that are stored, and that it takes no longer to compute wherever they are read."""
    found: list[Repeated] = []
    taken: set[ir.Operation] = set()
    for op in reversed(grouping.graph.compute):
        if op in taken:
            continue
        readers = _readers(grouping, op)
        for cone in (_cone(grouping, op), _widening(grouping, op)) if readers else ():
            if cone is None or any(o in taken for o in cone):
                continue
            why = _why_repeat(grouping, cone, readers)
            if why is not None:
                break
        else:
            continue
        keeps = len(cone) < len(grouping.of[op].ops)
        groups = readers if keeps else readers[1:]  # else the first reader's kernel takes the op itself
        if groups:
            reads = [r for v in op.results for r in grouping.graph.readers[v]]
            kernels = [list(dict.fromkeys(r.consumer for r in reads if grouping.of[r.consumer] is g)) for g in groups]
            found.append(Repeated(cone, kernels, why))
            taken.update(cone)
    return found


def estimate(grouping: Grouping) -> tuple[float, int]:
    """(seconds, bytes moved) of all kernels."""
    costs = [grouping.model.cost(group) for group in grouping.groups()]
    return sum(c.seconds(grouping.model.machine) for c in costs), sum(c.moved for c in costs)


def _readers(grouping: Grouping, op: ir.Operation) -> list[Group]:
    """Kernels that read what another one stores for them alone; none where it is needed in memory anyway."""
    graph, own = grouping.graph, grouping.of[op]
    if not _is_pointwise(grouping, op) or any(v in graph.external for v in op.results):
        return []
    reads = [r for v in op.results for r in graph.readers.get(v, ())]
    found: list[Group] = []
    for read in reads:
        group = grouping.of[read.consumer]
        if read.whole:
            return []
        if group is not own and not any(group is g for g in found):
            found.append(group)
    within = any(grouping.of[r.consumer] is own for r in reads)
    return found if len(found) + within > 1 and len(found) <= MOST_READERS else []


def _is_pointwise(grouping: Grouping, op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and len(op.results) == 1 and not grouping.graph.reduces(op)


def _cone(grouping: Grouping, op: ir.Operation) -> list[ir.Operation] | None:
    """What computes `op` from values that are in memory, or sums that can be, in order; None if that is too much."""
    graph, own = grouping.graph, grouping.of[op]
    found, work = {graph.position[op]: op}, [op]
    while work:
        for read in graph.reads[work.pop()]:
            maker = defining_op(read.value)
            if maker is None or maker not in grouping.of or graph.position[maker] in found:
                continue
            if _is_stored(grouping, maker) or _is_own_sum(grouping, maker, own):
                continue
            if grouping.of[maker] is not own or not _is_pointwise(grouping, maker) or read.whole:
                return None
            found[graph.position[maker]] = maker
            work.append(maker)
    cone = [found[p] for p in sorted(found)]
    points = max(1, grouping.model.count(graph.space(op)))
    cost = sum(grouping.model.own_operations(o) for o in cone)
    return cone if cost <= fusion_rules().repeated_cost * points else None


def _is_own_sum(grouping: Grouping, op: ir.Operation, own: Group) -> bool:
    """Whether a reduction of the same kernel gives what is stored in the place of more: a mean for what is less it."""
    return grouping.of[op] is own and op.name == "linalg.generic" and grouping.graph.reduces(op)


def _widening(grouping: Grouping, op: ir.Operation) -> list[ir.Operation] | None:
    """An op whose only operand is a smaller value of its own kernel, which is stored in its place: a cast to f32."""
    graph, model = grouping.graph, grouping.model
    values = {read.value for read in graph.reads[op]}
    if len(values) != 1 or any(read.whole for read in graph.reads[op]):
        return None
    maker = defining_op(next(iter(values)))
    if maker is None or grouping.of.get(maker) is not grouping.of[op] or _is_stored(grouping, maker):
        return None
    return [op] if model.bytes_of(next(iter(values))) < model.bytes_of(op.results[0]) else None


def _is_stored(grouping: Grouping, op: ir.Operation) -> bool:
    """Whether something outside of its kernel reads what `op` gives."""
    graph, own = grouping.graph, grouping.of[op]
    return any(
        v in graph.external or any(r.whole or grouping.of[r.consumer] is not own for r in graph.readers.get(v, ()))
        for v in op.results
    )


def _inputs(grouping: Grouping, cone: list[ir.Operation]) -> set[ir.Value]:
    members = set(cone)
    return {r.value for op in cone for r in grouping.graph.reads[op] if defining_op(r.value) not in members}


def _why_repeat(grouping: Grouping, cone: list[ir.Operation], readers: list[Group]) -> str | None:
    """What is saved if each reader computes the cone's value; None if that takes longer."""
    model, graph, op = grouping.model, grouping.graph, cone[-1]
    own, value = grouping.of[op], op.results[0]
    size, inputs = model.bytes_of(value), _inputs(grouping, cone)
    makers = {v: defining_op(v) for v in inputs}
    stored = sum(
        model.bytes_of(v)
        for v, maker in makers.items()
        if maker is not None and grouping.of.get(maker) is own and not _is_stored(grouping, maker)
    )
    before = after = 0.0
    saved = again = 0
    for group in readers:
        reads = [r for r in graph.readers[value] if grouping.of[r.consumer] is group]
        evaluations = 0
        for part in group.all_parts:
            mine = [r for r in reads if r.consumer in part.points]
            indices = grouping.indices(part, mine)
            if indices is None or len(indices) > MOST_INDICES:
                return None
            evaluations += model.evaluations(indices, part.space)
        cost = model.cost(group)
        tally = model.tally(group)
        more = sum(model.bytes_of(v) for v in inputs if v not in tally.reads and v not in tally.made)
        work = evaluations * sum(graph.cost(o) for o in cone)
        before += cost.seconds(model.machine)
        after += replace(cost, read=cost.read - size + more, operations=cost.operations + work).seconds(model.machine)
        saved, again = saved + size - more, again + work
    cost = model.cost(own)
    before += cost.seconds(model.machine)
    if len(cone) == len(own.ops):
        saved += cost.moved
        rest = Cost()
    else:
        saved += size - stored
        rest = replace(cost, written=cost.written - size + stored)
        after += rest.seconds(model.machine)
    if after > before or saved < 0:
        return None
    where = "another kernel that reads" if len(readers) == 1 else f"{len(readers)} other kernels that read"
    return f"computed in {where} it, too: saves {amount(saved, 'B')} of traffic, computes {amount(again, 'op')} again"


def copy_for_readers(repeated: list[Repeated]) -> Copies:
    """Gives each kernel its own copy of the ops that it repeats; graphs of the function are no longer valid then."""
    copies = Copies()
    # All that is asked of ops is asked first: their hashes cover their operands, which change.
    plans = [(entry, [_uses(entry.ops[-1].results[0], ops) for ops in entry.readers]) for entry in repeated]
    for entry, kernels in plans:
        for uses in kernels:
            _copy(entry.ops, uses, copies)
    return copies


def _uses(value: ir.Value, ops: list[ir.Operation]) -> list[tuple[ir.Operation, int, list[ir.Operation]]]:
    """Operands of `ops` that are `value`, or views on top of it: (op, number, views from the outermost)."""
    found: list[tuple[ir.Operation, int, list[ir.Operation]]] = []
    for op in ops:
        for number, operand in enumerate(op.operands):
            views = list(_views(operand))
            below = views[-1].operands[0] if views else operand
            if below == value:
                found.append((op, number, views))
    return found


def _views(value: ir.Value) -> Iterator[ir.Operation]:
    op = defining_op(value)
    while op is not None and op.name == "kiln.view":
        yield op
        op = defining_op(op.operands[0])


def _copy(cone: list[ir.Operation], uses: list[tuple[ir.Operation, int, list[ir.Operation]]], copies: Copies) -> None:
    inside: dict[ir.Value, ir.Value] = {}
    with ir.InsertionPoint.after(cone[-1]):
        for op in cone:
            made = _clone(op, inside, copies)
            copies.origin[made.results[0]] = op.results[0]
    for op, number, views in uses:
        copied = inside[cone[-1].results[0]]
        for view in reversed(views):
            if view.results[0] not in inside:
                with ir.InsertionPoint(view):
                    _clone(view, inside, copies)
            copied = inside[view.results[0]]
        copies.rewired.append((op, number, op.operands[number]))
        op.operands[number] = copied


def _clone(op: ir.Operation, inside: dict[ir.Value, ir.Value], copies: Copies) -> ir.Operation:
    """A copy of `op` at the insertion point, of copied operands where there are any, views in between included."""
    for value in op.operands:
        for view in reversed(list(_views(value))):
            if view.operands[0] in inside and view.results[0] not in inside:
                _clone(view, inside, copies)
    made = op.clone().operation
    for i, value in enumerate(op.operands):
        if value in inside:
            made.operands[i] = inside[value]
    copies.made.append(made)
    inside[op.results[0]] = made.results[0]
    return made
