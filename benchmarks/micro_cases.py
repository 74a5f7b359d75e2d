# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Small graphs of which each is one or a few kernels."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.case import Case
from benchmarks.integer_cases import INTEGER_CASES
from benchmarks.networks import Network

__all__ = ["MICRO_CASES", "conv", "gelu_rows", "micro", "sdpa"]


class _Function(nn.Module):
    """A function as a module; ``weights`` become parameters, which it gets behind its inputs."""

    def __init__(self, function: Callable[..., torch.Tensor], *weights: torch.Tensor) -> None:
        super().__init__()
        self.function, self.weights = function, nn.ParameterList(nn.Parameter(w) for w in weights)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs, *list(self.weights))  # Dynamo of PyTorch 2.11 does not unpack the list itself


def micro(
    name: str,
    describe: str,
    function: Callable[..., torch.Tensor],
    inputs: tuple[tuple[int, ...], ...],
    weights: tuple[tuple[int, ...], ...] = (),
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Case:
    """A case of normally distributed tensors of these shapes; the quick one has an eighth of the rows."""

    def build(divisor: int) -> Network:
        shapes = [(max(1, shape[0] // divisor), *shape[1:]) if shape[0] > 8 else shape for shape in inputs]
        parameters = [torch.randn(w) / max(1, w[-1] if len(w) > 1 else 1) ** 0.5 for w in weights]

        def make(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
            tensors = [torch.randn(shape, generator=generator) for shape in shapes]
            return tuple(t.to(memory_format=memory_format) if t.dim() == 4 else t for t in tensors)

        return _Function(function, *parameters).to(memory_format=memory_format).eval(), make

    return Case(name, "micro", describe, lambda: build(1), lambda: build(8))


def _chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(torch.relu(x * y + 1.0) * 0.5)


def gelu_rows(m: int, n: int, k: int) -> Case:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, w, b))

    return micro(f"linear_gelu_{m}x{n}x{k}", f"gelu([{m}, {k}] @ [{k}, {n}] + b)", function, ((m, k),), ((n, k), (n,)))


def conv(channels: int, size: int, memory_format: torch.memory_format) -> Case:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, padding=1)

    last = memory_format is torch.channels_last
    name = f"conv3x3_{channels}x{size}{'_channels_last' if last else ''}"
    shape, weight = (1, channels, size, size), (channels, channels, 3, 3)
    describe = f"3x3, {channels} channels, {size} x {size}{', channels last' if last else ''}"
    return micro(name, describe, function, (shape,), (weight,), memory_format)


def sdpa(batch: int, length: int, causal: bool = False) -> Case:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    name = f"sdpa_{batch}x{length}{'_causal' if causal else ''}"
    shape = (batch, 12, length, 64)
    return micro(name, f"12 heads of 64, {batch} x {length}{', causal' if causal else ''}", function, (shape,) * 3)


_WIDE, _ROWS = (4096, 4096), (4096, 1024)

#: Rows, columns, and the size that is summed.
_PRODUCTS = (
    *((1, 3072, 768), (4, 3072, 768), (16, 3072, 768), (24, 3072, 1024), (32, 4096, 4096), (48, 1024, 4096)),
    *((64, 3072, 768), (100, 640, 384), (128, 768, 768), (128, 3072, 768), (200, 2304, 768), (256, 1536, 512)),
    *((512, 3072, 768), (768, 2048, 512), (1024, 1024, 1024)),
)

#: Channels and height.
_CONVOLUTIONS = ((64, 56), (128, 28), (256, 14), (512, 7))

MICRO_CASES = [
    micro("square", "x * x, 4096^2", lambda x: x * x, (_WIDE,)),
    micro("chain", "sigmoid(relu(x * y + 1) / 2), 4096^2", _chain, (_WIDE, _WIDE)),
    micro("bias_gelu", "gelu(x + b), exact, 4096^2", lambda x, b: F.gelu(x + b), (_WIDE,), ((4096,),)),
    micro(
        "bias_gelu_tanh",
        "gelu(x + b), tanh, 4096^2",
        lambda x, b: F.gelu(x + b, approximate="tanh"),
        (_WIDE,),
        ((4096,),),
    ),
    micro("softmax", "over rows, 4096 x 1024", lambda x: torch.softmax(x, -1), (_ROWS,)),
    micro(
        "layernorm",
        "over rows, 4096 x 1024",
        lambda x, w, b: F.layer_norm(x, (1024,), w, b),
        (_ROWS,),
        ((1024,), (1024,)),
    ),
    micro("rmsnorm", "over rows, 4096 x 1024", lambda x, w: F.rms_norm(x, (1024,), w, 1e-5), (_ROWS,), ((1024,),)),
    # Squares: a sum of normal numbers is near zero, and its relative error is chance.
    micro("sum_all", "squares of 4096^2 to a scalar", lambda x: (x * x).sum(), (_WIDE,)),
    micro("column_sum", "4096^2 over its rows", lambda x: x.sum(0), (_WIDE,)),
    *(gelu_rows(*sizes) for sizes in _PRODUCTS),
    sdpa(1, 128),
    sdpa(4, 1024),
    sdpa(4, 1024, causal=True),
    *(conv(channels, size, torch.contiguous_format) for channels, size in _CONVOLUTIONS),
    *(conv(channels, size, torch.channels_last) for channels, size in _CONVOLUTIONS),
    *INTEGER_CASES,
]
