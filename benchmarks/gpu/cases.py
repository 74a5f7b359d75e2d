# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is measured: single operations at the sizes of the first measurements, and whole models in bf16."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import networks
from benchmarks.gpu.resnet import resnet50

__all__ = ["CASES", "MODELS", "Case"]

Make = Callable[[torch.Generator], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Case:
    """`build()` gives a module on the CPU in float32 and its inputs' maker; `dtype` is what both are run in.

    bytes_moved, flops: of one call at least, for the rate that it reached; 0 where that says nothing.
    """

    name: str
    build: Callable[[], tuple[nn.Module, Make]]
    dtype: torch.dtype = torch.float32
    bytes_moved: int = 0
    flops: int = 0
    sets: int = 4
    """Sets of inputs that calls go through in turn, so that caches do not hold them."""
    is_model: bool = False


class _Function(nn.Module):
    """A function of its inputs, with parameters in front."""

    def __init__(self, function: Callable[..., torch.Tensor], **parameters: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.names = list(parameters)
        for name, value in parameters.items():
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*(getattr(self, name) for name in self.names), *inputs)


def _random(*shapes: tuple[int, ...]) -> Make:
    return lambda g: tuple(torch.randn(shape, generator=g) for shape in shapes)


def _chain(n: int) -> Case:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(torch.relu(x * 2 + 1) * 0.5)

    return Case(f"chain {n}^2", lambda: (_Function(run), _random((n, n))), bytes_moved=8 * n * n)


def _softmax(rows: int, columns: int) -> Case:
    return Case(
        f"softmax {rows}x{columns}",
        lambda: (_Function(lambda x: torch.softmax(x, -1)), _random((rows, columns))),
        bytes_moved=8 * rows * columns,
    )


def _layer_norm(rows: int, columns: int) -> Case:
    def run(weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x + y, (columns,), weight, bias)

    def build() -> tuple[nn.Module, Make]:
        module = _Function(run, weight=torch.randn(columns), bias=torch.randn(columns))
        return module, _random((rows, columns), (rows, columns))

    return Case(f"add+LN {rows}x{columns}", build, torch.bfloat16, bytes_moved=6 * rows * columns)


def _rms_norm(rows: int, columns: int) -> Case:
    def build() -> tuple[nn.Module, Make]:
        module = _Function(lambda w, x: F.rms_norm(x, (columns,), w), weight=torch.randn(columns))
        return module, _random((rows, columns))

    return Case(f"RMSNorm {rows}x{columns}", build, torch.bfloat16, bytes_moved=4 * rows * columns)


def _linear(m: int, n: int, k: int, activation: str = "", dtype: torch.dtype = torch.bfloat16) -> Case:
    def run(weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, weight, bias if activation else None)
        return F.gelu(y) if activation == "gelu" else y

    def build() -> tuple[nn.Module, Make]:
        return _Function(run, weight=torch.randn(n, k) / k**0.5, bias=torch.randn(n)), _random((m, k))

    name = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}[dtype]
    sets = 2 if m * k > 1 << 24 else 4
    suffix = f"+bias+{activation}" if activation else ""
    return Case(f"linear {name} {m}x{n}x{k}{suffix}", build, dtype, flops=2 * m * n * k, sets=sets)


def _attention(head: int, causal: bool, batch: int = 4, heads: int = 32, length: int = 4096) -> Case:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    shape = (batch, heads, length, head)
    flops = 4 * batch * heads * length * length * head // (2 if causal else 1)
    name = f"attention D={head}{' causal' if causal else ''} S={length}"
    return Case(name, lambda: (_Function(run), _random(shape, shape, shape)), torch.bfloat16, flops=flops, sets=2)


CASES = [
    *(_chain(n) for n in (4096, 16384)),
    *(_softmax(4096, n) for n in (1024, 4096, 32768)),
    *(_softmax(32768, n) for n in (1024, 4096)),
    *(_layer_norm(m, n) for m, n in ((16384, 1024), (16384, 4096), (8192, 8192))),
    *(_rms_norm(m, n) for m, n in ((16384, 1024), (16384, 4096), (8192, 8192))),
    _linear(8192, 8192, 8192),
    _linear(4096, 4096, 4096),
    _linear(4096, 4096, 4096, "gelu"),
    _linear(1024, 1024, 1024),
    _linear(1024, 1024, 1024, "gelu"),
    *(_linear(m, 4096, 4096, "gelu") for m in (1, 16, 64)),
    _linear(4000, 4104, 4104),
    *(_attention(head, causal) for head in (64, 128) for causal in (False, True)),
]
"""Single operations."""


def _network(builder: Callable[..., Any], **sizes: Any) -> Callable[[], tuple[nn.Module, Make]]:
    return lambda: builder(**sizes)


def _models(batch: int, suffix: str) -> list[Case]:
    bert = {"layers": 12, "width": 768, "heads": 12, "length": 512, "vocabulary": 30522}
    gpt2 = {"layers": 24, "width": 1024, "heads": 16, "length": 1024, "vocabulary": 50257}
    llama = {"layers": 8, "width": 4096, "heads": 32, "key_heads": 8, "hidden": 14336, "length": 1024}
    vit = {"layers": 12, "width": 768, "heads": 12, "size": 224, "patch": 16, "classes": 1000}
    large = {"bert": 64, "gpt2": 16, "llama": 8, "vit": 128, "resnet": 128}
    sizes = large if batch != 1 else dict.fromkeys(large, 1)
    return [
        Case(f"BERT-base {suffix}", _network(networks.bert, batch=sizes["bert"], **bert), torch.bfloat16, sets=2),
        Case(f"GPT-2 medium {suffix}", _network(networks.gpt2, batch=sizes["gpt2"], **gpt2), torch.bfloat16, sets=2),
        Case(
            f"Llama 8x4096 {suffix}",
            _network(networks.llama, batch=sizes["llama"], vocabulary=32000, **llama),
            torch.bfloat16,
            sets=2,
        ),
        Case(f"ViT-B {suffix}", _network(networks.vit, batch=sizes["vit"], **vit), torch.bfloat16, sets=2),
        Case(f"ResNet-50 {suffix}", _network(resnet50, batch=sizes["resnet"]), torch.bfloat16, sets=2),
    ]


MODELS = [replace(case, is_model=True) for case in [*_models(1, "batch 1"), *_models(0, "large batch")]]
"""Whole models."""
