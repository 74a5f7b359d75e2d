# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A small model and what is recorded of it, for tests of traces."""

from typing import Any

import torch
from torch import nn

import kiln

TARGETS = ("cpu", "tt-cpu")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.norm(x))
        y = nn.functional.gelu(y)
        return y + x


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def traced(target: str = "cpu", model: nn.Module | None = None, **options: Any):
    model = Block().eval() if model is None else model
    return kiln.trace(model, torch.randn(8, 64), options={"target": target, "fallback": False, **options}, calls=2)


def nodes_of(data: dict[str, Any], numbers: list[int]) -> set[str]:
    return {data["nodes"][n]["name"] for s in numbers if s >= 0 for n in data["sets"][s]}
