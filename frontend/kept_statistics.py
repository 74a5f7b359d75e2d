# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Statistics of norms that gradients read as they were computed.

Norms of 16 bits return their mean and reciprocal deviation in 16 bits on the CPU, and PyTorch's decompositions round
them so; the gradient makes them f32 again. A mean that is rounded is not the mean of what the gradient subtracts it
from: divided by a small deviation, gradients that cancel are off by more than all other roundings together. The numbers
are few, so the gradient is given those of f32.
"""

import operator

import torch
from torch.fx import GraphModule, Node

__all__ = ["keep_statistics"]

aten = torch.ops.aten

_REDUCTIONS = (aten.mean.default, aten.mean.dim, aten.var_mean.correction, aten.var.correction)
_OF_STATISTICS = (
    operator.getitem,
    aten.add.Tensor,
    aten.mul.Tensor,
    aten.reciprocal.default,
    aten.rsqrt.default,
    aten.sqrt.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.view.default,
)
"""What leads from a norm's reduction to the numbers that it returns."""


def keep_statistics(joint: GraphModule) -> int:
    """Let what makes rounded statistics f32 again read the ones that were rounded, in place; returns how many did."""
    found = 0
    for node in joint.graph.find_nodes(op="call_function", target=aten._to_copy.default):
        (narrow,) = node.all_input_nodes
        if narrow.target is not aten._to_copy.default or _kind(narrow)[0] not in (torch.bfloat16, torch.float16):
            continue
        (source,) = narrow.all_input_nodes
        if _kind(node) == _kind(source) == (torch.float32, _kind(narrow)[1]) and _is_statistic(source):
            node.replace_all_uses_with(source)
            joint.graph.erase_node(node)
            found += 1
            if not narrow.users:
                joint.graph.erase_node(narrow)
    if found:
        joint.recompile()
    return found


def _kind(node: Node) -> tuple[torch.dtype | None, torch.device | None]:
    value = node.meta.get("val")
    return (value.dtype, value.device) if isinstance(value, torch.Tensor) else (None, None)


def _is_statistic(node: Node) -> bool:
    while node.target in _OF_STATISTICS and len(node.all_input_nodes) == 1:
        (node,) = node.all_input_nodes
    return node.target in _REDUCTIONS
