# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention written out: two batched products around a softmax.

The key is an argument in the form that the product reads, [..., width, length]: however it came to be transposed
(``transpose``, ``permute``, ``einsum``), the replacement transposes it back and the two views cancel. Repeated key and
value heads (grouped queries), constant masks, and conversions to f32 and back are no matter of these patterns: what
makes them is looked through when ``kiln.attention`` is there. Batches of more dimensions are products of as many in the
normal form, so that one pattern, of three, stands for all ranks.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
import torch.nn.functional as F

from .attention_op import written_out_attention
from .registry import RewritePattern

Tensor = torch.Tensor

_SCALE = 0.3

_LARGEST_HEAD = 512
"""Elements. A kernel keeps a tile of queries and its sums at the whole head size: beyond this, half of the registers of
a multiprocessor. Two products with a softmax between them need no such tile."""


def _tensors(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Query, transposed key, value."""
    q, k, v = (torch.empty(3, *size, dtype=dtype) for size in ((5, 8), (8, 7), (7, 8)))
    return q, k, v


def _fits(q: Tensor, kt: Tensor, v: Tensor, *rest: object) -> str | None:
    if q.dtype == torch.float64:
        return "attention in float64: the kernel sums in float32"
    if not q.dtype == kt.dtype == v.dtype:
        return "query, key and value have different dtypes"
    if not isinstance(q.shape[-1], int) or not isinstance(v.shape[-1], int):
        return "a head size that is known only at run time"
    if max(q.shape[-1], v.shape[-1]) > _LARGEST_HEAD:
        return f"heads of more than {_LARGEST_HEAD} elements"
    if not 3 <= q.dim() == kt.dim() == v.dim() or not q.shape[:-2] == kt.shape[:-2] == v.shape[:-2]:
        return "the products are not of the same batches"
    if any(isinstance(mask, Tensor) and mask.dim() > q.dim() for mask in rest):
        return "a mask of more dimensions than the scores"
    return None


def _times(q: Tensor, kt: Tensor, scale: float) -> Tensor:
    return torch.bmm(q, kt) * scale


def _over(q: Tensor, kt: Tensor, scale: float) -> Tensor:
    return torch.bmm(q, kt) / scale


def _scaled_query(q: Tensor, kt: Tensor, scale: float) -> Tensor:
    return torch.bmm(q * scale, kt)


def _unscaled(q: Tensor, kt: Tensor) -> Tensor:
    return torch.bmm(q, kt)


def _masked(q: Tensor, kt: Tensor, v: Tensor, scale: float, mask: Tensor | None, fill: float = float("-inf")) -> Tensor:
    return written_out_attention(q, kt.transpose(-2, -1), v, mask, scale, fill)


def _plain(q: Tensor, kt: Tensor, v: Tensor, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(q, kt.transpose(-2, -1), v, scale=scale)


def _softmax(scores: Tensor) -> Tensor:
    return torch.softmax(scores, -1)


def _wide_softmax(scores: Tensor) -> Tensor:
    """In f32, for scores of 16 bits."""
    return torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)


def _spellings(
    name: str,
    op: str,
    scores: Callable[..., Tensor],
    factor: Callable[..., float],
    softmax: Callable[[Tensor], Tensor] = _softmax,
    dtype: torch.dtype = torch.float32,
    element: str = "",
) -> list[RewritePattern]:
    """With an additive mask, with one that fills, and without; ``scores`` takes the scale if ``op`` is not empty."""
    scale = (_SCALE,) if op else ()

    def with_bias(q: Tensor, kt: Tensor, v: Tensor, m: Tensor, *s: float) -> Tensor:
        return torch.bmm(softmax(scores(q, kt, *s) + m), v)

    def as_bias(q: Tensor, kt: Tensor, v: Tensor, m: Tensor, *s: float) -> Tensor:
        return _masked(q, kt, v, factor(*s), m)

    def with_fill(q: Tensor, kt: Tensor, v: Tensor, m: Tensor, c: float, *s: float) -> Tensor:
        return torch.bmm(softmax(scores(q, kt, *s).masked_fill(m, c)), v)

    def as_fill(q: Tensor, kt: Tensor, v: Tensor, m: Tensor, c: float, *s: float) -> Tensor:
        return _masked(q, kt, v, factor(*s), m.logical_not(), c)

    def with_where(q: Tensor, kt: Tensor, v: Tensor, m: Tensor, c: float, *s: float) -> Tensor:
        return torch.bmm(softmax(torch.where(m, scores(q, kt, *s), c)), v)

    def as_where(q: Tensor, kt: Tensor, v: Tensor, m: Tensor, c: float, *s: float) -> Tensor:
        return _masked(q, kt, v, factor(*s), m, c)

    def plain(q: Tensor, kt: Tensor, v: Tensor, *s: float) -> Tensor:
        return torch.bmm(softmax(scores(q, kt, *s)), v)

    def as_plain(q: Tensor, kt: Tensor, v: Tensor, *s: float) -> Tensor:
        return _masked(q, kt, v, factor(*s), None)

    def entry(
        kind: str,
        pattern: Callable[..., Tensor],
        replacement: Callable[..., Tensor],
        extra: tuple[Any, ...],
        *needs: str,
    ) -> RewritePattern:
        return RewritePattern(
            f"attention-{name}{kind}",
            pattern,
            replacement,
            ((*_tensors(dtype), *extra, *scale),),
            condition=_fits,
            needs=frozenset({"matmul", "_softmax", op, element, *needs} - {""}),
            whole=True,
            any_rank=True,
        )

    added = (torch.empty(3, 5, 7, dtype=dtype),)
    filled = (torch.empty(3, 5, 7, dtype=torch.bool), -10000.0)
    return [
        entry(
            "-bias",
            with_bias,
            as_bias,
            added,
            "add",
        ),
        entry(
            "-fill",
            with_fill,
            as_fill,
            filled,
            "masked_fill",
        ),
        entry(
            "-where",
            with_where,
            as_where,
            filled,
            "where",
        ),
        entry(
            "",
            plain,
            as_plain,
            (),
        ),
    ]


def _safe_softmax(scores: Tensor) -> Tensor:
    return torch.ops.aten._safe_softmax.default(scores, -1)


def _halves(q: Tensor, kt: Tensor, left: float, right: float) -> Tensor:
    return torch.bmm(torch.ops.aten.mul.Scalar(q, left), torch.ops.aten.mul.Scalar(kt, right))


def _taken_apart(name: str, scores: Callable[..., Tensor], factors: tuple[float, ...]) -> list[RewritePattern]:
    """``scaled_dot_product_attention`` as PyTorch takes it apart where no fused kernel takes its arguments
    (``at::_scaled_dot_product_attention_math``): each operand has half of the scale, masks are added, and rows without
    any key are zeros, as in the op itself.
    """

    def with_bias(q: Tensor, kt: Tensor, v: Tensor, m: Tensor, *s: float) -> Tensor:
        return torch.bmm(_safe_softmax(scores(q, kt, *s) + m), v)

    def as_bias(q: Tensor, kt: Tensor, v: Tensor, m: Tensor, *s: float) -> Tensor:
        return F.scaled_dot_product_attention(q, kt.transpose(-2, -1), v, m.to(q.dtype), scale=float(prod(s)))

    def plain(q: Tensor, kt: Tensor, v: Tensor, *s: float) -> Tensor:
        return torch.bmm(_safe_softmax(scores(q, kt, *s)), v)

    def as_plain(q: Tensor, kt: Tensor, v: Tensor, *s: float) -> Tensor:
        return _plain(q, kt, v, float(prod(s)))

    def entry(
        kind: str,
        pattern: Callable[..., Tensor],
        replacement: Callable[..., Tensor],
        *extra: Tensor,
        needs: tuple[str, ...] = (),
    ) -> RewritePattern:
        return RewritePattern(
            f"attention-{name}{kind}",
            pattern,
            replacement,
            ((*_tensors(torch.float32), *extra, *factors),),
            condition=_fits,
            needs=frozenset({"matmul", "_safe_softmax", *needs}),
            whole=True,
            any_rank=True,
        )

    return [
        entry(
            "-bias",
            with_bias,
            as_bias,
            torch.empty(3, 5, 7),
            needs=("add>_safe_softmax",),
        ),
        entry(
            "",
            plain,
            as_plain,
        ),
    ]


def _all_spellings(
    name: str, op: str, scores: Callable[..., Tensor], factor: Callable[..., float]
) -> list[RewritePattern]:
    """With softmax in the tensors' dtype, and in f32."""
    return [
        *_spellings(name, op, scores, factor),
        *_spellings(f"{name}-bf16", op, scores, factor, _wide_softmax, torch.bfloat16, "bf16"),
        *_spellings(f"{name}-f16", op, scores, factor, _wide_softmax, torch.float16, "f16"),
    ]


def _itself(scale: float) -> float:
    return scale


def _inverse(scale: float) -> float:
    return 1.0 / scale


# Those with a scale come first: without it, the scaled scores' product would not be part of the match.
PATTERNS = [
    *_all_spellings("times", "mul", _times, _itself),
    *_all_spellings("over", "div", _over, _inverse),
    *_all_spellings("query", "mul", _scaled_query, _itself),
    *_all_spellings("unscaled", "", _unscaled, lambda: 1.0),
    *_taken_apart("math", _halves, (_SCALE, _SCALE)),
    *_taken_apart("math-unscaled", _unscaled, ()),
]
