# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Linear layers and convolutions between quantisations (PT2E) as products of the integers, for CPUs.

``(a - za) sa`` times ``(b - 0) sb``, summed, is ``sa sb (sum(a b) - za sum(b))``: the integers are multiplied by
``aten._int_mm``, which Kiln has kernels for, and the rest is what those kernels take as their epilogue. Sums of the
weights and products of scales are ops on weights alone: constants, where these are frozen. Activations are made signed
where they are quantised, by another zero point. A convolution is the product of its windows, as rows, with its weights;
the padding is the zero point, so that the sum of the weights counts everywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node

from kiln.frontend.freezing.constant_folding import constant_of
from kiln.lowering.cpu.rules import IntegerRules, rules_for
from kiln.notes import Note

__all__ = ["NOTES", "use_integer_products"]

NOTES = "kiln.notes"
"""Where a graph's ``meta`` keeps notes for the report."""

aten = torch.ops.aten
_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
_ELEMENTWISE = (
    "quantized_decomposed.quantize_per_tensor.default",
    "aten.relu.default",
    "aten.hardtanh.default",
    "aten.clamp.default",
    "aten.hardswish.default",
    "aten.silu.default",
    "aten.gelu.default",
)
_LONGEST_SUM = 1 << 15
"""With this many products of a byte each, and zero points, 32 bits hold the sum."""


@dataclass
class _Operand:
    """Integers (int8) with ``(q - zero) * scale`` as their meaning; `scale` is a number or a vector, by column."""

    integers: Node
    scale: float | Node
    zero: int


@dataclass
class _Rewriter:
    """Adds nodes in front of one, with the values that they have under the graph's fake mode."""

    gm: GraphModule
    fake_mode: FakeTensorMode

    def call(self, before: Node, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        with self.gm.graph.inserting_before(before):
            node = self.gm.graph.call_function(target, args, kwargs)
        given = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        with torch.no_grad(), self.fake_mode:
            node.meta["val"] = target(*given[0], **given[1])
        for key in ("stack_trace", "nn_module_stack", "original_aten"):
            if key in before.meta:
                node.meta[key] = before.meta[key]
        return node


def use_integer_products(gm: GraphModule) -> int:
    """Rewrite in place; returns how many products are of integers now. What is left, and why, goes to ``gm.meta``."""
    names = {str(node.target) for node in gm.graph.nodes if node.op == "call_function"}
    if not any(name.startswith("quantized_decomposed.dequantize") for name in names):
        return 0
    notes: list[Note] = []
    count = 0
    for node in list(gm.graph.nodes):
        rule = _RULES.get(node.target)
        value = node.meta.get("val")
        if rule is None or not isinstance(value, FakeTensor) or value.device.type != "cpu":
            continue
        result = rule(_Rewriter(gm, value.fake_mode), node)
        if isinstance(result, tuple):
            new, old = result
            new.meta["val"] = old.meta["val"]  # with its strides: the graph may return it
            old.replace_all_uses_with(new)
            count += 1
        elif result:
            notes.append(Note("integer-products", str(node.target), node.name, result))
    gm.graph.eliminate_dead_code(lambda n: n.op in ("placeholder", "output") or n.is_impure())
    gm.recompile()
    gm.meta[NOTES] = notes
    return count


def _product(rw: _Rewriter, node: Node, lhs: Any, rhs: Any, bias: Node | None) -> tuple[Node, Node] | str:
    right = _weight(rw, node, rhs)
    if not isinstance(right, _Operand):
        return right
    left = _activation(rw, node, lhs, right.integers.meta["val"].shape[0])
    if not isinstance(left, _Operand):
        return left
    return _scaled(rw, node, left, right, bias), node


def _mm(rw: _Rewriter, node: Node) -> tuple[Node, Node] | str:
    return _product(rw, node, node.args[0], node.args[1], None)


def _addmm(rw: _Rewriter, node: Node) -> tuple[Node, Node] | str:
    bias, lhs, rhs = node.args[:3]
    if node.kwargs or not isinstance(bias, Node):
        return ""
    return _product(rw, node, lhs, rhs, bias)


def _scaled(rw: _Rewriter, node: Node, left: _Operand, right: _Operand, bias: Node | None) -> Node:
    """``scale * (lhs @ rhs - zero * sums) + bias`` in float32, then the type of `node`."""
    total = rw.call(node, aten._int_mm.default, left.integers, right.integers)
    if left.zero:
        sums = rw.call(node, aten.sum.dim_IntList, right.integers, [0], dtype=torch.int32)
        total = rw.call(node, aten.sub.Tensor, total, rw.call(node, aten.mul.Scalar, sums, left.zero))
    value = rw.call(node, aten._to_copy.default, total, dtype=torch.float32)
    scale: Any = left.scale
    if isinstance(right.scale, Node):
        scale = rw.call(node, aten.mul.Scalar, right.scale, left.scale)
    else:
        scale = left.scale * right.scale  # type: ignore[operator] - of this type, by the schema of the op
    value = rw.call(node, aten.mul.Tensor, value, scale)
    if bias is not None:
        value = rw.call(node, aten.add.Tensor, value, bias)
    dtype = node.meta["val"].dtype
    return value if value.meta["val"].dtype == dtype else rw.call(node, aten._to_copy.default, value, dtype=dtype)


def _convolution(rw: _Rewriter, node: Node) -> tuple[Node, Node] | str:
    x, w, bias, stride, padding, dilation, transposed, _, groups = cast(Sequence[Any], node.args)
    weight = _dequantized(w)
    if weight is None or _dequantized(x) is None:
        return ""
    window = [int(size) for size in cast(Node, weight.args[0]).meta["val"].shape[1:]]
    channels, dims = window[0], len(window) - 1
    if transposed or groups != 1 or any(d != 1 for d in dilation):
        return "a transposed, grouped or dilated convolution is computed in floats"
    rules = rules_for(IntegerRules)
    if channels % (rules.window_channels if prod(window[1:]) > 1 else rules.pixel_channels):
        return f"windows of {channels} channels are gathered too slowly: computed in floats"
    if not all(isinstance(size, int) for size in node.meta["val"].shape):
        return "sizes of the image are known at run time only: computed in floats"
    right = _weight_of(rw, weight, 0)
    if not isinstance(right, _Operand):
        return right
    left = _activation(rw, node, x, prod(window))
    if not isinstance(left, _Operand):
        return left
    stride, padding = (list(v) * dims if len(v) == 1 else list(v) for v in (stride, padding))
    rows = rw.call(node, aten.permute.default, left.integers, [0, *range(2, dims + 2), 1])
    if any(padding):
        # Of each dim, the last one first; channels are not padded.
        widths = [0, 0, *(p for pad in reversed(padding) for p in (pad, pad))]
        rows = rw.call(node, aten.constant_pad_nd.default, rows, widths, left.zero)
    for i, (size, step) in enumerate(zip(window[1:], stride, strict=True)):
        rows = rw.call(node, aten.unfold.default, rows, i + 1, size, step)
    spatial = list(rows.meta["val"].shape[1 : dims + 1])
    batch = rows.meta["val"].shape[0]
    order = [*range(dims + 1), *range(dims + 2, 2 * dims + 2), dims + 1]
    rows = rw.call(node, aten.permute.default, rows, order)
    rows = rw.call(node, aten.clone.default, rows, memory_format=torch.contiguous_format)
    rows = rw.call(node, aten.view.default, rows, [batch * prod(spatial), prod(window)])
    columns = rw.call(node, aten.permute.default, right.integers, [*range(2, dims + 2), 1, 0])
    columns = rw.call(node, aten.clone.default, columns, memory_format=torch.contiguous_format)
    columns = rw.call(node, aten.view.default, columns, [prod(window), -1])
    left, right = _Operand(rows, left.scale, left.zero), _Operand(columns, right.scale, 0)
    value = _scaled(rw, node, left, right, bias)
    value, last = _follow(rw, node, value)
    value = rw.call(last.next, aten.view.default, value, [batch, *spatial, -1])
    value = rw.call(value.next, aten.permute.default, value, [0, dims + 1, *range(1, dims + 1)])
    if last.meta["val"].is_contiguous():  # as it is to readers that ATen may have to run; no copy otherwise
        value = rw.call(value.next, aten.clone.default, value, memory_format=torch.contiguous_format)
    return value, last


def _follow(rw: _Rewriter, node: Node, value: Node) -> tuple[Node, Node]:
    """`value` after the elementwise ops of one operand that alone read `node`, in the order of its own memory, which is
    that of the product's kernel; and the last of these ops.
    """
    while len(node.users) == 1:
        user = next(iter(node.users))
        if str(user.target) not in _ELEMENTWISE or user.args[0] is not node or len(user.all_input_nodes) != 1:
            break
        node, value = user, rw.call(user, user.target, value, *user.args[1:], **user.kwargs)  # type: ignore[arg-type] - of this type, by the schema of the op
    return value, node


_RULES: dict[Any, Callable[[_Rewriter, Node], tuple[Node, Node] | str]] = {
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.convolution.default: _convolution,
}


def _dequantized(value: Any) -> Node | None:
    """`value`, if it is a dequantisation of 8-bit integers to floats by numbers that the graph states."""
    if not isinstance(value, Node) or not isinstance(value.target, torch._ops.OpOverload):
        return None
    if str(cast(Any, value.target)) not in (
        "quantized_decomposed.dequantize_per_tensor.default",
        "quantized_decomposed.dequantize_per_channel.default",
    ):
        return None
    source = value.args[0]
    known = isinstance(source, Node) and isinstance(source.meta.get("val"), FakeTensor)
    return value if known and source.meta["val"].dtype in (torch.int8, torch.uint8) else None  # type: ignore[union-attr] - of this type, by the schema of the op


def _activation(rw: _Rewriter, before: Node, value: Any, length: int) -> _Operand | str:
    """What is multiplied from the left: dequantised by one scale, and maybe reshaped after that. `length`: of a sum."""
    views: list[Node] = []
    while isinstance(value, Node) and value.target in _VIEWS:
        views.append(value)
        value = value.args[0]
    node = _dequantized(value)
    if node is None or "per_tensor" not in str(node.target):
        return ""
    if not isinstance(length, int) or length > _LONGEST_SUM or not -128 <= node.args[2] <= 255:  # type: ignore[operator] - of this type, by the schema of the op
        return "sums that 32 bits may not hold: computed in floats"
    if node.args[0].meta["val"].dtype == torch.uint8:  # type: ignore[union-attr] - of this type, by the schema of the op
        _make_signed(rw, node.args[0])  # type: ignore[arg-type] - of this type, by the schema of the op
    integers, scale, zero = node.args[:3]
    for view in reversed(views):
        integers = rw.call(before, aten.reshape.default, integers, *view.args[1:])
    return _Operand(integers, scale, zero)  # type: ignore[arg-type] - of this type, by the schema of the op


def _make_signed(rw: _Rewriter, q: Node) -> None:
    """Lets what dequantises the unsigned `q` read int8, which is the same less 128, about a zero point as much less."""
    signed = _less_128(rw, q)
    for user in list(q.users):
        if str(user.target) == "quantized_decomposed.dequantize_per_tensor.default":
            scale, *bounds = user.args[1:5]
            user.args = (signed, scale, *(v - 128 for v in bounds), torch.int8)  # type: ignore[operator] - of this type, by the schema of the op


def _less_128(rw: _Rewriter, q: Node) -> Node:
    after = q.next
    if str(q.target) == "quantized_decomposed.quantize_per_tensor.default":
        x, scale, *bounds, _ = q.args
        return rw.call(after, q.target, x, scale, *(v - 128 for v in bounds), torch.int8)  # type: ignore[operator] - of this type, by the schema of the op
    if q.target in (*_VIEWS, aten.permute.default, aten.clone.default) and isinstance(q.args[0], Node):
        return rw.call(after, q.target, _less_128(rw, q.args[0]), *q.args[1:], **q.kwargs)
    wide = rw.call(after, aten._to_copy.default, q, dtype=torch.int16)
    return rw.call(after, aten._to_copy.default, rw.call(after, aten.sub.Scalar, wide, 128), dtype=torch.int8)


def _weight(rw: _Rewriter, before: Node, value: Any) -> _Operand | str:
    """What is multiplied from the right, ``[k, n]``: integers about zero, with one scale or one for each column."""
    turned = False
    if isinstance(value, Node) and (
        value.target is aten.t.default
        or value.target is aten.transpose.int
        and set(value.args[1:]) in ({0, 1}, {-1, -2})
        or value.target is aten.permute.default
        and list(value.args[1]) == [1, 0]  # type: ignore[call-overload] - of this type, by the schema of the op
    ):
        turned, value = True, value.args[0]
    node = _dequantized(value)
    if node is None:
        return ""
    found = _weight_of(rw, node, 0 if turned else 1)
    if turned and isinstance(found, _Operand):
        found.integers = rw.call(before, aten.t.default, found.integers)
    return found


def _weight_of(rw: _Rewriter, node: Node, axis: int) -> _Operand | str:
    """The operand that a dequantisation stands for, its channels along `axis`; why it is none."""
    q = node.args[0]
    assert isinstance(q, Node)
    if "per_tensor" in str(node.target):
        scale, zero = node.args[1], node.args[2]
        if zero != 0 or q.meta["val"].dtype != torch.int8 or not isinstance(scale, float):
            return "the weight is unsigned, or its zero point is not 0: computed in floats"
        return _Operand(q, scale, 0)
    scale, zeros, given = node.args[1], node.args[2], node.args[3]
    if given != axis or q.meta["val"].dtype != torch.int8 or scale.meta["val"].dtype != torch.float32:  # type: ignore[union-attr] - of this type, by the schema of the op
        return "the weight is unsigned, or its scales are not those of the outputs: computed in floats"
    points = constant_of(rw.gm, zeros)
    if zeros is not None and points is None:
        return "the weight's zero points are known at run time only (freezing makes them constants): computed in floats"
    if points is not None and bool(points.any()):
        return "the weight's zero points are not 0: computed in floats"
    return _Operand(q, scale, 0)  # type: ignore[arg-type] - of this type, by the schema of the op
