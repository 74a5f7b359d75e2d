# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Strides of a graph's outputs."""

from typing import Any

import torch
from torch.fx import GraphModule

from kiln.frontend.import_.effects import is_token

__all__ = ["Strides", "output_strides"]

Strides = list[tuple[int, ...] | None]


def output_strides(gm: GraphModule) -> Strides:
    """Strides of a graph's outputs, as its trace has them; None for what is no strided tensor.

    AOTAutograd counts the outputs without tokens of effects: a graph with tokens tells no strides.
    """
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    if any(isinstance(node, torch.fx.Node) and is_token(node) for node in output.args[0]):
        return [None] * len(output.args[0])
    found: Strides = []
    for node in output.args[0]:
        value: Any = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        is_strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
        found.append(tuple(value.stride()) if is_strided else None)
    return found
