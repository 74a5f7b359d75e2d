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


def softmax(x: Tensor) -> Tensor:
    """Over the last dimension."""
    return torch.softmax(x, -1)


def log_softmax(x: Tensor) -> Tensor:
    """Over the last dimension."""
    return torch.log_softmax(x, -1)


_SUM = frozenset({"exp", "sub", "sum"})

# exp(x) / sum(exp(x)) without the maximum is not here: it overflows where softmax does not.
PATTERNS = [
    RewritePattern(
        "softmax-max", lambda x: _normalised(_exp_shifted(x)), softmax, _X, needs=_SUM | {"max"}, any_rank=True
    ),
    RewritePattern(
        "softmax-amax", lambda x: _normalised(_exp_amax(x)), softmax, _X, needs=_SUM | {"amax"}, any_rank=True
    ),
    RewritePattern(
        "log-softmax-max",
        lambda x: _log(x, x - x.max(dim=-1, keepdim=True).values),
        log_softmax,
        _X,
        needs=_SUM | {"max", "log"},
        any_rank=True,
    ),
    RewritePattern(
        "log-softmax-amax",
        lambda x: _log(x, x - x.amax(dim=-1, keepdim=True)),
        log_softmax,
        _X,
        needs=_SUM | {"amax", "log"},
        any_rank=True,
    ),
    RewritePattern(
        "log-softmax-logsumexp",
        lambda x: x - torch.logsumexp(x, dim=-1, keepdim=True),
        log_softmax,
        _X,
        needs=frozenset({"logsumexp", "sub"}),
        any_rank=True,
    ),
]
