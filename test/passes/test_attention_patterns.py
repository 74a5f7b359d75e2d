# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention in the spellings that models use: one kernel, and eager's numbers."""

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import kiln

Tensor = torch.Tensor
B, H, G, S, T, D = 2, 6, 2, 5, 7, 8


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def heads(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*sizes, dtype=dtype)


def repeat_kv(x: Tensor, n: int) -> Tensor:
    """As in transformers."""
    b, h, s, d = x.shape
    return x[:, :, None, :, :].expand(b, h, n, s, d).reshape(b, h * n, s, d)


def check(model: Callable[..., Tensor], *inputs: Tensor, kernels: int = 1, tolerance: float = 1e-5) -> None:
    """One attention kernel among ``kernels`` launches, and the result of eager in float64."""
    with torch.no_grad():
        found = kiln.explain(model, *inputs)
        assert found.fallbacks == [] and found.aten_calls == []
        kinds = [kernel.kind for graph in found.graphs for kernel in graph.kernels for _ in range(kernel.launches)]
        assert kinds.count("attention") == 1, found.to_text()
        assert len(kinds) == kernels, found.to_text()
        actual = torch.compile(model, backend="kiln", options={"fallback": False})(*inputs)
        expected = model(*(x.double() if x.is_floating_point() else x for x in inputs))
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "times": lambda q, k: (q @ k.transpose(-2, -1)) * 0.3,
    "over": lambda q, k: torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.size(-1)),
    "scaled query": lambda q, k: (q * D**-0.5) @ k.mT,
    "unscaled": lambda q, k: q @ k.permute(0, 1, 3, 2),
    "einsum": lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q, k) / D**0.5,
}


@pytest.mark.parametrize("name", list(SCORES))
def test_scores(name: str) -> None:
    q, k, v = heads(B, H, S, D), heads(B, H, T, D), heads(B, H, T, D)
    check(lambda q, k, v: torch.softmax(SCORES[name](q, k), -1) @ v, q, k, v)


@pytest.mark.parametrize("name", list(SCORES))
def test_additive_mask(name: str) -> None:
    """Broadcast, and with dropout as models in eval mode have it."""
    q, k, v = heads(B, H, S, D), heads(B, H, T, D), heads(B, H, T, D)
    mask = torch.zeros(B, 1, 1, T)
    mask[1, ..., 3:] = torch.finfo(torch.float32).min

    def model(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        p = F.softmax(SCORES[name](q, k) + mask, dim=-1, dtype=torch.float32).to(q.dtype)
        return torch.matmul(F.dropout(p, 0.1, training=False), v)

    check(model, q, k, v, mask)


@pytest.mark.parametrize("fill", [float("-inf"), -1e9, -1e4, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("spelling", ["masked_fill", "where"])
def test_filled_mask(spelling: str, fill: float) -> None:
    """A row that is masked altogether is NaN with -inf, and uniform with a number."""
    q, k, v = heads(B, H, S, D), heads(B, H, T, D), heads(B, H, T, D)
    seen = torch.rand(S, T) > 0.4
    seen[2] = False

    def model(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
        scores = (q @ k.transpose(-2, -1)) * 0.3
        scores = torch.where(seen, scores, fill) if spelling == "where" else scores.masked_fill(~seen, fill)
        return torch.softmax(scores, -1) @ v

    with torch.no_grad():
        actual = torch.compile(model, backend="kiln", options={"fallback": False})(q, k, v, seen)
        torch.testing.assert_close(actual, model(q, k, v, seen), rtol=1e-5, atol=1e-5, equal_nan=True)
        assert "attention" in [k.kind for k in kiln.explain(model, q, k, v, seen).graphs[-1].kernels]


def test_additive_mask_of_minus_infinity_alone() -> None:
    """NaN where softmax is written out, zeros where PyTorch's attention is called."""
    q, k, v = heads(B, H, S, D), heads(B, H, T, D), heads(B, H, T, D)
    mask = torch.zeros(S, T)
    mask[1] = float("-inf")
    check(lambda q, k, v, m: torch.softmax(q @ k.mT * 0.3 + m, -1) @ v, q, k, v, mask)
    check(F.scaled_dot_product_attention, q, k, v, mask)


CAUSAL: dict[str, Callable[[Tensor], Tensor]] = {
    "tril == 0": lambda s: s.masked_fill(torch.tril(torch.ones(T, T)) == 0, float("-inf")),
    "triu of bool": lambda s: s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf")),
    "triu of -inf": lambda s: s + torch.triu(torch.full((T, T), float("-inf")), diagonal=1),
    "arange": lambda s: torch.where(
        torch.arange(T)[:, None] >= torch.arange(T), s, torch.finfo(torch.float32).min
    ),
    "4 dimensions": lambda s: s.masked_fill(~torch.ones(1, 1, T, T, dtype=torch.bool).tril(), -1e9),
    "for each batch": lambda s: s.masked_fill(~torch.ones(T, T, dtype=torch.bool).tril().expand(B, 1, T, T), -1e9),
    "of all heads": lambda s: s.masked_fill(~torch.ones(B, H, T, T, dtype=torch.bool).tril(), float("-inf")),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CAUSAL))
def test_causal_masks_are_flags(name: str) -> None:
    """A mask that is known at compile time is no operand of the kernel."""
    q, k, v = heads(B, H, T, D), heads(B, H, T, D), heads(B, H, T, D)
    check(lambda q, k, v: torch.softmax(CAUSAL[name](q @ k.transpose(-2, -1) * 0.3), -1) @ v, q, k, v)


def test_a_mask_that_is_not_causal_is_read() -> None:
    q, k, v = heads(B, H, T, D), heads(B, H, T, D), heads(B, H, T, D)

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        hidden = torch.ones(T, T, dtype=torch.bool).triu(2)
        return torch.softmax((q @ k.mT).masked_fill(hidden, float("-inf")), -1) @ v

    check(model, q, k, v, kernels=2)


def test_masks_that_differ_from_head_to_head_are_read() -> None:
    q, k, v = heads(B, H, T, D), heads(B, H, T, D), heads(B, H, T, D)

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
        both = torch.stack([hidden, *[torch.zeros_like(hidden)] * (H - 1)])
        return torch.softmax((q @ k.mT).masked_fill(both, float("-inf")), -1) @ v

    check(model, q, k, v, kernels=2)


@pytest.mark.parametrize("repeat", [repeat_kv, lambda x, n: x.repeat_interleave(n, 1)], ids=["expand", "interleave"])
def test_repeated_heads(repeat: Callable[[Tensor, int], Tensor]) -> None:
    q, k, v = heads(B, H, S, D), heads(B, G, T, D), heads(B, G, T, D)

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = repeat(k, H // G), repeat(v, H // G)
        return torch.softmax(torch.matmul(q, k.transpose(2, 3)) * 0.3, -1) @ v

    check(model, q, k, v)


def test_einsum_of_heads_last() -> None:
    q, k, v = heads(B, S, H, D), heads(B, T, H, D), heads(B, T, H, D)

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        p = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.3, -1)
        return torch.einsum("bhqk,bkhd->bqhd", p, v)

    check(model, q, k, v)


def test_three_dimensions() -> None:
    q, k, v = heads(H, S, D), heads(H, T, D), heads(H, T, D)
    check(lambda q, k, v: torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.3, -1), v), q, k, v)
    zero = torch.zeros(H, S, T)
    check(
        lambda q, k, v, z: torch.softmax(torch.baddbmm(z, q, k.transpose(1, 2), beta=0, alpha=0.3), -1) @ v,
        q, k, v, zero,
    )  # fmt: skip


def test_packed_projections() -> None:
    """Queries, keys and values from one product, by chunk, view and transpose."""
    weight, bias, x = heads(3 * H * D, 16), heads(3 * H * D), heads(B, T, 16)

    def model(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (t.view(B, T, H, D).transpose(1, 2) for t in F.linear(x, weight, bias).chunk(3, -1))
        return (torch.softmax(q @ k.transpose(-2, -1) / D**0.5, -1) @ v).transpose(1, 2).reshape(B, T, H * D)

    check(model, x, weight, bias, kernels=2, tolerance=1e-4)


def test_concatenated_weights() -> None:
    """Weights that are concatenated at each call."""
    a, b, c, x = heads(H * D, 16), heads(G * D, 16), heads(G * D, 16), heads(B, T, 16)

    def model(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        parts = F.linear(x, torch.cat([a, b, c])).split([H * D, G * D, G * D], -1)
        q, k, v = (t.view(B, T, -1, D).transpose(1, 2) for t in parts)
        k, v = repeat_kv(k, H // G), repeat_kv(v, H // G)
        return (torch.softmax(q @ k.transpose(-2, -1) / D**0.5, -1) @ v).transpose(1, 2).reshape(B, T, H * D)

    check(model, x, a, b, c, kernels=3, tolerance=1e-4)


def test_softmax_written_out() -> None:
    q, k, v = heads(B, H, S, D), heads(B, H, T, D), heads(B, H, T, D)

    def model(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = q @ k.transpose(-2, -1) * 0.3
        e = torch.exp(s - s.amax(-1, keepdim=True))
        return (e / e.sum(-1, keepdim=True)) @ v

    check(model, q, k, v)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits(dtype: torch.dtype) -> None:
    q, k, v = (heads(B, H, n, D, dtype=dtype) for n in (S, T, T))
    mask = torch.zeros(B, 1, S, T, dtype=dtype)
    mask[0, :, :, 4:] = torch.finfo(dtype).min

    def model(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        p = torch.softmax(q @ k.transpose(2, 3) * 0.3 + mask, -1, dtype=torch.float32).to(q.dtype)
        return p @ v

    check(model, q, k, v, mask, tolerance=4e-2)


def test_keys_that_lie_transposed() -> None:
    q, kt, v = heads(B, H, S, D), heads(B, H, D, T), heads(B, H, T, D)
    with torch.no_grad():
        model = lambda q, kt, v: torch.softmax(q @ kt * 0.3, -1) @ v
        actual = torch.compile(model, backend="kiln", options={"fallback": False})(q, kt, v)
        torch.testing.assert_close(actual, model(q, kt, v))


def test_dynamic_sizes() -> None:
    def model(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-2, -1) * 0.3 + mask, -1) @ v

    compiled = torch.compile(model, backend="kiln", dynamic=True, options={"fallback": False})
    with torch.no_grad():
        for b, s, t in ((2, 5, 7), (3, 1, 9), (1, 33, 40)):
            inputs = heads(b, H, s, D), heads(b, H, t, D), heads(b, H, t, D), heads(b, 1, 1, t)
            torch.testing.assert_close(compiled(*inputs), model(*inputs))


def test_float64_is_left_as_it_is() -> None:
    q, k, v = (heads(B, H, n, D).double() for n in (S, T, T))
    model = lambda q, k, v: torch.softmax(q @ k.mT * 0.3, -1) @ v
    with torch.no_grad():
        actual = torch.compile(model, backend="kiln", options={"fallback": False})(q, k, v)
    torch.testing.assert_close(actual, model(q, k, v), rtol=1e-12, atol=1e-12)


def test_gradients_are_eagers() -> None:
    q, k, v = (heads(B, H, n, D).requires_grad_() for n in (S, T, T))
    model = lambda q, k, v: (torch.softmax(q @ k.mT * 0.3, -1) @ v).sin().sum()
    expected = torch.autograd.grad(model(q, k, v), (q, k, v))
    actual = torch.autograd.grad(torch.compile(model, backend="kiln")(q, k, v), (q, k, v))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


MASKS: dict[str, Callable[[Tensor, Tensor], Tensor | None]] = {
    "none": lambda q, m: None,
    "boolean": lambda q, m: (m[:, None, None, :] > 0).expand(-1, 1, q.shape[2], -1),
    "zeros and minus infinities": lambda q, m: torch.where(m[:, None, None, :] > 0, 0.0, float("-inf")).to(q.dtype),
    "numbers": lambda q, m: m[:, None, None, :].to(q.dtype),
}


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("mask", list(MASKS))
def test_attention_that_pytorch_takes_apart(mask: str, dtype: torch.dtype, target: str) -> None:
    """In f32 with each operand scaled: read as it was, rows without keys zeros, grouped heads not repeated."""
    q, k, v = heads(B, S, H, D, dtype=dtype), heads(B, G, T, D, dtype=dtype), heads(B, G, T, D, dtype=dtype)
    keys = torch.randn(B, T)
    keys[1] = -1.0

    def model(q: Tensor, k: Tensor, v: Tensor, keys: Tensor) -> Tensor:
        q = q.transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v, MASKS[mask](q, keys), enable_gqa=True)

    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        expected = model(q.double(), k.double(), v.double(), keys.double())
        eager = model(q, k, v, keys)
        found = kiln.explain(model, q, k, v, keys)
        kernels = [kernel for graph in found.graphs for kernel in graph.kernels]
        assert found.aten_calls == [] and [x.kind for x in kernels if x.kind != "pointwise"] == ["attention"]
        torch._dynamo.reset()
        options = {"fallback": False, "target": target}
        actual = torch.compile(model, backend="kiln", options=options)(q, k, v, keys)
    assert actual.dtype == dtype and actual.stride() == eager.stride()
    scale = expected.abs().max()
    error, of_eager = ((x.double() - expected).abs().max() / scale for x in (actual, eager))
    assert error <= 2 * of_eager + 1e-6


def test_large_heads_stay_products() -> None:
    """No multiprocessor holds a tile of them: 4096 elements of f32 want 512 KiB of shared memory."""
    model = lambda q, k, v: torch.softmax(q @ k.mT * 0.015625, -1) @ v
    check(model, *(torch.randn(2, n, 512) for n in (S, T, T)))
    large = [torch.randn(2, n, 4096) for n in (S, T, T)]
    with torch.no_grad():
        found = kiln.explain(model, *large)
        actual = torch.compile(model, backend="kiln", options={"fallback": False})(*large)
    assert found.fallbacks == []
    assert "attention" not in [kernel.kind for graph in found.graphs for kernel in graph.kernels]
    expected = model(*(x.double() for x in large)).float()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("has_mask", [False, True])
def test_heads_of_one_product_with_any_number_of_rows(has_mask: bool) -> None:
    """Queries, keys and values are slices of one product: their strides are multiples of the number of rows."""

    def model(x: Tensor, mask: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = x.view(b, t, 3, H, c // 3 // H).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(D)
        scores = scores + mask[:, None, None] if has_mask else scores
        return (F.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, t, c // 3)

    x, mask = torch.randn(B, T, 3 * H * D), torch.randn(B, T)
    torch._dynamo.mark_dynamic(x, 1)
    torch._dynamo.mark_dynamic(mask, 1)
    check(model, x, mask)
