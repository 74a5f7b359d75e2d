# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Biases' gradients as sums of their own, for kernels of GPUs.

`aten.convolution_backward` makes them in a pass of its own over the gradient, with a kernel that is slow where channels
are neighbours in memory. As `aten.sum` they are computed beside what reads the gradient anyway. A library's kernels on
a CPU have them for next to nothing: there the call keeps them.
"""

import operator
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from kiln.frontend.graph_ops import call, value_of
from kiln.lowering import paths

__all__ = ["has_bias_gradients", "sum_bias_gradients"]

aten = torch.ops.aten

_TAKEN = paths.group("gpu bias-gradients", "sum")

_MASK = 10
"""Position of the argument that says which gradients are wanted: of the image, the weight, the bias."""


def has_bias_gradients(gm: GraphModule) -> bool:
    """Whether a call makes the gradient of a bias."""
    return any(map(_makes_one, gm.graph.find_nodes(op="call_function", target=aten.convolution_backward.default)))


def sum_bias_gradients(gm: GraphModule) -> int:
    """Take the gradients of biases out of calls, in place; returns how many.

    Gradients of a result [N, C, *spatial] -> sums [C] over all dims but the channels, in the same type (16-bit floats
    are added up in f32).
    """
    graph, taken = gm.graph, 0
    for node in graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        if not _makes_one(node):
            continue
        gradient, found = cast(Node, node.args[0]), _results(node)
        with graph.inserting_before(node):
            others = [d for d in range(value_of(gradient).dim()) if d != 1]
            total = call(graph, aten.sum.dim_IntList, gradient, others)
        for result in found.get(2, []):
            result.replace_all_uses_with(total)
            graph.erase_node(result)
        mask = [bool(wanted) for wanted in cast(list[Any], node.args[_MASK])[:2]]
        if any(mask):
            node.update_arg(_MASK, [*mask, False])
            value = node.meta["val"]
            node.meta["val"] = (*value[:2], None)
        elif not node.users:
            graph.erase_node(node)
        _TAKEN("sum")
        taken += 1
    if taken:
        gm.recompile()
    return taken


def _makes_one(node: Node) -> bool:
    """Whether a call's bias gradient is wanted and read, by `getitem` alone."""
    wanted = cast(list[Any], node.args[_MASK])
    return bool(wanted[2]) and bool(_results(node).get(2)) and all(u.target is operator.getitem for u in node.users)


def _results(node: Node) -> dict[int, list[Node]]:
    """The nodes that read each result of a call."""
    found: dict[int, list[Node]] = {}
    for user in node.users:
        if user.target is operator.getitem:
            found.setdefault(cast(int, user.args[1]), []).append(user)
    return found
