# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which kernels depend on which: paths between the groups and calls of a function."""

from kiln.dialects.walk import defining_op
from kiln.passes.fusion.groups import Group, Grouping


class Reach:
    """Paths between the groups of a grouping, calls included. Groups may change by `merge` alone while it is used."""

    def __init__(self, grouping: Grouping):
        graph = grouping.graph
        self._number: dict[int, int] = {}
        self._groups: list[Group] = []  # keeps the ids above in use
        self._before: list[int] = []  # per node, a bit for each node with a path to it
        sources: list[int] = []  # per op, a bit for each node that makes what it gives
        before_call = {after: before for before, after in graph.next_call.items()}
        for op in graph.operations:
            found = sources[graph.position[before_call[op]]] if op in before_call else 0
            for v in graph.values_read(op):
                owner = defining_op(v)
                if owner is not None and owner in graph.position:
                    found |= sources[graph.position[owner]]
            if graph.is_free(op):
                sources.append(found)
                continue
            node = self._node(grouping.of.get(op))
            self._before[node] |= found & ~(1 << node)
            sources.append(1 << node)
        self._close()

    def _node(self, group: Group | None) -> int:
        if group is not None and id(group) in self._number:
            return self._number[id(group)]
        self._before.append(0)
        if group is not None:
            self._groups.append(group)
            self._number[id(group)] = len(self._before) - 1
        return len(self._before) - 1

    def _close(self) -> None:
        changed = True
        while changed:
            changed = False
            for node, before in enumerate(self._before):
                found, rest = before, before
                while rest:
                    low = rest & -rest
                    found |= self._before[low.bit_length() - 1]
                    rest ^= low
                if found != before:
                    self._before[node], changed = found, True

    def independent(self, a: Group, b: Group) -> bool:
        """Whether no path leads from one to the other, so that one kernel may hold both."""
        i, j = self._number[id(a)], self._number[id(b)]
        return not self._before[i] >> j & 1 and not self._before[j] >> i & 1

    def merge(self, a: Group, b: Group, merged: Group) -> None:
        """Note that `merged` stands for `a` and `b` from now on."""
        i, j = self._number[id(a)], self._number[id(b)]
        both = 1 << i | 1 << j
        above = self._before[i] | self._before[j]
        self._before[i] = self._before[j] = above
        for node, before in enumerate(self._before):
            if before & both:
                self._before[node] = before | above | both
        self._groups.append(merged)
        self._number[id(merged)] = i
