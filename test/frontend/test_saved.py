# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a forward graph keeps in memory for its backward graph."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

import kiln
from kiln.frontend import aot
from kiln.frontend.recomputed import round_recomputed

Function = Callable[..., torch.Tensor]


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """The tensors that backward graphs get from their forward graphs, and that are no inputs of these."""
    found: list[Node] = []

    def keep(forward: GraphModule, backward: GraphModule) -> None:
        given = {node.name for node in forward.graph.find_nodes(op="placeholder")}
        arguments = backward.graph.find_nodes(op="placeholder")
        found.extend(n for n in arguments if n.name not in given and not n.name.startswith("tangents"))
        round_recomputed(forward, backward)

    monkeypatch.setattr(aot, "round_recomputed", keep)
    return found


def gradients(
    function: Function, inputs: list[torch.Tensor], dtype: torch.dtype, **compiled: Any
) -> list[torch.Tensor]:
    leaves = [x.detach().clone().to(dtype).requires_grad_() for x in inputs]
    torch._dynamo.reset()
    run = torch.compile(function, backend=kiln.backend, **compiled) if compiled else function
    result = run(*leaves)
    result.backward(torch.linspace(1, -1, result.numel()).view(result.shape).to(dtype))
    return [leaf.grad.double() for leaf in leaves if leaf.grad is not None]


def check(function: Function, inputs: list[torch.Tensor], target: str) -> None:
    """Gradients are float64's, but for roundings of float32."""
    found = gradients(function, inputs, torch.float32, options={"fallback": False, "target": target})
    for ours, exact in zip(found, gradients(function, inputs, torch.float64), strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("result_kept", [torch.tanh, torch.sigmoid, torch.exp, torch.rsqrt])
def test_results_that_formulas_detach_are_computed_again(saved: list[Node], result_kept: Function, target: str) -> None:
    """An activation written with its parts: its input and its result are kept, for the products, and nothing else."""
    torch.manual_seed(0)

    def block(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = x @ w
        return (y * (1 + result_kept(y * y + 1))) @ v

    check(block, [torch.randn(24, 16), torch.randn(16, 40) / 16, torch.randn(40, 8) / 6], target)
    assert [n.meta["val"].numel() for n in saved].count(24 * 40) == 2


def images(saved: list[Node]) -> int:
    """How many saved tensors are as large as a pooling's input."""
    return [tuple(n.meta["val"].shape) for n in saved].count((2, 4, 12, 12))


def pooled_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.relu(F.batch_norm(F.conv2d(x, w, padding=1), None, None, training=True))
    return F.max_pool2d(y, 3, 2, 1)


def pooled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 3, 2, 1)


def pooled_twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.relu(F.conv2d(x, w, padding=1))
    return F.max_pool2d(y, 3, 2, 1) + F.conv2d(y, w[:, :1].expand(4, 4, 3, 3), stride=2, padding=1)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("function", [pooled_norm, pooled, pooled_twice])
def test_poolings_keep_no_image_that_is_read_for_its_sizes(saved: list[Node], function: Function, target: str) -> None:
    """One image is kept: what the norm or the activation, or another convolution, reads."""
    torch.manual_seed(0)
    check(function, [torch.randn(2, 3, 12, 12), torch.randn(4, 3, 3, 3) / 5], target)
    assert images(saved) == 1
