# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What ``@main`` returns, and where each output of an FX graph comes from."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import sympy
import torch
from torch.fx import Node

from kiln.frontend.calls.signature import FoundSymbol, OutputSpec
from kiln.frontend.import_.effects import is_token
from kiln.frontend.import_.fx_types import address_strides
from kiln.frontend.import_.fx_values import ImportUnsupported, node_value
from kiln.frontend.import_.op_forms import leaf_symbols
from kiln.frontend.import_.symbols import SymbolSpace, as_expr

__all__ = ["GraphResults"]


class GraphResults:
    """The results of ``@main`` for a graph's outputs and its copies into inputs.

    Args:
      nodes: those of the graph, in order.
      copies: copies into inputs at the graph's end: node of the copy -> (graph input, node copied from).

    ``computed``: the nodes whose tensors ``@main`` returns. ``outputs``: where each output of the graph comes from.
    ``mutations``: pairs (graph input, result), as :attr:`ImportedGraph.mutations`.
    """

    def __init__(self, nodes: Sequence[Node], copies: dict[Node, tuple[int, Node]], space: SymbolSpace) -> None:
        self._nodes, self._copies, self._space = nodes, copies, space
        self._placeholders = [node for node in nodes if node.op == "placeholder"]
        self._position = {node: i for i, node in enumerate(self._placeholders)}
        # Numbers that the graph finds and returns: name -> node of a tensor, and the dim of which it is the size.
        self._found: dict[str, tuple[Node, int]] = {}
        self.computed: list[Node] = []
        output = next(node for node in reversed(nodes) if node.op == "output")
        returned = output.args[0]
        wanted: list[Any] = list(cast(Sequence[Any], returned)) if isinstance(returned, (tuple, list)) else [returned]
        self.outputs = [self._output(arg) for arg in wanted]
        self.mutations: list[tuple[int, int]] = []
        for index, source in copies.values():
            if source not in self.computed:
                self.computed.append(source)
            self.mutations.append((index, self.computed.index(source)))

    def storages(self) -> list[int]:
        """See :attr:`ImportedGraph.result_storages`; views share their base's storage in the trace."""
        numbers: dict[int, int] = {}
        for index, node in enumerate(self._placeholders):
            value = node_value(node)
            if isinstance(value, torch.Tensor):
                numbers.setdefault(value.untyped_storage()._cdata, -1 - index)
        found: list[int] = []
        for node in self.computed:
            value = node_value(node)
            assert isinstance(value, torch.Tensor)
            found.append(numbers.setdefault(value.untyped_storage()._cdata, len(numbers)))
        return found

    def _output(self, arg: Any) -> OutputSpec:
        if not isinstance(arg, Node):
            if isinstance(arg, torch.Tensor):
                raise ImportUnsupported("an output is a literal tensor")
            return OutputSpec("value", value=arg)
        if is_token(arg):
            return OutputSpec("value", value=None)
        if arg in self._position:
            return OutputSpec("input", self._position[arg])
        if arg in self._copies:
            return OutputSpec("input", self._copies[arg][0])
        if arg.op == "get_attr":
            return OutputSpec("constant", name=str(arg.target))
        value = node_value(arg)
        if isinstance(value, torch.Tensor):
            if arg not in self.computed:
                self.computed.append(arg)
            exact = tuple(as_expr(stride) for stride in value.stride())
            differs = exact != tuple(address_strides(value))
            if differs:
                self._find_all(set[Any]().union(*(stride.free_symbols for stride in exact)), arg)
            return OutputSpec("result", self.computed.index(arg), empty_strides=exact if differs else None)
        if isinstance(value, (torch.SymInt, torch.SymBool)):
            self._find_all(cast(Any, value.node).expr.free_symbols, arg)
            return OutputSpec("size", expr=cast(Any, value.node).expr)
        if value is None or isinstance(value, (bool, int, float, str)):
            return OutputSpec("value", value=value)
        raise ImportUnsupported(f"output {arg.name} is a {type(value).__name__}")

    def _find_all(self, symbols: Iterable[sympy.Basic], output: Node) -> None:
        for symbol in symbols:
            if isinstance(symbol, sympy.Symbol) and self._space.is_found(symbol):
                self._find(symbol.name, output)

    def _find(self, name: str, output: Node) -> None:
        """Have the graph return a tensor that shows a number which it finds, and which is an output."""
        if name in self._found:
            return
        shown = [
            (node, dim)
            for node in self._nodes
            if node.op == "call_function" and isinstance(node_value(node), torch.Tensor)
            for dim, symbol in leaf_symbols(node_value(node))
            if symbol == name and dim is not None
        ]
        read = [
            (node.args[0], -1)
            for node in self._nodes
            if node.target is torch.ops.aten._local_scalar_dense.default
            and any(symbol == name for _, symbol in leaf_symbols(node_value(node)))
        ]
        # What is returned anyway, if possible.
        places = sorted([*shown, *read], key=lambda place: place[0] not in self.computed)
        if not places:
            raise ImportUnsupported(f"output {output.name} is a number known only at run time")
        node, dim = places[0]
        assert isinstance(node, Node)
        if node.op == "call_function" and node not in self.computed:
            self.computed.append(node)
        self._found[name] = node, dim

    def found_symbols(self) -> list[FoundSymbol]:
        """See :attr:`ImportedGraph.found`."""
        found: list[FoundSymbol] = []
        for name, (node, dim) in self._found.items():
            given = self._position.get(node, -1)
            found.append(FoundSymbol(name, given, self.computed.index(node) if given < 0 else -1, dim))
        return found
