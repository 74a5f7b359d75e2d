# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Cross-entropy without log-probabilities in memory.

PyTorch writes the log-softmax of the logits [N, C], keeps it for the gradient, and reads one of C numbers of each row.
Here the loss is ``max + log(sum(exp(x - max))) - x[target]``: what is kept are the logits and two numbers of a row. The
gradient is ``softmax(x)`` less one at the target, times what comes from the row's loss, computed in one pass over the
logits. Labels of images ([N, C, H, W]) and smoothed labels are the same ops.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from kiln.frontend.graph_ops import call, cast_to, value_of
from kiln.lowering import paths

__all__ = ["loss_decompositions", "write_no_log_softmax"]

aten = torch.ops.aten
prims = torch.ops.prims

_TAKEN = paths.group("any losses", "no log-softmax", "one element of a row")

_NONE, _MEAN = 0, 1
"""Of ATen's `Reduction`."""
_CLASSES = 1
"""The dim of the classes, in logits of two and of four dims."""


def loss_decompositions() -> dict[Any, Callable[..., Any]]:
    """Op overload -> its decomposition, for the negative log-likelihood and its gradient."""
    return {
        aten.nll_loss_forward.default: _forward,
        aten.nll_loss2d_forward.default: _forward,
        aten.nll_loss_backward.default: _backward,
        aten.nll_loss2d_backward.default: _backward,
    }


def _forward(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> Any:
    """The loss and the sum of weights, for log-probabilities `x`; both in its dtype. Without a batch: ATen's op."""
    if x.dim() < 2:
        return NotImplemented
    is_valid, index = _index(target, ignore_index)
    picked = torch.gather(x, _CLASSES, index).squeeze(_CLASSES)
    weights = _weights(is_valid, index, weight, x)
    losses = torch.where(is_valid, -picked.to(weights.dtype) * weights, 0.0)
    if reduction == _NONE:
        return losses.to(x.dtype), x.new_zeros(())
    total, loss = weights.sum(), losses.sum()
    return (loss / total if reduction == _MEAN else loss).to(x.dtype), total.to(x.dtype)


def _backward(
    gradient: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Any:
    """The gradient of log-probabilities `x`: of each row, one element at the target. Without a batch: ATen's op."""
    if x.dim() < 2:
        return NotImplemented
    is_valid, index = _index(target, ignore_index)
    weights = _weights(is_valid, index, weight, x)
    scale = gradient.to(weights.dtype)
    if reduction == _MEAN:
        scale = scale / weights.sum()  # `total_weight` is rounded to the dtype of `x`
    row = torch.where(is_valid, -scale * weights, 0.0).to(x.dtype).unsqueeze(_CLASSES)
    classes = torch.arange(x.shape[_CLASSES], device=x.device).view(-1, *[1] * (x.dim() - 2))
    return torch.where(classes == index, row, torch.zeros((), dtype=x.dtype, device=x.device))


def _index(target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Which rows count, and the class of each (0 of those that don't), with a dim of size 1 for the classes."""
    is_valid = target != ignore_index
    return is_valid, torch.where(is_valid, target, 0).unsqueeze(_CLASSES)


def _weights(is_valid: Tensor, index: Tensor, weight: Tensor | None, x: Tensor) -> Tensor:
    """What each row counts, in float32 where `x` has 16 bits."""
    dtype = torch.float32 if x.dtype.itemsize < 4 else x.dtype
    if weight is None:
        return is_valid.to(dtype)
    of_rows = torch.take(weight, index).squeeze(_CLASSES).to(dtype)
    return torch.where(is_valid, of_rows, 0.0)


def write_no_log_softmax(gm: GraphModule) -> None:
    """Rewrite, in place, each log-softmax of which elements are gathered, and which the graph does not return.

    The gathered elements are those of the logits, less the row's maximum and logarithm; the rest of what reads it
    (gradients, smoothed labels) gets it as pointwise ops that fusion computes where they are read.
    """
    graph = gm.graph
    found = [n for n in graph.find_nodes(op="call_function", target=aten._log_softmax.default) if _is_picked_from(n)]
    if not found:
        return
    for node in found:
        _TAKEN("no log-softmax")
        _take_apart(graph, node)
    for node in graph.find_nodes(op="call_function", target=aten.sum.dim_IntList):
        chosen = _one_element(node)
        if chosen is not None:
            _TAKEN("one element of a row")
            _take_element(graph, node, *chosen)
    gm.recompile()


def _is_picked_from(node: Node) -> bool:
    """Whether elements of a log-softmax are gathered, and it need not be in memory for something else."""
    is_returned = any(user.op == "output" for user in node.users)
    value = value_of(node)
    has_classes = value.dim() > 0 and value.shape[cast(int, node.args[1])] != 0
    return has_classes and not is_returned and any(_gathers(user, node) for user in node.users)


def _take_apart(graph: Graph, node: Node) -> None:
    logits, dim = cast(Node, node.args[0]), cast(int, node.args[1])
    dtype = value_of(node).dtype
    wide = torch.float32 if dtype.itemsize < 4 else dtype
    with graph.inserting_before(node):
        x = cast_to(graph, logits, wide)
        most = call(graph, aten.amax.default, x, [dim], True)
        sums = call(graph, aten.sum.dim_IntList, call(graph, aten.exp.default, _minus(graph, x, most)), [dim], True)
        log = call(graph, aten.log.default, sums)
        whole = cast_to(graph, _minus(graph, _minus(graph, x, most), log), dtype)
    for user in list(node.users):
        if _gathers(user, node):
            with graph.inserting_before(user):
                element = call(graph, aten.gather.default, _source(logits), *user.args[1:])
                gathered = cast_to(graph, cast_to(graph, element, value_of(logits).dtype), wide)
                picked = cast_to(graph, _minus(graph, _minus(graph, gathered, most), log), dtype)
            user.replace_all_uses_with(picked)
            graph.erase_node(user)
    node.replace_all_uses_with(whole)
    graph.erase_node(node)


def _gathers(user: Node, node: Node) -> bool:
    """Whether an op reads of each row of a log-softmax as many elements as it has indices, along its dim."""
    if user.target != aten.gather.default or user.args[0] is not node:
        return False
    value, index = value_of(node), value_of(cast(Node, user.args[2]))
    dim = cast(int, node.args[1]) % max(value.dim(), 1)
    if value.dim() != index.dim() or value.dim() == 0 or cast(int, user.args[1]) % value.dim() != dim:
        return False
    return all(bool(index.shape[i] == value.shape[i]) for i in range(value.dim()) if i != dim)


def _source(logits: Node) -> Node:
    """The tensor that was converted to what a log-softmax reads: an element of it is converted as well alone."""
    converts = logits.target in (aten._to_copy.default, prims.convert_element_type.default)
    source = logits.args[0] if converts else None
    same = isinstance(source, Node) and value_of(source).device == value_of(logits).device
    return cast(Node, source) if same and value_of(cast(Node, source)).is_floating_point() else logits


def _one_element(node: Node) -> tuple[Node, Node, int] | None:
    """Of a sum over C classes of ``where(classes == index, row, 0)``, as `_backward` makes it: index, row and C."""
    if len(node.args) != 3 or not isinstance(node.args[0], Node) or node.kwargs:
        return None
    chosen, dims, keeps = cast("tuple[Node, list[int], bool]", node.args)
    if not keeps or chosen.target != aten.where.self:
        return None
    condition, row, other = cast("tuple[Node, Node, Node]", chosen.args)
    if condition.target != aten.eq.Tensor or not _is_zero(other):
        return None
    classes, index = condition.args
    rank, count = value_of(chosen).dim(), value_of(chosen).shape[_CLASSES] if value_of(chosen).dim() > 1 else 0
    if len(dims) != 1 or dims[0] % rank != _CLASSES or not isinstance(count, int) or not isinstance(index, Node):
        return None
    narrow = all(value_of(n).dim() == rank and value_of(n).shape[_CLASSES] == 1 for n in (index, row))
    same = value_of(row).shape == value_of(node).shape and value_of(row).dtype == value_of(node).dtype
    counts = isinstance(classes, Node) and _counts(classes, count, rank)
    return (index, row, count) if narrow and same and counts and not value_of(index).is_floating_point() else None


def _take_element(graph: Graph, node: Node, index: Node, row: Node, count: int) -> None:
    """The row's number in place of the sum, or 0 where the index is that of no class."""
    with graph.inserting_before(node):
        below = call(graph, aten.lt.Scalar, index, count)
        inside = call(graph, aten.bitwise_and.Tensor, call(graph, aten.ge.Scalar, index, 0), below)
        zero = cast(Node, cast(Node, node.args[0]).args[2])
        node.replace_all_uses_with(call(graph, aten.where.self, inside, row, zero))
    graph.erase_node(node)


def _counts(classes: Node, count: int, rank: int) -> bool:
    """Whether a tensor is 0, 1, ..., count - 1 along the dim of the classes of tensors with `rank` dims."""
    shape = tuple(value_of(classes).shape)
    if shape != (count, *[1] * (rank - _CLASSES - 1)):
        return False
    source = cast(Node, classes.args[0]) if classes.target == aten.view.default else classes
    return source.target == aten.arange.default and tuple(value_of(source).shape) == (count,)


def _is_zero(node: Node) -> bool:
    return node.target == aten.zeros.default or (node.target == aten.full.default and bool(node.args[1] == 0))


def _minus(graph: Graph, x: Node, y: Node) -> Node:
    return call(graph, aten.sub.Tensor, x, y)
