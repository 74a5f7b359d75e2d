# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Floats that a graph computes from sizes known at run time only, as tensors of one element.

A batch norm of any number of images corrects its variance by ``n / (n - 1)`` and divides gradients by ``n``: PyTorch
computes such a number in Python and gives it to an op as a scalar, for which the IR has no form: the op would be a call
of its own, and nothing would be fused with it. Computed in float64 from 0-d tensors, it is part of what reads it.
"""

import operator
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node

from kiln.frontend.graph_ops import call, cast_to, value_of
from kiln.lowering import paths

__all__ = ["write_size_fractions"]

aten = torch.ops.aten

_TAKEN = paths.group("any size-fractions", "in a tensor")

_READERS: dict[Any, Any] = {
    op: tensors
    for tensors, numbers in (
        (aten.mul.Tensor, aten.mul.Scalar),
        (aten.div.Tensor, aten.div.Scalar),
        (aten.add.Tensor, aten.add.Scalar),
        (aten.sub.Tensor, aten.sub.Scalar),
    )
    for op in (tensors, numbers)
}
"""Op of a tensor and a float -> that of two tensors. They compute in float32 where the tensor has 16 bits."""
_STEPS: dict[Any, Any] = {
    operator.truediv: aten.div.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
}
"""What computes such a float -> the op that does it with tensors."""


def write_size_fractions(gm: GraphModule) -> int:
    """Rewrite ops of a tensor of floats and a float that is computed from sizes, in place; returns how many."""
    changed = 0
    for target in _READERS:
        for node in gm.graph.find_nodes(op="call_function", target=target):
            if node.kwargs or len(node.args) != 2 or not _is_fraction(node.args[1]):
                continue
            x = cast(Node, node.args[0])
            if not value_of(x).dtype.is_floating_point:
                continue
            _TAKEN("in a tensor")
            with gm.graph.inserting_before(node):
                _rewrite(node, x, cast(Node, node.args[1]))
            changed += 1
    if changed:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return changed


def _rewrite(node: Node, x: Node, number: Node) -> None:
    graph, dtype = node.graph, value_of(x).dtype
    wide = torch.float32 if dtype.itemsize < torch.float32.itemsize else dtype
    factor = cast_to(graph, _tensor(graph, number, value_of(x)), wide)
    result = call(graph, _READERS[node.target], cast_to(graph, x, wide), factor)
    node.replace_all_uses_with(cast_to(graph, result, dtype))
    graph.erase_node(node)


def _tensor(graph: Graph, number: Any, like: Any) -> Node:
    """A number of a graph as a 0-d tensor of float64, where `like` is."""
    if not isinstance(number, Node) or isinstance(number.meta["val"], torch.SymInt):
        named = {"dtype": torch.float64, "device": like.device}
        return call(graph, aten.scalar_tensor.default, number, mode=like.fake_mode, **named)
    if number.target is torch.sym_float:
        return _tensor(graph, number.args[0], like)
    return call(graph, _STEPS[number.target], *(_tensor(graph, operand, like) for operand in number.args))


def _is_fraction(number: Any) -> bool:
    """Whether it is a float that a graph computes from sizes by arithmetic alone."""
    if not isinstance(number, Node) or not isinstance(number.meta.get("val"), torch.SymFloat):
        return False
    return (number.target in _STEPS or number.target is torch.sym_float) and all(map(_is_number, number.args))


def _is_number(x: Any) -> bool:
    if isinstance(x, Node):
        return isinstance(x.meta.get("val"), torch.SymInt) or _is_fraction(x)
    return isinstance(x, (int, float))
