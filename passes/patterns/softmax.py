# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Softmax and log-softmax written out, over the last dimension."""

import torch

from .registry import RewritePattern

Tensor = torch.Tensor
_X = ((torch.empty(4, 8),),)


def _exp_shifted(x: Tensor) -> Tensor:
    return torch.exp(x - x.max(dim=-1, keepdim=True).values)


def _exp_amax(x: Tensor) -> Tensor:
    return torch.exp(x - x.amax(dim=-1, keepdim=True))


def _normalised(e: Tensor) -> Tensor:
    return e / e.sum(dim=-1, keepdim=True)


def _log(x: Tensor, shifted: Tensor) -> Tensor:
    return shifted - torch.log(torch.exp(shifted).sum(dim=-1, keepdim=True))


def _softmax_max(x: Tensor) -> Tensor:
    return _normalised(_exp_shifted(x))


def _softmax_amax(x: Tensor) -> Tensor:
    return _normalised(_exp_amax(x))


def _log_max(x: Tensor) -> Tensor:
    return _log(x, x - x.max(dim=-1, keepdim=True).values)


def _log_amax(x: Tensor) -> Tensor:
    return _log(x, x - x.amax(dim=-1, keepdim=True))


def _less_logsumexp(x: Tensor) -> Tensor:
    return x - torch.logsumexp(x, dim=-1, keepdim=True)


def softmax(x: Tensor) -> Tensor:
    """Over the last dimension."""
    return torch.softmax(x, -1)


def log_softmax(x: Tensor) -> Tensor:
    """Over the last dimension."""
    return torch.log_softmax(x, -1)


_SUM = frozenset({"exp", "sub", "sum"})

# exp(x) / sum(exp(x)) without the maximum is not here: it overflows where softmax does not.
PATTERNS = [
    RewritePattern("softmax-max", _softmax_max, softmax, _X, needs=_SUM | {"max"}, any_rank=True),
    RewritePattern("softmax-amax", _softmax_amax, softmax, _X, needs=_SUM | {"amax"}, any_rank=True),
    RewritePattern(
        "log-softmax-max",
        _log_max,
        log_softmax,
        _X,
        needs=_SUM | {"max", "log"},
        any_rank=True,
    ),
    RewritePattern(
        "log-softmax-amax",
        _log_amax,
        log_softmax,
        _X,
        needs=_SUM | {"amax", "log"},
        any_rank=True,
    ),
    RewritePattern(
        "log-softmax-logsumexp",
        _less_logsumexp,
        log_softmax,
        _X,
        needs=frozenset({"logsumexp", "sub"}),
        any_rank=True,
    ),
]
