# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the backward graph computes again is, to the bit, what the forward graph computed.

Inside of a kernel a value of 16 bits is f32, and rounded where it is stored. The partitioner keeps some values for the
backward graph and has others computed again. Where the forward graph took statistics of such a value without its
rounding, and the backward graph subtracts them from the rounded one, the difference is divided by a deviation that may
be near zero: gradients of a norm over equal elements are then off by any factor. So these values are rounded in both
graphs, as eager rounds them.
"""

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from kiln.lowering import paths

__all__ = ["ROUNDED", "round_recomputed"]

_TAKEN = paths.group("any recomputed", "rounded")

ROUNDED = "kiln_rounded"
"""Key in a node's `meta`: its result is rounded to its type, whoever reads it."""


def round_recomputed(forward: GraphModule, backward: GraphModule) -> None:
    """Mark, in both graphs, the results of 16 bits that both compute."""
    first = {node.name: node for node in forward.graph.nodes if _rounds(node)}
    for node in backward.graph.nodes:
        if _rounds(node) and node.name in first and first[node.name].target is node.target:
            _TAKEN("rounded")
            node.meta[ROUNDED] = first[node.name].meta[ROUNDED] = True


def _rounds(node: Node) -> bool:
    """Whether an op makes new 16-bit floats."""
    value = node.meta.get("val")
    is_op = node.op == "call_function" and isinstance(node.target, OpOverload) and not node.target.is_view
    return is_op and isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
