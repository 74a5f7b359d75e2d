# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Layer norm and RMS norm written out, over the last dimension; group norm, over all behind [batch, group].

A group norm over one flat dimension is a layer norm; its weight and bias, which are applied to another view, stay
pointwise ops.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from .registry import RewritePattern

Tensor = torch.Tensor

_PLAIN = ((torch.empty(4, 8), 1e-5),)
_WEIGHT = ((torch.empty(4, 8), torch.empty(8), 1e-5),)
_AFFINE = ((torch.empty(4, 8), torch.empty(8), torch.empty(8), 1e-5),)


def _mean_sub(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def _sqrt(x: Tensor, eps: float) -> Tensor:
    d = _mean_sub(x)
    return d / torch.sqrt((d**2).mean(-1, keepdim=True) + eps)


def _rsqrt(x: Tensor, eps: float) -> Tensor:
    d = _mean_sub(x)
    return d * torch.rsqrt((d**2).mean(-1, keepdim=True) + eps)


def _var(x: Tensor, eps: float) -> Tensor:
    return _mean_sub(x) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + eps)


def _var_rsqrt(x: Tensor, eps: float) -> Tensor:
    return _mean_sub(x) * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + eps)


def _rms(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def _rms_divided(x: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def _last(*tensors: Tensor) -> str | None:
    x, *rest = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    if any(tensor.shape != x.shape[-1:] for tensor in rest):
        return "weight or bias is no vector over the last dimension"
    if any(tensor.dtype != x.dtype for tensor in rest):
        return "weight or bias has another dtype"
    return None


def _layer_norm(x: Tensor, w: Tensor | None, b: Tensor | None, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b, eps)


def _plain_layer_norm(x: Tensor, eps: float) -> Tensor:
    return _layer_norm(x, None, None, eps)


def _layer_norms(name: str, core: Callable[[Tensor, float], Tensor], *needs: str) -> list[RewritePattern]:
    """With weight and bias, and with neither."""

    def affine(x: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:
        return core(x, eps) * w + b

    return [
        RewritePattern(
            f"layer-norm-{name}-affine",
            affine,
            _layer_norm,
            _AFFINE,
            condition=_last,
            needs=frozenset({"mean>sub", *needs}),
            any_rank=True,
        ),
        RewritePattern(
            f"layer-norm-{name}",
            core,
            _plain_layer_norm,
            _PLAIN,
            needs=frozenset({"mean>sub", *needs}),
            any_rank=True,
        ),
    ]


def _rms_norm(x: Tensor, w: Tensor | None, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], w, eps)


def _plain_rms_norm(x: Tensor, eps: float) -> Tensor:
    return _rms_norm(x, None, eps)


def _rms_norms(name: str, core: Callable[[Tensor, float], Tensor], *needs: str) -> list[RewritePattern]:
    def weighted(x: Tensor, w: Tensor, eps: float) -> Tensor:
        return core(x, eps) * w

    return [
        RewritePattern(
            f"rms-norm-{name}-weight",
            weighted,
            _rms_norm,
            _WEIGHT,
            condition=_last,
            needs=frozenset({"mean>add", *needs}),
            any_rank=True,
            whole=True,
        ),
        RewritePattern(
            f"rms-norm-{name}",
            core,
            _plain_rms_norm,
            _PLAIN,
            needs=frozenset({"mean>add", *needs}),
            any_rank=True,
            whole=True,
        ),
    ]


def _squares(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    d = x - x.mean(dims, keepdim=True)
    return d, (d**2).mean(dims, keepdim=True)


def _variance(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return x - x.mean(dims, keepdim=True), x.var(dims, unbiased=False, keepdim=True)


def _group_norm(x: Tensor, eps: float) -> Tensor:
    return F.group_norm(x, x.shape[1], None, None, eps)


def _group_norms(
    name: str, statistics: Callable[[Tensor, tuple[int, ...]], tuple[Tensor, Tensor]], *needs: str
) -> list[RewritePattern]:
    """On [batch, groups, channels of a group, *space] with one and two dimensions of space."""

    def entry(kind: str, space: int, scaled: Callable[[Tensor, Tensor], Tensor], op: str) -> RewritePattern:
        dims = tuple(range(2, 3 + space))

        def pattern(x: Tensor, eps: float) -> Tensor:
            d, variance = statistics(x, dims)
            return scaled(d, variance + eps)

        def fits(x: Tensor, eps: float) -> str | None:
            return None if x.dim() == 3 + space else f"{3 + space} dimensions expected"

        return RewritePattern(
            f"group-norm-{name}{kind}-{space}d",
            pattern,
            _group_norm,
            ((torch.empty(2, 3, *(4, 5, 6)[: 1 + space]), 1e-5),),
            condition=fits,
            needs=frozenset({"mean>sub", op, *needs}),
            any_rank=True,
        )

    return [
        *(entry("", space, lambda d, v: d / torch.sqrt(v), "sqrt") for space in (1, 2)),
        *(entry("-rsqrt", space, lambda d, v: d * torch.rsqrt(v), "rsqrt") for space in (1, 2)),
    ]


PATTERNS = [
    *_layer_norms("sqrt", _sqrt, "sqrt"),
    *_layer_norms("rsqrt", _rsqrt, "rsqrt"),
    *_layer_norms("var", _var, "var", "sqrt"),
    *_layer_norms("var-rsqrt", _var_rsqrt, "var", "rsqrt"),
    *_rms_norms("rsqrt", _rms, "rsqrt"),
    *_rms_norms("sqrt", _rms_divided, "sqrt"),
    *_group_norms("squares", _squares),
    *_group_norms("var", _variance, "var"),
]
