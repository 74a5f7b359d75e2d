# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The torch.compile code samples of "Graph-Level Optimizations" (ML compilers course, day 17), run with ``backend="kiln"``.

Samples for a GPU run on the CPU, with smaller sizes where theirs would take seconds; a comment says so. Samples that
use CUDA kernels or Inductor's internals are left out.
"""

import operator
from typing import Any

import pytest
import torch
import torch.nn as nn
from sample_support import same
from torch import fx

import kiln  # noqa: F401 - makes backend="kiln" known in a checkout that is not installed

pytestmark = pytest.mark.filterwarnings("error:kiln.*:RuntimeWarning")


class WithConstants(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.tensor(2.0) * torch.tensor(3.0)  # constant!
        return x * scale


class HasDeadCode(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.relu(x)
        b = torch.exp(x)  # computed but never used!  # noqa: F841 - a line of the document
        return torch.log(a)


class HasCSE(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.relu(x)
        b = torch.relu(x)  # redundant!
        return a * 2 + b * 3


class FusableModel(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = x * 2.0
        b = a + 1.0
        return torch.relu(b)


class UnoptimizedModel(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = 2.0 * 3.0
        a = torch.relu(x)
        b = torch.relu(x)  # redundant
        c = a * 1.0  # identity
        d = torch.exp(x)  # unused  # noqa: F841 - a line of the document
        e = b * scale
        f = e + 1.0
        g = torch.relu(f)
        return c + g


class GeluApprox(nn.Module):
    """GELU written as individual ops: ripe for pattern matching."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


GRAPH_MODELS = [WithConstants, HasDeadCode, HasCSE, FusableModel, UnoptimizedModel, GeluApprox]


@pytest.mark.parametrize("model_type", GRAPH_MODELS)
def test_graph_level_model(model_type: type[nn.Module]) -> None:
    model = model_type()
    x = torch.randn(32, 17)
    with torch.no_grad():
        same(torch.compile(model, backend="kiln", fullgraph=True)(x), model(x))


def test_models_after_the_samples_own_passes() -> None:
    """The samples' CSE and simplification on FX graphs; the rewritten module compiles as well."""
    traced = fx.symbolic_trace(UnoptimizedModel())
    for node in list(traced.graph.nodes):
        if node.target is operator.mul and 1.0 in node.args:
            node.replace_all_uses_with(node.args[0])
    seen: dict[Any, fx.Node] = {}
    for node in list(traced.graph.nodes):
        if node.op == "call_function":
            key = (node.target, tuple(id(arg) for arg in node.args))
            if key in seen:
                node.replace_all_uses_with(seen[key])
            else:
                seen[key] = node
    traced.graph.eliminate_dead_code()
    traced.recompile()
    x = torch.randn(8, 8)
    with torch.no_grad():
        same(torch.compile(traced, backend="kiln")(x), UnoptimizedModel()(x))


def test_algebraic_identities() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 1.0, x + 0.0, x * 0.0, x**2, torch.exp(torch.log(x)), x / x, torch.relu(torch.relu(x)), x.T.T

    x = torch.rand(5, 6) + 0.5
    with torch.no_grad():
        for ours, theirs in zip(torch.compile(fn, backend="kiln")(x), fn(x), strict=True):
            same(ours, theirs)


def unfused(x: torch.Tensor) -> torch.Tensor:
    x = x * 2.0
    x = x + 1.0
    x = torch.relu(x)
    x = x * 0.5
    return torch.sigmoid(x)


def test_fusion_impact_exercise() -> None:
    compiled = torch.compile(unfused, mode="reduce-overhead", backend="kiln")
    x = torch.randn(256, 256)  # 4096 x 4096 on a GPU there
    with torch.no_grad():
        for _ in range(3):
            same(compiled(x), unfused(x))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_layout_of_convolutions(memory_format: torch.memory_format) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1)).to(memory_format=memory_format)
    x = torch.randn(2, 4, 6, 6).to(memory_format=memory_format)
    with torch.no_grad():
        ours, theirs = torch.compile(model, backend="kiln")(x), model(x)
    assert ours.stride() == theirs.stride()
    same(ours, theirs)
