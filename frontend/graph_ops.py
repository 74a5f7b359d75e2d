# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops that rewrites of FX graphs add, with the values that they have for fake tensors."""

from typing import Any, cast

import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.node import Argument, map_arg
from torch.utils._pytree import tree_leaves

__all__ = ["call", "cast_to", "size_of", "value_of"]


def call(graph: Graph, target: Any, *args: Argument, mode: FakeTensorMode | None = None, **named: Argument) -> Node:
    """A call of an op at the graph's place to insert, with ``meta["val"]``.

    mode: of the graph's fake tensors; needed where no operand is one.
    """
    node = graph.call_function(target, args, named)
    values = [map_arg(argument, lambda n: n.meta["val"]) for argument in args]
    with mode or next(v.fake_mode for v in tree_leaves(values) if isinstance(v, FakeTensor)):
        node.meta["val"] = target(*values, **named)
    return node


def cast_to(graph: Graph, x: Node, dtype: torch.dtype) -> Node:
    """A tensor in another type, or itself."""
    if value_of(x).dtype == dtype:
        return x
    return call(graph, torch.ops.prims.convert_element_type.default, x, dtype)


def size_of(graph: Graph, x: Node, dim: int) -> Argument:
    """A size of a tensor: a number, or a node that reads it where it is a symbol."""
    value = value_of(x)
    size = value.shape[dim]
    if isinstance(size, int):
        return size
    node = call(graph, torch.ops.aten.sym_size.int, x, dim % value.dim())
    found = node.meta["val"]
    if not isinstance(found, int):
        return node
    graph.erase_node(node)  # a guard has fixed the symbol since the tensor was made
    return found


def value_of(node: Node) -> torch.Tensor:
    """The fake tensor of a node's result."""
    return cast(torch.Tensor, node.meta["val"])
