# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The element type of attention's log-sum-exp, which PyTorch before 2.13 traces as another one than the op returns.

The gradient of attention in float64 on the CPU wants it in float64, as the op makes it; the trace says float32, so that
it would be kept, and handed over, in that.
"""

import operator

import torch
from torch.fx import GraphModule

__all__ = ["correct_statistics"]

_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def correct_statistics(joint: GraphModule) -> None:
    """Give it the type of queries in float64."""
    for node in joint.graph.find_nodes(op="call_function", target=_ATTENTION):
        result, statistics = node.meta["val"]
        if result.dtype != torch.float64 or statistics.dtype == torch.float64:
            continue
        exact = statistics.to(torch.float64)
        node.meta["val"] = result, exact
        for user in node.users:
            if user.target is operator.getitem and user.args[1] == 1:
                user.meta["val"] = exact
