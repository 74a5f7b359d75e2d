# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The torch.compile code samples of "Inside torch.compile's Kernel Optimization" (A. Sarkar), run with ``backend="kiln"``.

Samples for a GPU run on the CPU, with smaller sizes where theirs would take seconds; a comment says so. Samples that
use CUDA kernels or Inductor's internals are left out.
"""

from typing import Any

import pytest
import torch
import torch.nn as nn
from sample_support import same

import kiln  # noqa: F401 - makes backend="kiln" known in a checkout that is not installed

pytestmark = pytest.mark.filterwarnings("error:kiln.*:RuntimeWarning")


def test_linear_then_relu() -> None:
    linear = nn.Linear(64, 32)
    compiled = torch.compile(lambda x: torch.relu(linear(x)), backend="kiln")
    x = torch.randn(16, 64)
    with torch.no_grad():
        same(compiled(x), torch.relu(linear(x)))


def test_specialised_convolution() -> None:
    conv = nn.Conv2d(3, 8, 3, stride=1)
    compiled = torch.compile(conv, backend="kiln", dynamic=False)
    x = torch.randn(64, 3, 8, 8)
    with torch.no_grad():
        same(compiled(x), conv(x))


def test_layer_norm_and_its_decomposition() -> None:
    norm, linear = nn.LayerNorm(32), nn.Linear(16, 32)

    def decomposed(x: torch.Tensor) -> torch.Tensor:
        y = linear(x)
        mean = y.mean(-1, keepdim=True)
        var = y.var(-1, unbiased=False, keepdim=True)
        return (y - mean) / torch.sqrt(var + norm.eps) * norm.weight + norm.bias

    x = torch.randn(4, 16)
    with torch.no_grad():
        same(torch.compile(lambda x: norm(linear(x)), backend="kiln")(x), norm(linear(x)))
        same(torch.compile(decomposed, backend="kiln")(x), norm(linear(x)))


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "max-autotune", "dynamic": False, "fullgraph": True},
        {"mode": "reduce-overhead", "dynamic": True, "fullgraph": False},
        {"mode": "default", "dynamic": True, "fullgraph": False},
    ],
    ids=["production", "development", "variable-lengths"],
)
def test_common_configurations(options: dict[str, Any]) -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).eval()
    compiled = torch.compile(model, backend="kiln", **options)
    with torch.no_grad():
        for rows in (4, 7, 12):
            x = torch.randn(rows, 32)
            same(compiled(x), model(x))
