# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""In which order kernels and calls run, and how much memory that takes at most.

A value that another kernel or call reads is in memory from the step that makes it to the last one that reads it;
results of the function to its end. A kernel of loops alone writes a result over an operand of the same size that dies
there (as reuse-buffers does, where the indices allow it, which is not known here).
"""

from collections import Counter
from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.dialects.walk import defining_op
from kiln.passes.fusion.graph import NAMED
from kiln.passes.fusion.groups import Group, Grouping

__all__ = ["SPARE", "Node", "Schedule"]

SPARE = 8
"""Fewer kernels may cost this fraction (1/n) of the memory that is held without them."""

Node = Group | ir.Operation
"""A kernel, or a call or constant between kernels."""


class Schedule:
    """Orders of the nodes of a function for any grouping of its ops. Valid until the function is changed."""

    @staticmethod
    def of(grouping: Grouping) -> "Schedule":
        """The one of a grouping's graph: it is the same for all groupings."""
        graph = grouping.graph
        if graph.schedule is None:
            graph.schedule = Schedule(grouping)
        return graph.schedule

    def __init__(self, grouping: Grouping) -> None:
        graph = grouping.graph  # not kept: it may keep this
        self.number: dict[int, int] = {}  # position in the function -> number of the op here
        self.ops: list[ir.Operation] = []
        self.sources: list[set[int]] = []  # numbers of the ops that make what an op reads
        self.sizes: list[int] = []  # bytes of an op's results
        self.loops: list[bool] = []  # whether an op may write over its operands
        below: list[set[int]] = []  # per op of the function: what makes its results, free ops looked through
        before_call = {after: before for before, after in graph.next_call.items()}
        self.calls: dict[int, int] = {}  # call with effects -> the one before it
        for position, op in enumerate(graph.operations):
            found: set[int] = set()
            for v in graph.values_read(op):
                owner = defining_op(v)
                if owner is not None and owner in graph.position:
                    found |= below[graph.position[owner]]
            if position == len(graph.operations) - 1:
                self.returned = found
            elif graph.is_free(op) and op.name != "arith.constant":
                below.append(found)
            else:
                number = self.number[position] = len(self.ops)
                below.append({number})
                self.ops.append(op)
                self.sources.append(found)
                self.loops.append(op in grouping.of and name_of(op) not in NAMED)
                tensors = [r for r in op.results if isinstance(r.type, ir.RankedTensorType)]
                is_constant = op.name == "arith.constant"
                self.sizes.append(0 if is_constant else sum(grouping.model.bytes_of(r) for r in tensors))
                if op in before_call:
                    self.calls[number] = self.number[graph.position[before_call[op]]]

    def order(self, grouping: Grouping) -> list[Node]:
        """The nodes so that each comes behind what it reads and calls with effects keep their order.

        As they stand in the function, or what frees most first where that needs less memory.
        """
        nodes, of = self._nodes(grouping)
        order, _ = self._best(of, len(nodes))
        return [nodes[i] for i in order]

    def peak(self, grouping: Grouping, together: Sequence[Group] = (), enough: int = -1) -> int:
        """Most bytes alive at once if the groups `together` were one. No order is looked for that takes less than
        `enough`, where as they stand in the function they take no more."""
        nodes, of = self._nodes(grouping)
        if together:
            merged = [i for i, n in enumerate(nodes) if any(n is g for g in together)]
            of = [merged[0] if i in merged else i for i in of]
        return self._best(of, len(nodes), enough)[1]

    def crowded(self, grouping: Grouping, limit: int) -> list[Group]:
        """The groups during which more than `limit` bytes are alive."""
        nodes, of = self._nodes(grouping)
        order, _ = self._best(of, len(nodes))
        live = _Memory(self, of).live(order)
        return [n for i, bytes_ in zip(order, live, strict=True) if bytes_ > limit and isinstance(n := nodes[i], Group)]

    def _nodes(self, grouping: Grouping) -> tuple[list[Node], list[int]]:
        """The nodes, and which one each op is in."""
        nodes: list[Node] = []
        known: dict[int, int] = {}
        of: list[int] = []
        for op in self.ops:
            group = grouping.of.get(op)
            key = -1 if group is None else id(group)
            if group is None or key not in known:
                known[key] = len(nodes)
                nodes.append(op if group is None else group)
            of.append(known[key])
        return nodes, of

    def _best(self, of: Sequence[int], count: int, enough: int = -1) -> tuple[list[int], int]:
        needs: list[set[int]] = [set() for _ in range(count)]
        for i, sources in enumerate(self.sources):
            needs[of[i]] |= {of[s] for s in sources} - {of[i]}
        for call, before in self.calls.items():
            needs[of[call]].add(of[before])
        memory = _Memory(self, of)
        plain = _walk(needs, set(of), None)
        peak = memory.peak(plain)
        if peak <= enough:
            return plain, peak
        eager = _walk(needs, set(of), memory)
        less = memory.peak(eager)
        return (eager, less) if less < peak else (plain, peak)


class _Memory:
    """Values in memory: for each the node that makes it, those that read it, and its bytes."""

    def __init__(self, schedule: Schedule, of: Sequence[int]) -> None:
        readers: dict[int, set[int]] = {}
        for i, sources in enumerate(schedule.sources):
            for s in sources:
                if of[s] != of[i]:
                    readers.setdefault(s, set()).add(of[i])
        for s in schedule.returned:
            readers.setdefault(s, set()).add(-1)  # the caller, who is never done
        self.readers = readers
        self.fixed = {of[i] for i, is_loop in enumerate(schedule.loops) if not is_loop}
        self.sizes = {s: schedule.sizes[s] for s in readers}
        self.made: dict[int, list[int]] = {}
        self.read: dict[int, list[int]] = {}
        for s, nodes in readers.items():
            self.made.setdefault(of[s], []).append(s)
            for n in nodes:
                self.read.setdefault(n, []).append(s)

    def change(self, node: int, done: set[int]) -> int:
        """Bytes more that are alive behind `node`, if `done` are the nodes before it."""
        made = sum(self.sizes[s] for s in self.made.get(node, ()))
        freed = sum(self.sizes[s] for s in self.read.get(node, ()) if self.readers[s] <= done | {node})
        return made - freed

    def peak(self, order: Sequence[int]) -> int:
        """Most bytes alive at once."""
        return max(self.live(order), default=0)

    def live(self, order: Sequence[int]) -> list[int]:
        """Bytes alive during each node of an order."""
        found: list[int] = []
        live = 0
        done: set[int] = set()
        for node in order:
            done.add(node)
            made = [self.sizes[s] for s in self.made.get(node, ())]
            freed = [self.sizes[s] for s in self.read.get(node, ()) if self.readers[s] <= done]
            live += sum(made)
            is_over = made and freed and node not in self.fixed
            over = sum((Counter(made) & Counter(freed)).elements()) if is_over else 0
            found.append(live - over)
            live -= sum(freed)
        return found


def _walk(needs: Sequence[set[int]], nodes: set[int], memory: _Memory | None) -> list[int]:
    """Nodes in an order that `needs` allows: the first that is ready, or the one that frees most."""
    waiting = {n: len(needs[n]) for n in nodes}
    users: dict[int, list[int]] = {}
    for n in nodes:
        for before in needs[n]:
            users.setdefault(before, []).append(n)
    ready = {n for n, count in waiting.items() if not count}
    order: list[int] = []
    done: set[int] = set()
    while ready:
        node = min(ready) if memory is None else min(ready, key=lambda n: (memory.change(n, done), n))
        ready.remove(node)
        order.append(node)
        done.add(node)
        for user in users.get(node, ()):
            waiting[user] -= 1
            if not waiting[user]:
                ready.add(user)
    assert len(order) == len(nodes), "kernels wait for each other"
    return order
