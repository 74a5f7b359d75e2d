# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Operands of gradients of which only sizes and strides are read: tensors that need not be kept for that.

ATen's gradients of pooling and padding take the forward op's input, and read no element of it. Kept for them alone, the
input of a ResNet's first pooling is as large as a convolution's result, which the norm behind the convolution keeps
anyway, with the same sizes, strides and type: the gradient is given that one.
"""

from collections.abc import Callable, Iterator

import torch
from torch.fx import GraphModule, Node

from kiln.frontend.recomputable import op_types
from kiln.lowering import paths

__all__ = ["share_size_operands"]

aten = torch.ops.aten

_TAKEN = paths.group("any size-operands", "shared")

_READ_SIZES_OF = {
    aten.max_pool2d_with_indices_backward.default: 1,
    aten.max_pool3d_with_indices_backward.default: 1,
    aten.adaptive_max_pool2d_backward.default: 1,
    aten.adaptive_max_pool3d_backward.default: 1,
    aten.avg_pool2d_backward.default: 1,
    aten.avg_pool3d_backward.default: 1,
    aten._adaptive_avg_pool2d_backward.default: 1,
    aten.reflection_pad2d_backward.default: 1,
    aten.replication_pad2d_backward.default: 1,
}
"""Gradient -> number of the operand that gives it sizes and strides alone."""


def share_size_operands(joint: GraphModule) -> int:
    """Give such gradients a tensor that the backward graph reads anyway, in place; returns how many got one."""
    graph = joint.graph
    found = [n for target in _READ_SIZES_OF for n in graph.find_nodes(op="call_function", target=target)]
    if not found:
        return 0
    is_cheap: Callable[[Node], bool] = op_types().is_recomputable
    late = _dependent_on_tangents(joint)
    changed = 0
    for node in found:
        number = _READ_SIZES_OF[node.target]
        operand = node.args[number]
        if not isinstance(operand, Node) or operand in late or not is_cheap(operand):
            continue
        other = next((n for n in _made_from(operand, is_cheap) if _is_read(n, operand, late, is_cheap)), None)
        if other is not None:
            _TAKEN("shared")
            node.update_arg(number, other)
            changed += 1
    if changed:
        joint.recompile()
    return changed


def _dependent_on_tangents(joint: GraphModule) -> set[Node]:
    """The ops that compute gradients."""
    found: set[Node] = set()
    for node in joint.graph.nodes:
        is_tangent = node.op == "placeholder" and node.name.startswith("tangents")
        if is_tangent or (node.op == "call_function" and not found.isdisjoint(node.all_input_nodes)):
            found.add(node)
    return found


def _made_from(operand: Node, is_cheap: Callable[[Node], bool]) -> Iterator[Node]:
    """What an operand is computed from by ops that may be computed again, where it has the operand's form; nearest
    first.
    """
    pending, seen = [operand], {operand}
    while pending:
        for source in pending.pop(0).all_input_nodes:
            if source in seen:
                continue
            seen.add(source)
            if source.op == "call_function" and is_cheap(source):
                pending.append(source)
            elif _form(source) == _form(operand):
                yield source


def _is_read(node: Node, operand: Node, late: set[Node], is_cheap: Callable[[Node], bool]) -> bool:
    """Whether a gradient reads a node, or what is computed again from it, by another way than through the operand."""
    pending, seen = [node], {operand}
    while pending:
        for user in pending.pop().users:
            if user in late:
                return True
            if user not in seen and is_cheap(user):
                seen.add(user)
                pending.append(user)
    return False


def _form(node: Node) -> tuple[object, ...] | None:
    """Type, device, sizes and strides of a dense tensor; sizes that are symbols by what they are computed from."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return value.dtype, value.device, tuple(map(str, value.shape)), tuple(map(str, value.stride()))
