# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Signs of a graph's integers: symbols of affine expressions are sizes, hence never negative.

An integer argument (`x[:, k:]`) may be negative. Its sign is a guard of Dynamo's, so that each graph has one; a graph
with a negative one is left to ATen.
"""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from kiln.frontend.import_.fx_values import is_unbacked, node_value, value_leaves

__all__ = ["guard_signs", "negative_symbol"]


def guard_signs(gm: GraphModule) -> None:
    """Guard the sign of each integer argument, where PyTorch takes guards still."""
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node_value(node)
        own = cast(Any, value.node) if isinstance(value, torch.SymInt) else None
        if own is not None and own.has_hint() and not own.shape_env.frozen:
            bool(value >= 0)


def negative_symbol(nodes: Iterable[Node]) -> str | None:
    """The name of a symbol of the nodes' values that is not known to be at least 0, if there is one."""
    seen: set[Any] = set()
    for node in nodes:
        if node.op == "placeholder" and not node.users:
            continue
        for own in _symbolic(node):
            for symbol in own.expr.free_symbols - seen:
                seen.add(symbol)
                if not is_unbacked(symbol) and own.shape_env.bound_sympy(symbol).lower < 0:
                    return symbol.name
    return None


def _symbolic(node: Node) -> Iterator[Any]:
    """The `SymNode`s of a node's integers, and of its tensors' sizes and strides."""
    for leaf in value_leaves(node_value(node)):
        is_tensor = isinstance(leaf, torch.Tensor) and leaf._has_symbolic_sizes_strides
        for size in (*leaf.shape, *leaf.stride()) if is_tensor else (leaf,):
            if isinstance(size, torch.SymInt):
                yield cast(Any, size.node)
