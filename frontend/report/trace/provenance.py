# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which FX nodes a line of IR comes from, at every stage."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kiln.frontend.report.trace.locations import Line, places
from kiln.frontend.report.trace.records import GraphTrace, Node

__all__ = ["Provenance", "Text"]


@dataclass(frozen=True)
class Text:
    """Lines with the number of the set of nodes that each comes from; -1: none."""

    lines: list[str]
    sets: list[int]

    def data(self) -> dict[str, object]:
        """As JSON."""
        return {"text": "\n".join(self.lines), "sets": self.sets}


class Provenance:
    """Sets of FX nodes, each known by a number: ``sets[number]`` has the nodes' positions in ``nodes``, in order.

    A kernel that is launched for several equal fusions has one code, whose locations are those of the first fusion. The
    nodes of the others are found by their place in the fusion.
    """

    def __init__(self, trace: GraphTrace) -> None:
        self.nodes = list(trace.nodes)
        self.sets: list[list[int]] = []
        self._positions = {node.name: i for i, node in enumerate(self.nodes)}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._known: dict[str, int] = {}
        self._others = _others(trace)
        self._in_kernel: dict[tuple[str, str], int] = {}

    def number_of(self, location: str) -> int:
        """The number of the nodes in a location."""
        if not location:
            return -1
        if location not in self._known:
            self._known[location] = self.number([self._node(*place) for place in places(location)])
        return self._known[location]

    def number(self, nodes: Iterable[int]) -> int:
        """The number of a set of nodes; -1 for none."""
        key = tuple(sorted(set(nodes)))
        if not key:
            return -1
        if key not in self._numbers:
            self._numbers[key] = len(self.sets)
            self.sets.append(list(key))
        return self._numbers[key]

    def number_in(self, kernel: str, location: str) -> int:
        """The number of the nodes that a location in a kernel's code stands for, in all of its launches."""
        key = kernel, location
        if key not in self._in_kernel:
            number = self.number_of(location)
            others = self._others.get(kernel, {})
            nodes = [] if number < 0 else self.sets[number]
            names = {other for node in nodes for other in others.get(self.nodes[node].name, ())}
            self._in_kernel[key] = self.number([*nodes, *(self._node(name, "", 0) for name in names)])
        return self._in_kernel[key]

    def text(self, lines: Sequence[Line], kernel: str = "") -> Text:
        """Lines with the numbers of their nodes."""
        numbers = [self.number_in(kernel, line.location) if kernel else self.number_of(line.location) for line in lines]
        return Text([line.text for line in lines], numbers)

    def of_launch(self, trace: GraphTrace, position: int) -> int:
        """The nodes of the fusion that is launched at a position among the functions' launches."""
        found = trace.locations[position] if position < len(trace.locations) else ()
        return self.number(self._node(*place) for location in found for place in places(location))

    def _node(self, name: str, file: str, line: int) -> int:
        """The position of a node; one that the graph does not have (a pass made it) is added."""
        if name not in self._positions:
            self._positions[name] = len(self.nodes)
            self.nodes.append(Node(name, "", frames=((file, line),) if file else ()))
        return self._positions[name]


def _others(trace: GraphTrace) -> dict[str, dict[str, set[str]]]:
    """By kernel and node of its first launch: the nodes in the same place of its other launches."""
    first: dict[str, tuple[str, ...]] = {}
    others: dict[str, dict[str, set[str]]] = {}
    for kernel, locations in zip(trace.launched, trace.locations, strict=False):
        model = first.setdefault(kernel, locations)
        if model is locations or len(model) != len(locations):
            continue
        table = others.setdefault(kernel, {})
        for mine, theirs in zip(model, locations, strict=True):
            for (name, *_), (other, *_) in zip(places(mine), places(theirs), strict=False):
                table.setdefault(name, set()).add(other)
    return others
