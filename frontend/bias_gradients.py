# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Biases' gradients as sums of their own, for kernels of GPUs.

`aten.convolution_backward` makes them in a pass of its own over the gradient, with a kernel that is slow where channels
are neighbours in memory. As `aten.sum` they are computed beside what reads the gradient anyway. A library's kernels on
a CPU have them for next to nothing: there the call keeps them.
"""

from typing import cast

import torch
from torch.fx import GraphModule, Node

from kiln.frontend.convolution_gradients import is_wanted, take_out
from kiln.frontend.graph_ops import call, value_of
from kiln.lowering import paths

__all__ = ["has_bias_gradients", "sum_bias_gradients"]

aten = torch.ops.aten

_TAKEN = paths.group("gpu bias-gradients", "sum")


def has_bias_gradients(gm: GraphModule) -> bool:
    """Whether a call makes the gradient of a bias."""
    calls = gm.graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
    return any(is_wanted(node, 2) for node in calls)


def sum_bias_gradients(gm: GraphModule) -> int:
    """Take the gradients of biases out of calls, in place; returns how many.

    Gradients of a result [N, C, *spatial] -> sums [C] over all dims but the channels, in the same type (16-bit floats
    are added up in f32).
    """
    graph, taken = gm.graph, 0
    for node in graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        if not is_wanted(node, 2):
            continue
        gradient = cast(Node, node.args[0])
        with graph.inserting_before(node):
            others = [d for d in range(value_of(gradient).dim()) if d != 1]
            total = call(graph, aten.sum.dim_IntList, gradient, others)
        take_out(node, 2, total)
        _TAKEN("sum")
        taken += 1
    if taken:
        gm.recompile()
    return taken
