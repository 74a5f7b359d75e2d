# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Activations written out."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from .registry import RewritePattern

Tensor = torch.Tensor

_C = math.sqrt(2 / math.pi)
_X = ((torch.empty(4, 8),),)


def _pattern(
    name: str, pattern: Callable[[Tensor], Tensor], replacement: Callable[[Tensor], Tensor], *needs: str
) -> RewritePattern:
    return RewritePattern(name, pattern, replacement, _X, needs=frozenset(needs), any_rank=True)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by the tanh approximation."""
    return F.gelu(x, approximate="tanh")


def gelu_erf(x: Tensor) -> Tensor:
    """GELU."""
    return F.gelu(x)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return F.silu(x)


def hardswish(x: Tensor) -> Tensor:
    """x * relu6(x + 3) / 6."""
    return F.hardswish(x)


def _cube(x: Tensor) -> Tensor:
    return x**3


def _scaled_cube(x: Tensor) -> Tensor:
    return 0.044715 * x * x * x


def _approximate(x: Tensor) -> Tensor:
    return 1.0 + torch.tanh(_C * (x + 0.044715 * _cube(x)))


def _approximate_factored(x: Tensor) -> Tensor:
    return 1.0 + torch.tanh(_C * x * (1.0 + 0.044715 * x * x))


def _exact(x: Tensor) -> Tensor:
    return 1.0 + torch.erf(x / math.sqrt(2.0))


def _exact_times(x: Tensor) -> Tensor:
    return 1.0 + torch.erf(x * math.sqrt(0.5))


# Spellings differ in where the 0.5 stands and how the cube is written.
PATTERNS = [
    _pattern("gelu-tanh-pow", lambda x: 0.5 * x * _approximate(x), gelu_tanh, "tanh>add", "mul"),  # transformers'
    _pattern(
        "gelu-tanh", lambda x: 0.5 * x * (1.0 + torch.tanh(_C * (x + _scaled_cube(x)))), gelu_tanh, "tanh>add", "mul"
    ),
    _pattern("gelu-tanh-last", lambda x: x * (0.5 * _approximate(x)), gelu_tanh, "tanh>add", "mul"),
    _pattern("gelu-tanh-factored", lambda x: 0.5 * x * _approximate_factored(x), gelu_tanh, "tanh>add", "mul"),
    _pattern("gelu-tanh-outer", lambda x: 0.5 * (x * _approximate(x)), gelu_tanh, "tanh>add", "mul"),
    _pattern("gelu-erf", lambda x: 0.5 * x * _exact(x), gelu_erf, "erf>add", "mul"),
    _pattern("gelu-erf-times", lambda x: 0.5 * x * _exact_times(x), gelu_erf, "erf>add", "mul"),
    _pattern("gelu-erf-last", lambda x: x * (0.5 * _exact(x)), gelu_erf, "erf>add", "mul"),
    _pattern("gelu-erf-middle", lambda x: x * _exact(x) * 0.5, gelu_erf, "erf>add", "mul"),
    _pattern("gelu-erf-last-times", lambda x: x * (0.5 * _exact_times(x)), gelu_erf, "erf>add", "mul"),
    _pattern("gelu-erf-middle-times", lambda x: x * _exact_times(x) * 0.5, gelu_erf, "erf>add", "mul"),
    _pattern("silu", lambda x: x * torch.sigmoid(x), silu, "sigmoid>mul"),
    _pattern("silu-divided", lambda x: x / (1.0 + torch.exp(-x)), silu, "exp", "neg", "div"),
    _pattern("silu-reciprocal", lambda x: x * (1.0 / (1.0 + torch.exp(-x))), silu, "exp", "neg", "reciprocal", "mul"),
    _pattern("hardswish-clamp", lambda x: x * torch.clamp(x + 3.0, 0.0, 6.0) / 6.0, hardswish, "clamp", "mul"),
    _pattern("hardswish-relu6", lambda x: x * F.relu6(x + 3.0) / 6.0, hardswish, "hardtanh", "mul"),
    _pattern("hardswish-clamp-first", lambda x: x * (torch.clamp(x + 3.0, 0.0, 6.0) / 6.0), hardswish, "clamp", "mul"),
    _pattern("hardswish-clamped-line", lambda x: x * torch.clamp(x / 6.0 + 0.5, 0.0, 1.0), hardswish, "clamp", "mul"),
    _pattern("hardswish-hardsigmoid", lambda x: x * F.hardsigmoid(x), hardswish, "hardsigmoid>mul"),
    _pattern("hardswish-relu6-times", lambda x: x * F.relu6(x + 3.0) * (1.0 / 6.0), hardswish, "hardtanh", "mul"),
    _pattern("hardswish-relu6-first", lambda x: x * (F.relu6(x + 3.0) / 6.0), hardswish, "hardtanh", "mul"),
]
