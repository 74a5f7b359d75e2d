# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Norms of images by groups and by samples, in both orders of channels, against float64."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.lowering import paths

Function = Callable[..., torch.Tensor]
PARTS = "gpu split-reductions"


@pytest.fixture(autouse=True)
def known() -> None:
    """Known numbers: among 100,000 fresh ones some lie so near the kink of `leaky_relu` that float64 is beyond it."""
    torch.manual_seed(0)


def check(function: Function, x: torch.Tensor, target: str) -> None:
    """The result and the gradient, with eager's strides."""
    torch._dynamo.reset()
    run = torch.compile(function, backend=kiln.backend, options={"fallback": False, "target": target})
    half = torch.finfo(x.dtype).eps / 2
    found: list[list[torch.Tensor]] = []
    strides: list[list[tuple[int, ...]]] = []
    for call, dtype in ((run, x.dtype), (function, torch.float64), (function, x.dtype)):
        leaf = x.detach().to(dtype).requires_grad_()
        y = call(leaf)
        weights = torch.linspace(1, -1, y.numel(), dtype=torch.float64).view(y.shape).to(x.dtype).to(dtype)
        (gradient,) = torch.autograd.grad(y, leaf, weights)
        found.append([y.detach().double(), gradient.double()])
        strides.append([y.stride(), gradient.stride()])
    assert strides[0] == strides[2]
    ours, exact, eagers = found
    for mine, wanted, eager in zip(ours, exact, eagers, strict=True):
        own = (eager - wanted).square().mean().sqrt()
        allowed = 6 * own + 4 * half * wanted.abs() + 64 * 2.0**-24 * torch.maximum(wanted.abs().max(), x.abs().max())
        assert ((mine - wanted).abs() <= allowed + 3 * (eager - wanted).abs()).all()


def groups(count: int) -> Function:
    scale = torch.linspace(0.5, 1.5, 64)

    def norm(x: torch.Tensor) -> torch.Tensor:
        channels = x.shape[1]
        weight = scale[:channels].to(x.dtype)
        return F.silu(F.group_norm(x, count, weight, weight - 1))

    return norm


def samples(x: torch.Tensor) -> torch.Tensor:
    return F.leaky_relu(F.instance_norm(x)) + 1


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["planar", "last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("count", [1, 4, 16])
def test_group_norms(count: int, target: str, dtype: torch.dtype, layout: torch.memory_format) -> None:
    x = (3 + torch.randn(3, 48, 10, 14)).to(dtype, memory_format=layout)
    check(groups(count), x, target)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["planar", "last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("shape", [(3, 24, 10, 14), (2, 32, 40, 40), (1, 8, 6, 5)])
def test_instance_norms(shape: tuple[int, ...], target: str, dtype: torch.dtype, layout: torch.memory_format) -> None:
    x = (3 + torch.randn(shape)).to(dtype, memory_format=layout)
    check(samples, x, target)


@pytest.mark.parametrize(
    ("layout", "parts"),
    [(torch.contiguous_format, "planes"), (torch.channels_last, "groups of channels")],
    ids=["planar", "last"],
)
def test_few_large_groups_are_read_once_for_their_statistics(layout: torch.memory_format, parts: str) -> None:
    """More elements than a program of a GPU has registers for, and fewer groups than it has multiprocessors."""
    x = (100 + torch.randn(1, 6, 160, 144)).to(memory_format=layout)
    paths.reset()
    check(groups(2), x, "tt-cpu")
    assert paths.taken()[f"{PARTS}: {parts}"]


def test_groups_of_few_neighbours_are_sums_of_channels() -> None:
    x = torch.randn(40, 16, 12, 12).to(memory_format=torch.channels_last)
    paths.reset()
    check(groups(4), x, "tt-cpu")
    assert paths.taken()[f"{PARTS}: groups of channels"]
