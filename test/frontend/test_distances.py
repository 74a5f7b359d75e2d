# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Distances from a mean are rounded by themselves in the norms that PyTorch takes apart, and in their gradients."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

import kiln
from kiln.frontend import compile as compilation
from kiln.frontend.distances import DISTANCE
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport

aten = torch.ops.aten
Marked = list[tuple[Node, bool]]


@pytest.fixture
def differences(monkeypatch: pytest.MonkeyPatch) -> Marked:
    """The differences of the graphs that were compiled, and whether they are marked."""
    found: Marked = []
    native = compilation._compile_native

    def look(gm: GraphModule, options: Options, report: CompileReport) -> Callable[[list[object]], list[object]]:
        nodes = gm.graph.find_nodes(op="call_function", target=aten.sub.Tensor)
        found.extend((node, DISTANCE in node.meta) for node in nodes)
        return native(gm, options, report)

    monkeypatch.setattr(compilation, "_compile_native", look)
    return found


def layer_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(torch.sin(x), (x.shape[-1],), w[: x.shape[-1]])


def batch_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(torch.sin(x), None, None, w, training=True)


def instance_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.instance_norm(torch.sin(x), weight=w)


def written_out(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x)
    distance = y - y.float().mean(-1, keepdim=True).to(y.dtype)
    return distance / (distance.square().mean(-1, keepdim=True) + 1) * w[0]


@pytest.mark.parametrize("norm", [layer_norm, batch_norm, instance_norm, written_out])
def test_differences_from_a_mean_are_marked(norm: Callable[..., torch.Tensor], differences: Marked) -> None:
    x, w = torch.randn(2, 4, 6, requires_grad=True), torch.randn(4 if norm is not layer_norm else 6, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(norm, backend=kiln.backend, options={"fallback": False, "target": "tt-cpu"})
    compiled(x, w).sum().backward()
    marked = [node for node, is_marked in differences if is_marked]
    assert marked
    # What a norm's gradient subtracts besides are sums of gradients.
    assert all(_reads_sine(node) == is_marked for node, is_marked in differences)


def _reads_sine(node: Node) -> bool:
    """Whether an operand is the norm's, or a view of it."""
    operands = node.all_input_nodes
    while any(n.target is aten.view.default for n in operands):
        operands = [n.all_input_nodes[0] if n.target is aten.view.default else n for n in operands]
    return any(n.name.startswith("sin") for n in operands)


def test_other_differences_are_not(differences: Marked) -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x - x.amax(-1, keepdim=True) + (x - 1)

    torch._dynamo.reset()
    torch.compile(shifted, backend=kiln.backend)(torch.randn(4, 6))
    assert differences and not any(is_marked for _, is_marked in differences)
