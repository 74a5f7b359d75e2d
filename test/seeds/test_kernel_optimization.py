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

import kiln
from kiln.frontend.report import collect

pytestmark = pytest.mark.filterwarnings("error:kiln.*:RuntimeWarning")


def test_linear_then_relu() -> None:
    linear = nn.Linear(64, 32)
    compiled = torch.compile(lambda x: torch.relu(linear(x)), backend="kiln")
    x = torch.randn(16, 64)
    with torch.no_grad():
        same(compiled(x), torch.relu(linear(x)))
        (graph,) = kiln.explain(lambda x: torch.relu(linear(x)), x).graphs
    assert [kernel.kind for kernel in graph.kernels] == ["matmul"]


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


def test_shape_specialization_and_dynamic_shapes() -> None:
    """Static sizes are compiled anew when they change, dynamic ones are not."""
    for dynamic, compilations in ((False, 3), (True, 1)):
        torch._dynamo.reset()
        with collect() as reports:
            compiled = torch.compile(lambda x: torch.relu(x) * 2, backend="kiln", dynamic=dynamic)
            for rows in (4, 7, 12):
                x = torch.randn(rows, 32)
                same(compiled(x), torch.relu(x) * 2)
        assert len(reports) == compilations


def branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return torch.relu(x)
    return torch.sin(x)


def test_partial_and_complete_compilation() -> None:
    """A condition on data breaks the graph; with `fullgraph` it is an error, or a `torch.cond`."""
    x = torch.randn(8)
    compiled = torch.compile(branch, backend="kiln")
    for value in (x.abs(), -x.abs()):
        same(compiled(value), branch(value))
    assert torch._dynamo.explain(branch)(x).graph_break_count == 1
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(branch, backend="kiln", fullgraph=True)(x)

    def traceable(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.relu, torch.sin, (x,))

    complete = torch.compile(traceable, backend="kiln", fullgraph=True)
    for value in (x.abs(), -x.abs()):
        same(complete(value), branch(value))
