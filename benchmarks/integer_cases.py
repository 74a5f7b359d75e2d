# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of 8-bit integers alone, and a linear layer between quantisations as PT2E exports it."""

import torch
import torch.ao.quantization.fx._decomposed  # registers the ops
import torch.nn.functional as F
from torch import nn

from benchmarks.case import Case
from benchmarks.networks import Network

__all__ = ["INTEGER_CASES"]

_INPUT, _OUTPUT = 0.03, 0.02
_BYTE = (-128, 127, torch.int8)


def _integers(*sizes: int, generator: torch.Generator | None = None) -> torch.Tensor:
    return torch.randint(-128, 128, sizes, dtype=torch.int8, generator=generator)


class _Product(nn.Module):
    """``torch._int_mm`` with a weight [n, k]."""

    def __init__(self, n: int, k: int) -> None:
        super().__init__()
        self.weight = nn.Buffer(_integers(n, k))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._int_mm(x, self.weight.t())


class _QuantisedLinear(nn.Module):
    """Quantise, dequantise, linear with a weight of 8 bits per channel, ReLU, quantise, dequantise.

    In float64, the reference, nothing is rounded but the weight.
    """

    def __init__(self, n: int, k: int) -> None:
        super().__init__()
        weight = torch.randn(n, k) / k**0.5
        self.scales, self.zeros = nn.Buffer(weight.abs().amax(1) / 127), nn.Buffer(torch.zeros(n, dtype=torch.int64))
        self.weight = nn.Buffer((weight / self.scales[:, None]).round().to(torch.int8))
        self.bias = nn.Parameter(torch.randn(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float64:
            return F.linear(x, self.weight * self.scales[:, None], self.bias).relu()
        ops = torch.ops.quantized_decomposed
        weight = ops.dequantize_per_channel(self.weight, self.scales.float(), self.zeros, 0, *_BYTE)
        value = ops.quantize_per_tensor(x.float(), _INPUT, -3, *_BYTE)
        value = ops.dequantize_per_tensor(value, _INPUT, -3, *_BYTE)
        value = F.linear(value, weight, self.bias.float()).relu()
        value = ops.quantize_per_tensor(value, _OUTPUT, -128, *_BYTE)
        return ops.dequantize_per_tensor(value, _OUTPUT, -128, *_BYTE).to(x.dtype)


def _rows(m: int, divisor: int) -> int:
    return max(1, m // divisor) if m > 8 else m


def _product(m: int, n: int, k: int) -> Case:
    def build(divisor: int) -> Network:
        rows = _rows(m, divisor)
        return _Product(n, k).eval(), lambda generator: (_integers(rows, k, generator=generator),)

    return Case(f"int_mm_{m}x{n}x{k}", "micro", f"[{m}, {k}] @ [{k}, {n}], int8", lambda: build(1), lambda: build(8))


def _layer(m: int, n: int, k: int) -> Case:
    def build(divisor: int) -> Network:
        rows = _rows(m, divisor)
        return _QuantisedLinear(n, k).eval(), lambda generator: (torch.randn(rows, k, generator=generator),)

    describe = f"[{m}, {k}] @ [{k}, {n}] + b and ReLU between quantisations to int8"
    return Case(f"quantised_linear_{m}x{n}x{k}", "micro", describe, lambda: build(1), lambda: build(8))


INTEGER_CASES = [
    *(_product(*sizes) for sizes in ((8, 3072, 768), (128, 3072, 768), (333, 1000, 1001), (512, 768, 768))),
    *(_layer(*sizes) for sizes in ((16, 768, 768), (128, 3072, 768))),
]
