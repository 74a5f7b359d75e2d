# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which differences are the distance of a number from its mean, in graphs before they are split into two.

PyTorch's decompositions of norms in training and of their gradients, and norms that a program writes out, subtract a
mean with ``aten.sub``. Such a difference is rounded by itself (``kiln.exact``), as those of Kiln's own norms are:
contracted with the product that the number is, the distance of one number from itself would not be 0. The backward
graph gets the mean as an argument, so the marks are made where both graphs are one.
"""

import operator

import torch
from torch.fx import GraphModule, Node

from kiln.lowering import paths

__all__ = ["DISTANCE", "mark_distances"]

aten = torch.ops.aten

_TAKEN = paths.group("any distances", "from a mean")

DISTANCE = "kiln_distance"
"""Key in a node's `meta`: its difference is rounded by itself."""
_MEANS = (aten.mean.default, aten.mean.dim)
_SECOND_IS_MEAN = (
    aten.native_layer_norm.default,
    aten.native_group_norm.default,
    aten.std_mean.correction,
    aten.var_mean.correction,
)
"""Ops whose second result is a mean of their operand."""
_SAME_NUMBERS = (
    aten._to_copy.default,
    aten.alias.default,
    aten.clone.default,
    aten.detach.default,
    aten.expand.default,
    aten.permute.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.view.default,
)


def mark_distances(gm: GraphModule) -> None:
    """Mark the differences of floats of which one is a mean, also where it is reshaped, expanded or converted."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.sub.Tensor):
        if all(_is_float(n) for n in (node, *node.args)) and any(_is_mean(n) for n in node.args):
            _TAKEN("from a mean")
            node.meta[DISTANCE] = True


def _is_float(node: object) -> bool:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_mean(node: Node) -> bool:
    while node.target in _SAME_NUMBERS:
        (node,) = node.all_input_nodes[:1]
    if node.target is operator.getitem:
        return bool(node.args[1] == 1) and node.all_input_nodes[0].target in _SECOND_IS_MEAN
    return node.target in _MEANS
