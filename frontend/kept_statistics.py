# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Statistics of norms that gradients read as they were computed.

Norms of 16 bits return their mean and reciprocal deviation in 16 bits on the CPU, and PyTorch's decompositions round
them so; the gradient makes them f32 again. A mean that is rounded is not the mean of what the gradient subtracts it
from: divided by a small deviation, gradients that cancel are off by more than all other roundings together. The numbers
are few, so the gradient is given those of f32. What a forward result depends on stays rounded: there the program, and
not autograd, asked for 16 bits.
"""

import operator
from collections.abc import Iterable

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from kiln.lowering import paths

__all__ = ["behind", "keep_statistics"]

aten = torch.ops.aten

_TAKEN = paths.group("cpu kept-statistics", "kept")

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


def keep_statistics(joint: GraphModule, num_fwd_outputs: int) -> int:
    """Let what makes rounded statistics f32 again read the ones that were rounded, in place; returns how many did.

    num_fwd_outputs: how many of the joint graph's results are the forward graph's.
    """
    forward, found = behind(tree_leaves(joint.graph.output_node().args[0])[:num_fwd_outputs]), 0
    for node in joint.graph.find_nodes(op="call_function", target=aten._to_copy.default):
        (narrow,) = node.all_input_nodes
        if (
            narrow in forward
            or narrow.target is not aten._to_copy.default
            or _kind(narrow)[0] not in (torch.bfloat16, torch.float16)
        ):
            continue
        (source,) = narrow.all_input_nodes
        if _kind(node) == _kind(source) == (torch.float32, _kind(narrow)[1]) and _is_statistic(source):
            _TAKEN("kept")
            node.replace_all_uses_with(source)
            joint.graph.erase_node(node)
            found += 1
            if not narrow.users:
                joint.graph.erase_node(narrow)
    if found:
        joint.recompile()
    return found


def behind(results: Iterable[object]) -> set[Node]:
    """What results are computed from, with themselves."""
    found, pending = set[Node](), [result for result in results if isinstance(result, Node)]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def _kind(node: Node) -> tuple[torch.dtype | None, torch.device | None]:
    value = node.meta.get("val")
    return (value.dtype, value.device) if isinstance(value, torch.Tensor) else (None, None)


def _is_statistic(node: Node) -> bool:
    while node.target in _OF_STATISTICS and len(node.all_input_nodes) == 1:
        (node,) = node.all_input_nodes
    return node.target in _REDUCTIONS
