# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the forward graph keeps for the backward graph around convolutions has its channels last, where that pays.

``propagate-layouts`` decides where channels lie within one graph. What crosses from the forward to the backward graph
would come in planar there and go out planar here, and each convolution, whose library kernels of 16 bits work on
channels last, would reorder its tensors. Nobody but Kiln sees these tensors, so the decision is made for both graphs at
once, with the costs of that pass: bytes of the reorderings that connected convolutions and their gradients save,
against those of the arguments, results and reshapes that stay planar. User-visible results keep eager's strides.
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from kiln.lowering import paths
from kiln.lowering.gpu.rules import ConvolutionRules, rules_for

__all__ = ["keep_channels_last", "write_channels_last"]

aten = torch.ops.aten

_TAKEN = paths.group("gpu saved-channels-last", "channels last", "planar, as a border costs more")

_RELAID = "kiln_channels_last"
"""Key in a node's `meta`: the graph returns its result channels last, whatever ATen would."""
_NARROW = (torch.bfloat16, torch.float16)
_RESHAPES = (aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten._reshape_copy.default)
_OTHER_DIMS = (*_RESHAPES, aten.permute.default, aten.transpose.int)
"""Ops whose results have other dims than their operands, or the same ones elsewhere."""


@dataclass
class _Net:
    """Connected images. saved, paid: bytes. kept: what the forward graph saves, and the backward graph's argument."""

    saved: int = 0
    paid: int = 0
    is_left: bool = False
    kept: list[tuple[Node, Node]] = field(default_factory=list[tuple[Node, Node]])


def keep_channels_last(forward: GraphModule, backward: GraphModule, num_outputs: int) -> int:
    """Give saved tensors, in both graphs, strides with neighbouring channels; returns how many.

    num_outputs: how many of the forward graph's outputs are the caller's; those behind them are saved.
    """
    outputs = _outputs(forward)
    given = {n for n in outputs[:num_outputs] if isinstance(n, Node)}
    arguments = {n.name: n for n in backward.graph.find_nodes(op="placeholder")}
    saved = {n: arguments[n.name] for n in outputs[num_outputs:] if isinstance(n, Node) and n.name in arguments}
    results = given | {n for n in _outputs(backward) if isinstance(n, Node)}
    images = _Images({argument: node for node, argument in saved.items()})
    graphs = (forward.graph, backward.graph)
    for graph in graphs:
        for node in graph.nodes:
            for operand in _ordered_as(node):
                images.join(node, operand)
    nets: dict[Node, _Net] = {}
    for graph in graphs:
        for node in graph.nodes:
            for image in _images_of_convolution(node):
                net = nets.setdefault(images.find(image), _Net())
                net.is_left |= not _is_library_faster(node)
                comes_in = images.same.get(image, image).op == "placeholder"
                net.saved += 0 if comes_in else 2 * _bytes(image)
    for node, argument in saved.items():
        net = nets.get(images.find(node))
        if net is not None and node not in results and node.op == "call_function" and _is_planar(node):
            net.kept.append((node, argument))
    for graph in graphs:
        for node in graph.nodes:
            net = nets.get(images.find(node)) if _is_image(node) else None
            if net is not None:
                _borders(node, net, node in images.same, node in results)
    chosen: list[tuple[Node, Node]] = []
    for net in nets.values():
        if net.is_left or not net.kept:
            continue
        pays = net.saved > net.paid
        _TAKEN("channels last" if pays else "planar, as a border costs more")
        chosen += net.kept if pays else []
    for node, argument in chosen:
        node.meta["val"] = argument.meta["val"] = _channels_last(_value(node))
        node.meta[_RELAID] = True
    return len(chosen)


def write_channels_last(gm: GraphModule) -> None:
    """Copy what ``keep_channels_last`` chose, in place, for a graph that runs with ATen and not as it was compiled."""
    for output in gm.graph.find_nodes(op="output"):
        for node in {n for n in _outputs(gm) if isinstance(n, Node) and _RELAID in n.meta}:
            with gm.graph.inserting_before(output):
                copy = gm.graph.call_function(torch.Tensor.contiguous, (node,), {"memory_format": torch.channels_last})
            output.replace_input_with(node, copy)
    gm.recompile()


class _Images:
    """Sets of tensors that have one order of dims. same: an argument of the backward graph and what it is there."""

    def __init__(self, same: dict[Node, Node]) -> None:
        self.same = same
        self._parent: dict[Node, Node] = {}

    def find(self, node: Node) -> Node:
        node = self.same.get(node, node)
        while node in self._parent:
            node = self._parent[node]
        return node

    def join(self, a: Node, b: Node) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self._parent[a] = b


def _borders(node: Node, net: _Net, is_saved: bool, is_result: bool) -> None:
    """Adds what a tensor costs, or saves, where it comes in, goes out or is reshaped."""
    from kiln.frontend.import_.operand_strides import needs_strides  # MLIR: not where the cache has both graphs

    size = 2 * _bytes(node)
    if node.op == "placeholder" and not is_saved:
        if not _is_planar(node):
            net.saved += size
        elif _value(node).shape[1] > rules_for(ConvolutionRules).few_channels:
            net.paid += size
    if is_result:
        net.paid += size if _is_planar(node) else -size
    for user in node.users:
        target = user.target
        if target in _RESHAPES and prod(_known(_value(node).shape[2:])) != 1:
            net.paid += size
        net.is_left |= isinstance(target, OpOverload) and needs_strides(cast(Any, target))


def _ordered_as(node: Node) -> Iterator[Node]:
    """The operands of an op that its result, an image, can have the order of dims of."""
    if not _is_image(node) or node.op != "call_function":
        return
    op, number = node, 0
    if node.target is operator.getitem:
        op, number = cast(Node, node.args[0]), cast(int, node.args[1])
    if _convolves(op):
        yield from _images_of_convolution(op) if number == 0 else ()
    elif isinstance(op.target, OpOverload) and op.target not in _OTHER_DIMS:
        joins = op.target is aten.cat.default
        channels: int = _value(node).shape[1]
        yield from (n for n in op.all_input_nodes if _is_image(n) and (joins or _value(n).shape[1] == channels))


def _images_of_convolution(node: Node) -> Iterator[Node]:
    """A convolution's image and result; of one's gradients the three tensors that are images."""
    if node.target is aten.convolution.default:
        yield from (n for n in (cast(Node, node.args[0]), node) if _is_image(n))
    elif node.target is aten.convolution_backward.default:
        made = [n for n in node.users if n.target is operator.getitem and n.args[1] == 0]
        yield from (n for n in (*cast(list[Node], node.args[:2]), *made) if _is_image(n))


def _convolves(node: Node) -> bool:
    return node.target in (aten.convolution.default, aten.convolution_backward.default)


def _is_library_faster(node: Node) -> bool:
    """Whether the library's kernels of a convolution work on channels last: those of 16 bits, in groups as well. Planar
    images of groups would be turned for each call, and those of single channels get ATen's own kernels.
    """
    return _value(cast(Node, node.args[1])).dtype in _NARROW


def _is_image(node: Node) -> bool:
    """Whether a node is a dense tensor of [batch, channels, height, width], all but the batch of known sizes."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.dim() != 4:
        return False
    known = all(isinstance(n, int) for n in value.shape[1:])
    return known and bool(value.shape[1] > 1) and prod(value.shape[2:]) > 1


def _is_planar(node: Node) -> bool:
    """Whether pixels of an image lie row by row, and channels one behind the other."""
    _, channels, height, width = _value(node).shape
    found = list(_value(node).stride())
    wanted = [channels * height * width, height * width, width, 1]
    return all(bool(a == b) or _is_one(n) for n, a, b in zip(_value(node).shape, found, wanted, strict=True))


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _channels_last(value: torch.Tensor) -> torch.Tensor:
    """A tensor without memory, of the same sizes and with neighbouring channels."""
    _, channels, height, width = value.shape
    with cast(Any, value).fake_mode:
        strides = (channels * height * width, 1, width * channels, channels)
        return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)


def _bytes(node: Node) -> int:
    return prod(_known(_value(node).shape)) * _value(node).element_size()


def _known(sizes: Any) -> list[int]:
    return [n if isinstance(n, int) else 1 for n in sizes]


def _value(node: Node) -> torch.Tensor:
    return cast(torch.Tensor, node.meta["val"])


def _outputs(gm: GraphModule) -> list[Any]:
    (output,) = gm.graph.find_nodes(op="output")
    return list(output.args[0])
