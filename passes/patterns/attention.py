# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention written out: two batched products around a softmax, on tensors [batch, heads, length, width]."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from .registry import RewritePattern

Tensor = torch.Tensor

_QKV = (torch.empty(2, 3, 5, 8), torch.empty(2, 3, 7, 8), torch.empty(2, 3, 7, 8))
_SCALE = 0.3


# Masks may broadcast: they are read by pointwise ops alone.


def _plain() -> list[tuple]:
    return [_QKV]


def _scaled() -> list[tuple]:
    return [(*_QKV, _SCALE)]


def _biased() -> list[tuple]:
    return [(*_QKV, _SCALE, torch.empty(2, 3, 5, 7))]


def _filled() -> list[tuple]:
    return [(*_QKV, _SCALE, torch.empty(2, 3, 5, 7, dtype=torch.bool))]


def _single_precision(q: Tensor, *_: object) -> str | None:
    return "attention in float64: the kernel sums in float32" if q.dtype == torch.float64 else None


def _times(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return (q @ k.transpose(-2, -1)) * scale


def _over(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return (q @ k.transpose(-2, -1)) / scale


def _scaled_query(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return (q * scale) @ k.transpose(-2, -1)


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)


def _spellings(
    name: str, op: str, scores: Callable[[Tensor, Tensor, float], Tensor], factor: Callable[[float], float]
) -> list[RewritePattern]:
    """With an additive mask, with a boolean one, and without, for one way to write the scaled scores."""

    def entry(kind: str, pattern: Callable, replacement: Callable, examples: Callable, *needs: str) -> RewritePattern:
        wanted = frozenset({"bmm", "_softmax", op, *needs})
        return RewritePattern(
            f"attention-{name}{kind}",
            pattern,
            replacement,
            examples,
            condition=_single_precision,
            needs=wanted,
            whole=True,
        )

    minus_inf = float("-inf")
    return [
        entry(
            "-bias",
            lambda q, k, v, s, m: torch.softmax(scores(q, k, s) + m, -1) @ v,
            lambda q, k, v, s, m: _attend(q, k, v, factor(s), m),
            _biased,
            "add",
        ),
        entry(
            "-fill",
            lambda q, k, v, s, m: torch.softmax(scores(q, k, s).masked_fill(m, minus_inf), -1) @ v,
            lambda q, k, v, s, m: _attend(q, k, v, factor(s), m.logical_not()),
            _filled,
            "masked_fill",
        ),
        entry(
            "",
            lambda q, k, v, s: torch.softmax(scores(q, k, s), -1) @ v,
            lambda q, k, v, s: _attend(q, k, v, factor(s)),
            _scaled,
        ),
    ]


PATTERNS = [
    *_spellings("times", "mul", _times, lambda s: s),
    *_spellings("over", "div", _over, lambda s: 1.0 / s),
    *_spellings("query", "mul", _scaled_query, lambda s: s),
    RewritePattern(
        "attention-unscaled",
        lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1), -1) @ v,
        lambda q, k, v: _attend(q, k, v, 1.0),
        _plain,
        condition=_single_precision,
        whole=True,
        needs=frozenset({"bmm", "_softmax"}),
    ),
]
