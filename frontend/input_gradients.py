# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of depthwise convolutions' images as convolutions, for kernels of GPUs.

Where windows move by one position, the gradient of the image is the convolution of the result's gradient with the
window turned around, and padding that is as much smaller than the window as that of the convolution was larger than
none. `aten.convolution_backward` makes it with kernels that take up to twice as long as those of convolutions.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from kiln.frontend.convolution_gradients import is_wanted, take_out
from kiln.frontend.graph_ops import call, value_of
from kiln.lowering import paths
from kiln.lowering.gpu.dot.conv_window import is_sliding

__all__ = ["convolve_input_gradients", "has_input_gradients"]

aten = torch.ops.aten

_TAKEN = paths.group("gpu input-gradients", "convolution")


def has_input_gradients(gm: GraphModule) -> bool:
    """Whether a call makes such a gradient."""
    return any(map(_makes_one, gm.graph.find_nodes(op="call_function", target=aten.convolution_backward.default)))


def convolve_input_gradients(gm: GraphModule) -> int:
    """Take these gradients out of calls, in place; returns how many.

    A gradient [N, C, H, W] of the result, a weight [C, 1, *window] -> the gradient of the image, in the same type.
    """
    graph, taken = gm.graph, 0
    for node in graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        if not _makes_one(node):
            continue
        gradient, weight = cast(Node, node.args[0]), cast(Node, node.args[2])
        window = list(value_of(weight).shape[2:])
        padding = _turned(window, cast(list[int], node.args[5]))
        groups = cast(int, node.args[9])
        with graph.inserting_before(node):
            turned = call(graph, aten.flip.default, weight, [2, 3])
            settings = ([1, 1], padding, [1, 1], False, [0, 0], groups)
            found = call(graph, aten.convolution.default, gradient, turned, None, *settings)
        take_out(node, 0, found)
        _TAKEN("convolution")
        taken += 1
    if taken:
        gm.recompile()
    return taken


def _makes_one(node: Node) -> bool:
    """Whether a call's gradient of the image is wanted and read, by `getitem` alone, and a convolution makes it."""
    if not is_wanted(node, 0):
        return False
    weight, image = (value_of(cast(Node, node.args[k])) for k in (2, 1))
    _, _, _, _, stride, padding, dilation, is_transposed, _, groups, _ = cast(tuple[Any, ...], node.args)
    is_narrow = weight.dtype in (torch.bfloat16, torch.float16)
    if is_transposed or not is_narrow or not all(isinstance(n, int) for n in (*weight.shape, *image.shape)):
        return False
    turned = _turned(weight.shape[2:], padding)
    return is_sliding(weight.shape, image.shape, steps=(*stride, *dilation), padding=turned, groups=groups)


def _turned(window: Sequence[int], padding: Sequence[int]) -> list[int]:
    """The padding of the gradient's convolution; one number of the call's is that of each dimension."""
    of_each = padding if len(padding) == len(window) else [*padding] * len(window)
    return [k - 1 - p for k, p in zip(window, of_each, strict=True)]
