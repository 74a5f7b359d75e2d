# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The element type of the log-sum-exp of attention in float64 on the CPU.

The op returns it in float64, and the op for the gradient wants that. PyTorch 2.11 traces it as float32 (2.13 does not),
in which it would be kept for the gradient.
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
