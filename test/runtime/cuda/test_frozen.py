# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Frozen models on the emulated GPU: constants that are folded, and what kernels read of them."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from test_networks import error
from torch import nn

import kiln

FROZEN: dict[str, Any] = {"freezing": True, "fallback": False, "cache": False}


class Folded(nn.Module):
    """Weights that are concatenated, transposed and scaled at each call; a batch norm behind a convolution."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(8, 40) / 8) for _ in range(2)])
        self.bias = nn.Parameter(torch.randn(81)[1:].clone())
        self.register_buffer("table", torch.randn(80, 3), persistent=False)
        for value in (self.norm.running_mean, self.norm.weight):
            assert value is not None
            nn.init.uniform_(value, 0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = F.relu(self.norm(self.conv(x))).mean((2, 3))
        weight = torch.cat(list(self.weights), 1) * 2
        return torch.softmax(torch.tanh(pooled @ weight + self.bias[:80]) @ self.table.sqrt().nan_to_num(0.5), -1)


def frozen(model: nn.Module) -> Any:
    return torch.compile(model, backend=kiln.backend, fullgraph=True, options=FROZEN)


def test_folded_constants(gpu) -> None:
    model = Folded().eval()
    exact, run = copy.deepcopy(model).double(), frozen(model)
    x = torch.randn(5, 3, 9, 7)
    with torch.no_grad():
        for x in (torch.randn(5, 3, 9, 7) for _ in range(3)):
            assert error(run(x), exact(x.double())) < 1e-5
        report = kiln.explain(model, x, options=FROZEN).graphs[0].freezing
    assert report is not None and report.convolutions == 1 and report.new_bytes >= 4 * (8 * 80 + 80 * 3)


def test_parameters_that_change_are_seen(gpu) -> None:
    model = Folded().eval()
    run, x = frozen(model), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        for change in (None, lambda: model.weights[0].mul_(3), lambda: setattr(model, "conv", nn.Conv2d(3, 8, 3))):
            if change is not None:
                change()
            assert error(run(x), copy.deepcopy(model).double()(x.double())) < 1e-5


def test_weights_through_tensor_maps_are_constants(gpu) -> None:
    """Descriptors of constants are encoded once, those of inputs when they move."""
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.Tanh()).to(torch.bfloat16).eval()
    exact, run = copy.deepcopy(model).double(), frozen(model)
    kept = [torch.randn(300, 64).bfloat16() for _ in range(3)]
    with torch.no_grad():
        for x in kept:
            assert error(run(x), exact(x.double())) < 1e-2
    assert sum(map(len, gpu.descriptors.values())) == 4
    weights = [p.data_ptr() for p in model.parameters() if p.dim() == 2]
    assert [gpu.encoded.count(a) for a in weights] == [1, 1]
    assert len(gpu.encoded) <= 8
