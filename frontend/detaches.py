# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Joint graphs without `aten.detach`.

Autograd's formulas detach the results that they keep (`tanh`, `exp`, `rsqrt`, attention). The partitioner does not know
this op: it neither computes it again nor anything before it, so that a result would be kept that costs nothing to
compute where the gradient reads it.
"""

from typing import cast

import torch
from torch.fx import GraphModule, Node

from kiln.lowering import paths

__all__ = ["drop_detaches"]

_TAKEN = paths.group("any detaches", "gone")


def drop_detaches(gm: GraphModule) -> int:
    """Let readers of a detached tensor read the tensor itself, in place; returns how many detaches are gone.

    What the graph returns stays detached: it is a tensor of its own for the caller.
    """
    graph, gone = gm.graph, 0
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        for user in list(node.users):
            if user.op != "output":
                user.replace_input_with(node, cast(Node, node.args[0]))
        if not node.users:
            _TAKEN("gone")
            graph.erase_node(node)
            gone += 1
    if gone:
        gm.recompile()
    return gone
