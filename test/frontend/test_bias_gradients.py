# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of convolutions' biases are sums of their own where kernels are a GPU's."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule

import kiln
from kiln.frontend import aot

T = torch.Tensor


def strided(x: T, w: T, b: T) -> T:
    return F.conv2d(F.relu(x), w, b, 2, 1)


def depthwise(x: T, w: T, b: T) -> T:
    return F.conv2d(x, w, b, 1, 1, 1, 8).sigmoid()


def transposed(x: T, w: T, b: T) -> T:
    return F.conv_transpose2d(x, w, b, 2).tanh()


def over_time(x: T, w: T, b: T) -> T:
    return F.gelu(F.conv1d(x, w, b))


CASES: list[tuple[Callable[..., T], list[tuple[int, ...]]]] = [
    (strided, [(2, 8, 12, 12), (16, 8, 3, 3), (16,)]),
    (depthwise, [(2, 8, 12, 12), (8, 1, 3, 3), (8,)]),
    (transposed, [(2, 8, 6, 6), (8, 4, 2, 2), (4,)]),
    (over_time, [(2, 8, 40), (16, 8, 5), (16,)]),
]


def gradients(function: Callable[..., torch.Tensor], given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in given]
    return list(torch.autograd.grad(function(*leaves).square().sum(), leaves))


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> list[list[bool]]:
    """Which gradients the calls of backward graphs make."""
    found: list[list[bool]] = []
    partition = aot._partition

    def keep(joint: GraphModule, *args: Any, **settings: Any) -> tuple[GraphModule, GraphModule]:
        forward, backward = partition(joint, *args, **settings)
        calls = backward.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default)
        found.extend(cast(list[bool], call.args[10]) for call in calls)
        return forward, backward

    torch._dynamo.reset()
    monkeypatch.setattr(aot, "_partition", keep)
    return found


def compiled(function: Callable[..., torch.Tensor], target: str) -> Callable[..., torch.Tensor]:
    options: Any = {"target": target, "fallback": False, "cache": False}
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options=options)


@pytest.mark.parametrize("target", ["tt-cpu", "cpu"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_gradients(masks: list[list[bool]], case: int, target: str) -> None:
    """The call makes the other two; on a CPU, whose library has the third for next to nothing, all of them."""
    function, shapes = CASES[case]
    given = [torch.randn(shape) / 2 for shape in shapes]
    found = gradients(compiled(function, target), given)
    assert masks == [[True, True, target == "cpu"]]
    for mine, exact in zip(found, gradients(function, [x.double() for x in given]), strict=True):
        assert (mine - exact).norm() < 1e-5 * exact.norm()


def test_the_bias_alone(masks: list[list[bool]]) -> None:
    """Nothing is left of the call; 16-bit gradients are added up in f32."""
    x, w, b = torch.randn(4, 8, 32, 32).bfloat16(), torch.randn(8, 8, 3, 3).bfloat16(), torch.randn(8).bfloat16()

    def run(b: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, b) * 0.01

    leaf, wide = b.requires_grad_(), b.detach().double().requires_grad_()
    (found,) = torch.autograd.grad(compiled(run, "tt-cpu")(leaf).float().square().sum(), leaf)
    exact = torch.autograd.grad((F.conv2d(x.double(), w.double(), wide) * 0.01).square().sum(), wide)[0]
    assert masks == []
    assert (found.double() - exact).norm() < 2e-2 * exact.norm()
