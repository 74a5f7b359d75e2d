# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which tensors of a graph are on the device that it is compiled for, and which are elsewhere.

Kernels read and write the memory of one device. A graph with CUDA tensors may have CPU tensors as well: scalars, which
eager hands to a GPU's kernels as numbers, indices, results that go to the host. The graph's device is the GPU; an op
that reads or makes a tensor elsewhere is a call of ATen's, on the tensors that eager has. The one exception are
tensors without dims that an op of the GPU reads: their number becomes a tensor of the GPU (``runtime/numbers.py``).
"""

import functools
from collections import Counter
from collections.abc import Iterator

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from kiln.frontend.import_.fx_values import node_value

__all__ = ["Placement", "device_of", "has_tensors", "known_number"]

aten = torch.ops.aten

_SAME = {aten.lift_fresh_copy.default, aten.clone.default, aten.detach.default, aten.alias.default}


def device_of(gm: GraphModule) -> torch.device:
    """The device that most ops of the graph have results on, among GPUs if there is any; the CPU without tensors."""
    made: Counter[torch.device] = Counter()
    for node in gm.graph.nodes:
        for tensor in _tensors(node):
            made[tensor.device] += 1 if node.op == "call_function" else 0
    accelerators = [device for device in made if device.type != "cpu"]
    return max(accelerators or made or [torch.device("cpu")], key=lambda device: made[device])


def has_tensors(gm: GraphModule) -> bool:
    """Whether the graph has any tensors."""
    return any(True for node in gm.graph.nodes for _ in _tensors(node))


class Placement:
    """Tells for the values of one graph whether they are elsewhere than on ``device``."""

    def __init__(self, gm: GraphModule, device: torch.device | None = None) -> None:
        self.device = device_of(gm) if device is None else device
        self.is_mixed = any(self.is_elsewhere(t) for node in gm.graph.nodes for t in _tensors(node))

    def is_elsewhere(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on another device than the graph's."""
        return tensor.device != self.device

    def numbers(self, node: Node) -> set[Node]:
        """The operands of an op that it reads as numbers: those elsewhere, if all of these are CPU tensors without
        dims, and all results are here.
        """
        if not self.is_mixed or any(map(self.is_elsewhere, _tensors(node))):
            return set()
        far = self._far_operands(node)
        plain = all(isinstance(t := node_value(n), torch.Tensor) and _is_number(t) for n in far)
        return set(far) if plain else set()

    def is_call(self, node: Node) -> bool:
        """Whether an op must be a call of ATen's on the tensors that eager has."""
        if not self.is_mixed:
            return False
        return any(map(self.is_elsewhere, _tensors(node))) or bool(set(self._far_operands(node)) - self.numbers(node))

    def _far_operands(self, node: Node) -> list[Node]:
        return [n for n in node.all_input_nodes if any(map(self.is_elsewhere, _tensors(n)))]


def known_number(node: Node) -> bool | int | float | None:
    """The number in a tensor without dims, where the graph says it; None for others."""
    if node.op == "get_attr":
        value = functools.reduce(getattr, str(node.target).split("."), node.graph.owning_module)
        with unset_fake_temporarily():
            return value.item() if isinstance(value, torch.Tensor) and not value.is_complex() else None
    if node.target in _SAME and isinstance(node.args[0], Node):
        return known_number(node.args[0])
    if node.target in (aten.full.default, aten.scalar_tensor.default):
        number = node.args[-1]
        return number if isinstance(number, (bool, int, float)) else None
    return None


def _is_number(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dim() == 0


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    """The tensors that a node stands for."""
    if node.op in ("placeholder", "call_function", "get_attr"):
        for value in tree_leaves(node_value(node)):
            if isinstance(value, torch.Tensor):
                yield value
