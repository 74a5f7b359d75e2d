# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""In which order kernels and calls run, and how much memory that takes at most.

A value that another kernel or call reads is in memory from the step that makes it to the last one that reads it;
results of the function to its end. A kernel of loops alone writes a result over an operand of the same size that dies
there (as reuse-buffers does, where the indices allow it, which is not known here).
"""

from collections import Counter
from collections.abc import Sequence
from copy import copy
from heapq import heappop, heappush

from torch_mlir import ir

from kiln.dialects.kiln import opdef
from kiln.dialects.walk import defining_op
from kiln.passes.fusion.groups import Group, Grouping

__all__ = ["Kernels", "Node", "Schedule"]

_CALLER = -1
"""Stands for the caller as a reader, who is never done."""

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
                self.loops.append(op in grouping.of and not opdef(op).has_kernel)
                tensors = [r for r in op.results if isinstance(r.type, ir.RankedTensorType)]
                is_constant = op.name == "arith.constant"
                self.sizes.append(0 if is_constant else sum(grouping.model.bytes_of(r) for r in tensors))
                if op in before_call:
                    self.calls[number] = self.number[graph.position[before_call[op]]]

    def order(self, grouping: Grouping) -> list[Node]:
        """The nodes so that each comes behind what it reads and calls with effects keep their order.

        As they stand in the function, or what frees most first where that needs less memory.
        """
        kernels = self.kernels(grouping)
        return [kernels.nodes[i] for i in kernels.best()[0]]

    def peak(self, grouping: Grouping, enough: int = -1) -> int:
        """Most bytes alive at once. No order is looked for that takes less than `enough`, where as they stand in the
        function they take no more.
        """
        return self.kernels(grouping).best(enough)[1]

    def crowded(self, grouping: Grouping, limit: int) -> list[Group]:
        """The groups during which more than `limit` bytes are alive."""
        kernels = self.kernels(grouping)
        order, _ = kernels.best()
        live = kernels.live(order)
        nodes = [kernels.nodes[i] for i in order]
        return [n for n, bytes_ in zip(nodes, live, strict=True) if bytes_ > limit and isinstance(n, Group)]

    def kernels(self, grouping: Grouping) -> "Kernels":
        """The nodes of a grouping as they are now."""
        return Kernels(self, grouping)


class Kernels:
    """The nodes of one grouping, by number in the order of their first ops, and the values between them: for each the
    node that makes it, those that read it, and its bytes. Of merged nodes the lower number stands for both.
    """

    def __init__(self, schedule: Schedule, grouping: Grouping) -> None:
        self.nodes: list[Node] = []
        self.number: dict[int, int] = {}  # id of a group -> its node; `nodes` keeps the ids in use
        of: list[int] = []
        for op in schedule.ops:
            group = grouping.of.get(op)
            if group is None or id(group) not in self.number:
                if group is not None:
                    self.number[id(group)] = len(self.nodes)
                self.nodes.append(op if group is None else group)
            of.append(len(self.nodes) - 1 if group is None else self.number[id(group)])
        self.needs: list[set[int]] = [set() for _ in self.nodes]
        self.users: list[set[int]] = [set() for _ in self.nodes]
        self.readers: dict[int, set[int]] = {}
        for i, sources in enumerate(schedule.sources):
            for s in sources:
                if of[s] != of[i]:
                    self._link(of[s], of[i])
                    self.readers.setdefault(s, set()).add(of[i])
        for call, before in schedule.calls.items():
            self._link(of[before], of[call])
        for s in schedule.returned:
            self.readers.setdefault(s, set()).add(_CALLER)
        self.alone = {of[i] for i, is_loop in enumerate(schedule.loops) if not is_loop}
        self.sizes = {s: schedule.sizes[s] for s in self.readers}
        self.total = sum(self.sizes.values())
        self.made: list[list[int]] = [[] for _ in self.nodes]
        self.read: list[list[int]] = [[] for _ in self.nodes]
        for s, nodes in self.readers.items():
            self.made[of[s]].append(s)
            for n in nodes - {_CALLER}:
                self.read[n].append(s)
        self.gone: set[int] = set()

    def _link(self, before: int, after: int) -> None:
        self.needs[after].add(before)
        self.users[before].add(after)

    def merged(self, a: Group, b: Group, merged: Group) -> "Kernels":
        """These with one node for two groups, neither of which reads what the other makes."""
        i, j = sorted((self.number[id(a)], self.number[id(b)]))
        made = copy(self)
        made.number, made.nodes, made.gone = self.number | {id(merged): i}, list(self.nodes), self.gone | {j}
        made.nodes[i] = merged
        made.needs, made.users = list(self.needs), list(self.users)
        for n in self.needs[j]:
            made.users[n] = self.users[n] - {j} | {i}
        for n in self.users[j]:
            made.needs[n] = self.needs[n] - {j} | {i}
        made.needs[i], made.users[i] = self.needs[i] | self.needs[j], self.users[i] | self.users[j]
        made.made, made.read, made.readers = list(self.made), list(self.read), dict(self.readers)
        for s in self.read[j]:
            made.readers[s] = self.readers[s] - {j} | {i}
        made.made[i] = self.made[i] + self.made[j]
        made.read[i] = list(dict.fromkeys(self.read[i] + self.read[j]))
        made.alone = self.alone | {i} if j in self.alone else self.alone
        return made

    def best(self, enough: int = -1) -> tuple[list[int], int]:
        """An order of the nodes, and the most bytes alive at once in it: the function's own where that takes no more
        than `enough`, or no more than what frees most first.
        """
        plain = _walk(self, None)
        peak = max(self.live(plain), default=0)
        if peak <= enough:
            return plain, peak
        eager = _walk(self, _Change(self))
        less = max(self.live(eager), default=0)
        return (eager, less) if less < peak else (plain, peak)

    def live(self, order: Sequence[int]) -> list[int]:
        """Bytes alive during each node of an order."""
        found: list[int] = []
        live = 0
        left = {s: len(nodes) for s, nodes in self.readers.items()}
        for node in order:
            made = [self.sizes[s] for s in self.made[node]]
            freed: list[int] = []
            for s in self.read[node]:
                left[s] -= 1
                if not left[s]:
                    freed.append(self.sizes[s])
            live += sum(made)
            is_over = made and freed and node not in self.alone
            over = sum((Counter(made) & Counter(freed)).elements()) if is_over else 0
            found.append(live - over)
            live -= sum(freed)
        return found


class _Change:
    """How many bytes more are alive behind each node than before it, as other nodes are done."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._left = {s: (len(nodes), sum(nodes)) for s, nodes in kernels.readers.items()}  # the last one is the sum
        self.of = [sum(kernels.sizes[s] for s in made) for made in kernels.made]
        for node, read in enumerate(kernels.read):
            self.of[node] -= sum(kernels.sizes[s] for s in read if self._left[s][0] == 1)

    def less_behind(self, node: int) -> list[int]:
        """Notes that a node is done; returns the nodes whose change is less for that."""
        found: list[int] = []
        for s in self._kernels.read[node]:
            count, last = self._left[s] = self._left[s][0] - 1, self._left[s][1] - node
            if count == 1 and last != _CALLER:
                self.of[last] -= self._kernels.sizes[s]
                found.append(last)
        return found


def _walk(kernels: Kernels, change: _Change | None) -> list[int]:
    """The nodes in an order that they allow: the first that is ready, or the one that frees most."""
    waiting = [len(needs) for needs in kernels.needs]
    ready: list[tuple[int, int]] = []

    def add(node: int) -> None:
        heappush(ready, (0 if change is None else change.of[node], node))

    for node, count in enumerate(waiting):
        if not count and node not in kernels.gone:
            add(node)
    order: list[int] = []
    done: set[int] = set()
    while ready:
        _, node = heappop(ready)
        if node in done:
            continue  # its change became less meanwhile
        order.append(node)
        done.add(node)
        for other in change.less_behind(node) if change is not None else ():
            if not waiting[other]:
                add(other)
        for user in kernels.users[node]:
            waiting[user] -= 1
            if not waiting[user]:
                add(user)
    assert len(order) == len(kernels.nodes) - len(kernels.gone), "kernels wait for each other"
    return order
