# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Norms whose result the gradient reads, as reductions and pointwise ops.

The partitioner computes no norm again: a result is kept for the gradient of the activation behind it, or of the factor
that it is multiplied with, next to the norm's input, which the norm's own gradient reads. Written out, the result is
pointwise ops on the input and on statistics, which are few numbers.
"""

from operator import getitem
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Argument
from torch.utils._pytree import tree_leaves

from kiln.frontend.graph_ops import call, cast_to, size_of, value_of
from kiln.frontend.kept_statistics import behind
from kiln.frontend.recomputable import op_types
from kiln.lowering import paths

__all__ = ["write_out_norms"]

aten = torch.ops.aten

_TAKEN = paths.group("any norms", "layer norm", "group norm")

_NORMS = (aten.native_layer_norm.default, aten.native_group_norm.default)


def write_out_norms(joint: GraphModule, num_fwd_outputs: int) -> int:
    """Rewrite, in place, norms whose result the gradient reads in pointwise ops alone; returns how many.

    num_fwd_outputs: how many of the joint graph's results are the forward graph's.
    """
    found = [n for op in _NORMS for n in joint.graph.find_nodes(op="call_function", target=op)]
    if not found:
        return 0
    forward = behind(tree_leaves(joint.graph.output_node().args[0])[:num_fwd_outputs])
    changed = sum(_write_out(joint, n) for n in found if _has_known_groups(n) and _is_worth_it(n, forward))
    if changed:
        joint.graph.eliminate_dead_code()
        joint.recompile()
    return changed


def _has_known_groups(norm: Node) -> bool:
    return norm.target is not aten.native_group_norm.default or isinstance(norm.args[4], int)


def _is_worth_it(norm: Node, forward: set[Node]) -> bool:
    """Whether gradients read a norm's result, or what is computed from it, and none needs it in memory."""
    ops = op_types()
    results = [n for n in norm.users if n.target is getitem and n.args[1] == 0] if norm in forward else []
    pending, seen, is_read = [(n, True) for n in results], set(results), False
    while pending:
        node, is_result = pending.pop()
        for user in node.users:
            if user.op == "output":
                if is_result:
                    return False
                continue
            is_cheap = ops.is_recomputable(user)
            is_view = is_result and ops.is_view(user)
            is_late = user not in forward
            if is_late and is_result and not is_cheap:
                return False
            is_read |= is_late and is_cheap and not is_view
            if (is_view or (is_cheap and not is_late)) and user not in seen:
                seen.add(user)
                pending.append((user, is_view))
    return is_read


def _write_out(joint: GraphModule, norm: Node) -> bool:
    results = {cast(int, n.args[1]): n for n in norm.users if n.target is getitem}
    x = cast(Node, norm.args[0])
    with joint.graph.inserting_before(norm):
        written = (_layer_norm if norm.target is aten.native_layer_norm.default else _group_norm)(norm, x)
    if any(_form(written[i]) != _form(result) for i, result in results.items()):
        joint.graph.eliminate_dead_code()
        return False
    _TAKEN("layer norm" if norm.target is aten.native_layer_norm.default else "group norm")
    for i, result in results.items():
        result.replace_all_uses_with(written[i])
    return True


def _layer_norm(norm: Node, x: Node) -> list[Node]:
    """The result, the mean and the reciprocal deviation."""
    _, sizes, weight, bias, eps = cast(Any, norm.args)
    dims = list(range(value_of(x).dim() - len(sizes), value_of(x).dim()))
    return _normalized(norm, x, dims, weight, bias, eps)


def _group_norm(norm: Node, x: Node) -> list[Node]:
    """The same, of channels in groups."""
    _, weight, bias, _, channels, _, groups, eps = cast(Any, norm.args)
    graph, value = norm.graph, value_of(x)
    each, rank = channels // groups, value.dim()
    sizes: list[Argument] = [size_of(graph, x, i) for i in range(rank)]
    grouped = call(graph, aten.view.default, x, [sizes[0], groups, each, *sizes[2:]])
    of_channels = [groups, each, *[1] * (rank - 2)]
    weight, bias = (p and call(graph, aten.view.default, p, of_channels) for p in (weight, bias))
    y, mean, scale = _normalized(norm, grouped, list(range(2, rank + 1)), weight, bias, eps)
    flat = [call(graph, aten.squeeze.dims, n, list(range(2, rank + 1))) for n in (mean, scale)]
    return [call(graph, aten.view.default, y, sizes), *flat]


def _normalized(norm: Node, x: Node, dims: list[int], weight: Any, bias: Any, eps: float) -> list[Node]:
    graph, dtype = norm.graph, value_of(x).dtype
    wide = cast_to(graph, x, torch.float32 if dtype.itemsize < 4 else dtype)
    both = call(graph, aten.var_mean.correction, wide, dims, correction=0, keepdim=True)
    variance, mean = (call(graph, getitem, both, i) for i in range(2))
    scale = call(graph, aten.rsqrt.default, call(graph, aten.add.Tensor, variance, eps))
    y = call(graph, aten.mul.Tensor, call(graph, aten.sub.Tensor, wide, mean), scale)
    if weight is not None:
        y = call(graph, aten.mul.Tensor, y, weight)
    if bias is not None:
        y = call(graph, aten.add.Tensor, y, bias)
    kinds = [cast("tuple[torch.Tensor, ...]", norm.meta["val"])[i].dtype for i in range(3)]
    return [_rounded(n, kind) for n, kind in zip((y, mean, scale), kinds, strict=True)]


def _rounded(x: Node, dtype: torch.dtype) -> Node:
    """By the op that `keep_statistics` looks for."""
    return x if value_of(x).dtype == dtype else call(x.graph, aten._to_copy.default, x, dtype=dtype)


def _form(node: Node) -> tuple[object, ...]:
    value = value_of(node)
    return value.dtype, tuple(map(str, value.shape)), tuple(map(str, value.stride()))
