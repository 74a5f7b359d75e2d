# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention whose scores are minus infinity by its inputs: rows of zeros, or NaN where softmax is written out."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

Tensor = torch.Tensor
INF = float("inf")


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def booleans(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.arange(k.shape[-2]) != 1
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(q.shape[-2], -1))


def numbers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.where(torch.arange(k.shape[-2]) == 1, -INF, 0.5).to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(q.shape[-2], -1))


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) * 0.25, -1) @ v


def first_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A whole block of keys has no finite score; the last keys have."""
    keys = torch.cat([torch.full_like(k, INF).repeat(1, 1, 40, 1), k], 2)
    return F.scaled_dot_product_attention(-q.clamp(min=0.1), keys, torch.cat([v.repeat(1, 1, 40, 1), v], 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("attend", [plain, causal, booleans, numbers, written_out, first_keys])
def test_rows_without_finite_scores(attend: Callable[..., Tensor], target: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 7, 16) for _ in range(3))
    q, k = q.abs(), k.abs() + 0.1
    q[0, 0, 2, 3] = -INF
    q, k, v = (x.to(dtype) for x in (q, k, v))
    compiled = torch.compile(attend, backend="kiln", options={"target": target, "fallback": False})
    found, expected = compiled(q, k, v), attend(q, k, v)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    if attend is not first_keys:
        row = expected[0, 0, 2]
        assert row.isnan().all() if attend is written_out else not row.any()
