# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients in 16 bits of norms over nearly equal elements, and of maxima: the backward graph has the numbers that the
forward graph had, and is as far from float64 as eager and no further.
"""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.lowering import paths

CHANNELS = 16


def batch_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(F.softplus(x * w), None, None, b, b, training=True)


def instance_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.instance_norm(torch.tanh(x * w), weight=b, bias=b)


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(torch.tanh(x * w) + 3, (CHANNELS,), b, b)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", [batch_norm, instance_norm, layer_norm])
def test_norms_of_equal_elements(norm: Callable[..., torch.Tensor], dtype: torch.dtype, target: str) -> None:
    torch.manual_seed(0)
    shape = (64, CHANNELS) if norm is layer_norm else (4, CHANNELS, 8, 8)
    weights = (CHANNELS,) if norm is layer_norm else (1, CHANNELS, 1, 1)
    given = [(torch.rand(shape) * 1e-6 + 1).to(dtype), torch.randn(weights).to(dtype), torch.randn(CHANNELS).to(dtype)]
    seed = torch.linspace(1, -1, given[0].numel()).view(shape)

    def gradients(function: Callable[..., torch.Tensor], as_dtype: torch.dtype) -> list[torch.Tensor]:
        leaves = [x.detach().clone().to(as_dtype).requires_grad_() for x in given]
        function(*leaves).backward(seed.to(dtype).to(as_dtype))
        return [leaf.grad.double() for leaf in leaves if leaf.grad is not None]

    torch._dynamo.reset()
    compiled = torch.compile(norm, backend=kiln.backend, options={"fallback": False, "target": target})
    exact = gradients(norm, torch.float64)
    # Sums of large terms of both signs: their roundings count, which eager's may cancel by chance.
    floor = 32 * torch.finfo(dtype).eps * max(g.abs().max().item() for g in exact)
    for ours, theirs, right in zip(gradients(compiled, dtype), gradients(norm, dtype), exact, strict=True):
        assert (ours - right).abs().max() <= 2 * (theirs - right).abs().max() + floor


def gelu(x: torch.Tensor) -> torch.Tensor:
    y = F.gelu(x)
    return y - y[..., 1:].amax(-1, keepdim=True)


def gate(x: torch.Tensor) -> torch.Tensor:
    y = (torch.tanh(x) + 1) * 1.7
    return y - y[..., 1:].amax(-1, keepdim=True)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [gelu, gate])
def test_maxima_are_found_again(function: Callable[..., torch.Tensor], dtype: torch.dtype, target: str) -> None:
    """The backward pass computes again what was the largest of a row: by the formula that the forward pass took.

    Each number from 2^-6 to 8 is the largest of a row.
    """
    largest = torch.arange(2**15).short().view(dtype)
    largest = largest[(largest >= 2**-6) & (largest < 8)]
    x = torch.stack([torch.zeros_like(largest), largest, torch.zeros_like(largest)], 1).repeat(1, 5)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=kiln.backend, options={"fallback": False, "target": target})
    leaf = x.clone().requires_grad_()
    compiled(leaf).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [F.gelu, F.silu], ids=["gelu", "silu"])
def test_equal_elements_are_their_mean(
    function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype, target: str
) -> None:
    """Each channel holds one number: its distance from the mean is 0, and so is the gradient of its scale."""
    numbers = torch.linspace(0.1, 3, 64 * CHANNELS).to(dtype).view(64, CHANNELS, 1)
    scale = torch.ones(CHANNELS, dtype=dtype)

    def norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return F.instance_norm(function(x), weight=scale)

    torch._dynamo.reset()
    compiled = torch.compile(norm, backend=kiln.backend, options={"fallback": False, "target": target})
    x = numbers.expand(-1, -1, 64).contiguous().requires_grad_()
    scale.requires_grad_()
    compiled(x, scale).sum().backward()
    assert x.grad is not None and scale.grad is not None
    assert x.grad.abs().max() == 0
    assert scale.grad.abs().max() == 0


def test_values_of_two_kernels() -> None:
    """One kernel takes the maxima, another one computes what they are of again: the distance of one element is 0."""

    def columns(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * w + w
        return torch.exp(y - y.amax(0)), y.cumsum(0)

    torch.manual_seed(0)
    paths.reset()
    torch._dynamo.reset()
    compiled = torch.compile(columns, backend=kiln.backend, options={"fallback": False, "target": "tt-cpu"})
    found, _ = compiled(torch.randn(2048, 96), torch.randn(96))
    assert paths.taken()["any exact: the same in another kernel"]
    assert (found.amax(0) == 1).all()
