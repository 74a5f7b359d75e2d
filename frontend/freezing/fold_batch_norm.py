# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Batch norms with constant statistics: into the weight and bias of the convolution before, else a scale and a shift.

``bn(conv(x, w, b)) = conv(x, w * scale, (b - mean) * scale + beta)`` with ``scale = gamma / sqrt(var + eps)`` per
output channel. The new parameters are computed in float64 and rounded once.

Weights of 16 bits stay as they are: the program's are rounded already, and where the terms of a convolution cancel, a
second rounding is what is left. Scale and shift, in f32, are then what the kernel does with its sums before it stores.
"""

import operator
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from kiln.frontend.freezing.constant_folding import add_constant, constant_of
from kiln.frontend.graph_ops import call, cast_to, value_of

__all__ = ["fold_batch_norms"]

aten = torch.ops.aten
_WIDE = (torch.float32, torch.float64)


def fold_batch_norms(gm: GraphModule) -> tuple[int, int, int]:
    """Fold in place; returns (batch norms in a convolution, batch norms as scale and shift, bytes of new memory)."""
    into_convolutions = scaled = added = 0
    for node in list(gm.graph.nodes):
        if node.target is not aten._native_batch_norm_legit_no_training.default:
            continue
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
            continue
        factors = _scale_and_shift(gm, node)
        if factors is None:
            continue
        new = _into_convolution(gm, node, *factors)
        if new is not None:
            into_convolutions += 1
        else:
            new = _as_scale_and_shift(gm, node, *factors)
            if new is None:
                continue
            scaled += 1
        node_of_result, size = new
        added += size
        for user in list(node.users):
            user.replace_all_uses_with(node_of_result)
            gm.graph.erase_node(user)
        gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code(lambda n: n.op in ("placeholder", "output") or n.is_impure())
    gm.recompile()
    return into_convolutions, scaled, added


def _scale_and_shift(gm: GraphModule, node: Node) -> tuple[torch.Tensor, torch.Tensor] | None:
    """``(scale, shift)`` in float64, ``[C]`` each; None unless everything about the batch norm is constant."""
    _, weight, bias, mean, variance, _, eps = node.args
    given = [weight, bias, mean, variance]
    values = [None if g is None else constant_of(gm, g) for g in given]
    if any(g is not None and v is None for g, v in zip(given, values, strict=True)):
        return None
    gamma, beta, m, v = (None if t is None else t.detach().double() for t in values)
    if m is None or v is None or not isinstance(eps, (int, float)):
        return None
    scale = torch.rsqrt(v + eps)
    if gamma is not None:
        scale = scale * gamma
    shift = -m * scale
    return scale, shift if beta is None else shift + beta


def _into_convolution(gm: GraphModule, node: Node, scale: torch.Tensor, shift: torch.Tensor) -> tuple[Node, int] | None:
    """A convolution with other parameters in place of a convolution that only the batch norm reads, and the norm."""
    conv = node.args[0]
    if not isinstance(conv, Node) or conv.target is not aten.convolution.default or len(conv.users) != 1:
        return None
    weight, bias = constant_of(gm, conv.args[1]), constant_of(gm, conv.args[2])
    if weight is None or weight.dtype not in _WIDE or (bias is None and conv.args[2] is not None):
        return None
    transposed, groups = bool(conv.args[6]), int(conv.args[8])  # type: ignore[arg-type] - a number, by the schema of the op
    wide = weight.detach().double()
    if transposed:  # [C, O / groups, *kernel]: output channel o is column o % (O / groups) of group o // (O / groups)
        grouped = cast(torch.Tensor, cast(Any, wide).unflatten(0, (groups, -1)))
        folded = (grouped * scale.reshape(groups, 1, -1, *[1] * (wide.ndim - 2))).flatten(0, 1)
    else:
        folded = wide * scale.reshape(-1, *[1] * (wide.ndim - 1))
    new_weight = torch.empty_like(weight).copy_(folded)
    new_bias = shift if bias is None else bias.detach().double() * scale + shift
    new_bias = new_bias.to(weight.dtype)
    weight_value: Any = cast(Node, conv.args[1]).meta["val"]
    bias_value = weight_value.new_empty(new_bias.shape)
    constants = [
        add_constant(gm, new_weight, conv, weight_value.new_empty_strided(new_weight.shape, new_weight.stride())),
        add_constant(gm, new_bias, conv, bias_value),
    ]
    with gm.graph.inserting_before(node):
        args = (conv.args[0], *constants, *conv.args[3:])
        new = gm.graph.create_node("call_function", conv.target, args, name=conv.name)
    new.meta.update(conv.meta)
    return new, new_weight.nbytes + new_bias.nbytes


def _as_scale_and_shift(
    gm: GraphModule, node: Node, scale: torch.Tensor, shift: torch.Tensor
) -> tuple[Node, int] | None:
    """``x * scale + shift``, in f32 for 16 bits. The constant bias of a convolution goes into the shift."""
    x, fold = node.args[0], False
    value: Any = x.meta["val"] if isinstance(x, Node) else None
    if not isinstance(x, Node) or value is None or value.dtype not in (*_WIDE, torch.bfloat16, torch.float16):
        return None
    if value.dtype not in _WIDE and x.target is aten.convolution.default and len(x.users) == 1:
        bias = constant_of(gm, x.args[2])
        fold = bias is not None
        shift = shift if bias is None else bias.detach().double() * scale + shift
    shape = (-1, *[1] * (value.ndim - 2))
    dtype = value.dtype if value.dtype in _WIDE else torch.float32
    tensors = [t.to(dtype).reshape(shape) for t in (scale, shift)]
    constants = [add_constant(gm, t, node, value.new_empty(t.shape, dtype=dtype)) for t in tensors]
    if fold:
        x.update_arg(2, None)
    with gm.graph.inserting_before(node):
        product = call(gm.graph, aten.mul.Tensor, cast_to(gm.graph, x, dtype), constants[0])
        total = call(gm.graph, aten.add.Tensor, product, constants[1])
        last = cast_to(gm.graph, total, value.dtype)
    for new in (product, total, last):
        new.meta = {**node.meta, "val": value_of(new)}
    return last, sum(t.nbytes for t in tensors)
