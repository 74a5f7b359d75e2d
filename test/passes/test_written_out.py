# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What models write out, beside attention: norms, rotary embeddings, linear layers, tensors taken apart."""

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

import kiln

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def check(model: Callable[..., Tensor], *inputs: Tensor, kernels: int | None = None) -> dict[str, int]:
    """Eager's numbers in float64, ``kernels`` launches if given; returns the patterns that matched."""
    with torch.no_grad():
        found = kiln.explain(model, *inputs)
        assert found.fallbacks == [] and found.aten_calls == []
        if kernels is not None:
            assert sum(k.launches for graph in found.graphs for k in graph.kernels) == kernels, found.to_text()
        actual = torch.compile(model, backend="kiln", options={"fallback": False})(*inputs)
        expected = model(*(x.double() for x in inputs))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)
    return found.graphs[-1].rewrites


C = math.sqrt(2 / math.pi)
ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "gelu of GPT-2": (lambda x: 0.5 * x * (1.0 + torch.tanh(C * (x + 0.044715 * torch.pow(x, 3.0)))), "gelu-tanh-pow"),
    "gelu, fast": (lambda x: 0.5 * x * (1.0 + torch.tanh(x * C * (1.0 + 0.044715 * x * x))), "gelu-tanh-factored"),
    "gelu, halved last": (lambda x: 0.5 * (x * (1 + torch.tanh(C * (x + 0.044715 * x**3)))), "gelu-tanh-outer"),
    "gelu of BERT": (lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), "gelu-erf"),
    "gelu, times": (lambda x: 0.5 * (x * (1 + torch.erf(x * 0.7071067811865476))), "gelu-erf-middle-times"),
    "silu": (lambda x: torch.sigmoid(x) * x, "silu"),
    "silu, divided": (lambda x: x / (1 + torch.exp(-x)), "silu-divided"),
    "silu, reciprocal": (lambda x: x * (1 / (1 + torch.exp(-x))), "silu-reciprocal"),
    "hardswish": (lambda x: x * F.relu6(x + 3) / 6, "hardswish-relu6"),
    "hardswish, times": (lambda x: x * F.relu6(x + 3) * (1 / 6), "hardswish-relu6-times"),
    "hardswish, clamp": (lambda x: x * (torch.clamp(x + 3, min=0, max=6) / 6), "hardswish-clamp-first"),
    "hardswish, line": (lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1), "hardswish-clamped-line"),
    "hardswish, hardsigmoid": (lambda x: x * F.hardsigmoid(x), "hardswish-hardsigmoid"),
}


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_activation(name: str) -> None:
    model, pattern = ACTIVATIONS[name]
    assert check(model, 3 * torch.randn(5, 33), kernels=1) == {pattern: 1}


def affine(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return y.view(x.shape) * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def flat(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = x.reshape(x.shape[0], 4, -1)
    y = (y - y.mean(-1, keepdim=True)) / torch.sqrt(y.var(-1, unbiased=False, keepdim=True) + 1e-5)
    return affine(y, x, weight, bias)


def by_group(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    n, c, h, w = x.shape
    y = x.view(n, 4, c // 4, h, w)
    y = (y - y.mean((2, 3, 4), keepdim=True)) * torch.rsqrt(y.var((2, 3, 4), unbiased=False, keepdim=True) + 1e-5)
    return affine(y, x, weight, bias)


def squares(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    n, c, h, w = x.shape
    y = x.view(n, 4, c // 4, h * w)
    d = y - y.mean([-2, -1], keepdim=True)
    return affine(d / torch.sqrt((d * d).mean([-2, -1], keepdim=True) + 1e-5), x, weight, bias)


@pytest.mark.parametrize(
    ("model", "pattern"),
    [(flat, "layer-norm-var"), (by_group, "group-norm-var-rsqrt-2d"), (squares, "group-norm-squares-1d")],
)
def test_group_norm(model: Callable[..., Tensor], pattern: str) -> None:
    assert check(model, torch.randn(2, 12, 5, 7), torch.randn(12), torch.randn(12)) == {pattern: 1}


def rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


ROTARY: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "rotate_half": lambda x, cos, sin: x * cos + rotate_half(x) * sin,
    "chunks": lambda x, cos, sin: torch.cat(
        [x.chunk(2, -1)[0] * cos[..., :4] - x.chunk(2, -1)[1] * sin[..., :4],
         x.chunk(2, -1)[1] * cos[..., :4] + x.chunk(2, -1)[0] * sin[..., :4]], -1),
    "interleaved": lambda x, cos, sin: torch.stack(
        (x[..., ::2] * cos[..., ::2] - x[..., 1::2] * sin[..., ::2],
         x[..., ::2] * sin[..., ::2] + x[..., 1::2] * cos[..., ::2]), -1).flatten(-2),
    "interleaved rotation": lambda x, cos, sin: x * cos
    + torch.stack((-x[..., 1::2], x[..., ::2]), -1).reshape(x.shape) * sin,
}  # fmt: skip


@pytest.mark.parametrize("name", list(ROTARY))
def test_rotary_embedding_is_one_kernel(name: str) -> None:
    check(ROTARY[name], torch.randn(2, 3, 5, 8), torch.randn(5, 8), torch.randn(5, 8), kernels=1)


def test_rotary_embedding_of_queries_and_keys_is_one_kernel() -> None:
    def model(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        both = [x * cos + rotate_half(x) * sin for x in (q, k)]
        return torch.cat([x.flatten(1, 2) for x in both], 1)

    check(model, torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(5, 8), torch.randn(5, 8), kernels=1)


LINEAR: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "mm + bias": lambda x, w, b: torch.mm(x, w.t()) + b,
    "bias + matmul": lambda x, w, b: b + x @ w.T,
    "addmm": lambda x, w, b: torch.addmm(b, x, w.t()),
    "addmm, scaled": lambda x, w, b: torch.addmm(b, x, w.t(), beta=0.5, alpha=2.0),
    "linear": torch.nn.functional.linear,
    "einsum": lambda x, w, b: torch.einsum("mk,nk->mn", x, w) + b,
}


@pytest.mark.parametrize("name", list(LINEAR))
def test_linear_with_bias_is_one_kernel(name: str) -> None:
    check(LINEAR[name], torch.randn(7, 16), torch.randn(9, 16), torch.randn(9), kernels=1)


APART: dict[str, Callable[[Tensor], Tensor]] = {
    "slices": lambda x: torch.cat([x[..., :3], x[..., 3:5], x[..., 5:]], -1),
    "negative bounds": lambda x: torch.cat([x[..., :-3], x[..., -3:]], -1),
    "split": lambda x: torch.cat(x.split([3, 2, 3], -1), -1),
    "chunk": lambda x: torch.cat(x.chunk(2, 1), 1),
    "unbind": lambda x: torch.stack(x.unbind(1), 1),
}


@pytest.mark.parametrize("name", list(APART))
def test_what_is_put_together_again_is_itself(name: str) -> None:
    with torch.no_grad():
        found = kiln.explain(lambda x: APART[name](x).sin(), torch.randn(2, 4, 8))
    (kernel,) = found.graphs[0].kernels
    assert kernel.ops == ("sin",)
    check(lambda x: APART[name](x).sin(), torch.randn(2, 4, 8), kernels=1)


PERMUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "swapped": lambda x: torch.cat([x[..., 5:], x[..., :5]], -1),
    "another order": lambda x: torch.cat(x.split([3, 2, 3], -1)[::-1], -1),
    "twice": lambda x: torch.cat([x[..., :5], x[..., :5]], -1),
    "not all": lambda x: torch.cat([x[..., :3], x[..., 3:5]], -1),
    "another dimension": lambda x: torch.cat([x[:, :1], x[:, 1:]], 2) if x.shape[1] == 2 else x,
}


@pytest.mark.parametrize("name", list(PERMUTED))
def test_other_orders_are_read_in_place(name: str) -> None:
    """One kernel, which reads the pieces where they are."""
    check(lambda x: PERMUTED[name](x).sin(), torch.randn(3, 2, 8), kernels=1)


def test_a_part_of_a_concatenation_is_read_alone() -> None:
    check(lambda x, y: torch.cat([x, y], 1)[:, 5:7].sin(), torch.randn(3, 4), torch.randn(3, 6), kernels=1)
    result = torch.compile(lambda x, y: torch.cat([x, y], 1)[:, :4], backend="kiln")
    x, y = torch.zeros(3, 4), torch.zeros(3, 6)
    result(x, y).fill_(1)
    assert not x.any()
