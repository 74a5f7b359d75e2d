# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compiled layers on a CPU with AMX, emulated: against float64, constant weights and not, integers."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import kiln
from kiln.runtime.loader import load  # noqa: F401 - the engine is made before the host is another

sys.path.insert(0, str(Path(__file__).parent))

from amx_emulation import EMULATED, emulated_amx

pytestmark = pytest.mark.skipif(not EMULATED, reason="a CPU without the other instructions")


class Perceptron(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.down(nn.functional.gelu(self.up(x))))


class Gated(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(*sizes, bias=False) for sizes in ((width, inner), (width, inner), (inner, width))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def run(monkeypatch, module, *inputs, dynamic=False, **options):
    with emulated_amx(monkeypatch):
        torch._dynamo.reset()
        compiled = torch.compile(
            module, backend=kiln.backend, fullgraph=True, dynamic=dynamic, options={"fallback": False, **options}
        )
        with torch.no_grad():
            return [compiled(x) for x in inputs]


@pytest.mark.parametrize("kind", [Perceptron, Gated])
@pytest.mark.parametrize(("width", "inner"), [(64, 160), (128, 300), (50, 97)])
@pytest.mark.parametrize("mode", ["plain", "freezing", "dynamic"])
def test_layers(monkeypatch, kind, width, inner, mode):
    torch.manual_seed(0)
    module = kind(width, inner).bfloat16().eval()
    exact = kind(width, inner).double().eval()
    exact.load_state_dict({k: v.double() for k, v in module.state_dict().items()})
    inputs = [torch.randn(2, rows, width).bfloat16() for rows in ((9, 20) if mode == "dynamic" else (20,))]
    found = run(monkeypatch, module, *inputs, dynamic=mode == "dynamic", freezing=mode == "freezing")
    for x, y in zip(inputs, found, strict=True):
        with torch.no_grad():
            expected, eager = exact(x.double()), module(x)
        error, theirs = ((z.double() - expected).norm() / expected.norm() for z in (y, eager))
        assert error <= 1.2 * theirs + 1e-3, f"error {error:.2e}, eager {theirs:.2e}"


@pytest.mark.parametrize("freezing", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(20, 48, 100), (5, 70, 64), (40, 33, 1100)])
def test_integers(monkeypatch, freezing, m, n, k):
    torch.manual_seed(0)

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = torch.randint(-128, 128, (n, k), dtype=torch.int8)
            self.weight = nn.Parameter(weight, requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch._int_mm(x, self.weight.t()) + 1

    module = Linear()
    x = torch.randint(-128, 128, (m, k), dtype=torch.int8)
    (found,) = run(monkeypatch, module, x, freezing=freezing)
    assert torch.equal(found.long(), x.long() @ module.weight.long().t() + 1)


@pytest.mark.parametrize("transposed", [False, True])
def test_batches(monkeypatch, transposed):
    """Scores of queries and keys, and products with values."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 3, 37, 64).bfloat16(), torch.randn(2, 3, 64, 40).bfloat16()
    if transposed:
        y = y.mT.contiguous().mT

    def product(x):
        return torch.relu(x @ y)

    (found,) = run(monkeypatch, product, x)
    exact = torch.relu(x.double() @ y.double())
    assert (found.double() - exact).abs().max() <= 2**-8 * exact.abs().max()
