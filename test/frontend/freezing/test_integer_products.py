# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Layers between quantisations (PT2E): products of integers, whose results are the float reference's within a quantum."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401 - registers the ops
from torch import nn

from kiln.frontend.import_.fx_values import ImportUnsupported
from kiln.frontend.report import CompileReport, collect

Q = torch.ops.quantized_decomposed
STEP = 0.02


def _pair(x: torch.Tensor, scale: float = 0.03, zero: int = 121, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """A tensor rounded to 8 bits, as exported models have it: there and back."""
    low, high = (0, 255) if dtype == torch.uint8 else (-128, 127)
    q = Q.quantize_per_tensor(x, scale, zero, low, high, dtype)
    return Q.dequantize_per_tensor(q, scale, zero, low, high, dtype)


class Layer(nn.Module):
    """A layer with a weight of 8 bits: `fn(x, weight, bias)` between two quantisations."""

    def __init__(self, fn: Callable[..., torch.Tensor], *shape: int, weight_zero: int = 0, **inputs: Any) -> None:
        super().__init__()
        weight = torch.randn(shape) / (torch.Size(shape[1:]).numel() ** 0.5)
        self.scales = nn.Buffer(weight.abs().flatten(1).amax(1) / 100)
        self.zeros = nn.Buffer(torch.full((shape[0],), weight_zero))
        args = (self.scales, self.zeros, 0, -127, 127, torch.int8)
        self.weight = nn.Buffer(Q.quantize_per_channel(weight, *args))
        self.bias = nn.Parameter(torch.randn(shape[0]))
        self.fn, self.inputs = fn, inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        args = (self.scales, self.zeros, 0, -127, 127, torch.int8)
        weight = Q.dequantize_per_channel(self.weight, *args)
        return _pair(self.fn(_pair(x, **self.inputs), weight, self.bias), STEP, 100)


def _conv(stride: int = 1, padding: int = 0, groups: int = 1) -> Callable[..., torch.Tensor]:
    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        convolve = nn.functional.conv1d if x.dim() == 3 else nn.functional.conv2d
        return convolve(x, w, b, stride, padding, 1, groups).relu()

    return fn


def _check(
    model: nn.Module, *inputs: torch.Tensor, options: dict[str, Any] | None = None, **how: Any
) -> list[CompileReport]:
    """Compares with eager: a sum that lies half way between two steps may be rounded to either. Returns the reports."""
    options = {"freezing": True, "fallback": False} if options is None else options
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="kiln", options=options, fullgraph=True, **how)
    with torch.no_grad(), collect() as reports:
        for x in inputs:
            want, got = model(x), compiled(x)
            assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
            steps = (got.double() - want.double()).abs() / STEP
            assert steps.max() < 1.01 and (steps > 0.5).double().mean() < 0.01
    return reports


def _products(reports: list[CompileReport]) -> int:
    """How many products of integers there are, each a kernel of Kiln's."""
    assert not any(report.aten_calls for report in reports)
    return sum(decision.op.endswith("_int_mm") for report in reports for decision in report.decisions)


@pytest.mark.parametrize("inputs", [{}, {"zero": 128}, {"dtype": torch.int8, "zero": -3}])
@pytest.mark.parametrize("sizes", [(20, 96, 64), (1, 33, 129), (7, 5, 3)])
def test_linear_layers_multiply_integers(sizes: tuple[int, int, int], inputs: dict[str, Any]) -> None:
    m, n, k = sizes
    report = _check(Layer(nn.functional.linear, n, k, **inputs), torch.randn(m, k))
    assert _products(report)


def test_leading_dims_and_no_bias() -> None:
    model = Layer(lambda x, w, _: nn.functional.linear(x, w), 24, 32)
    assert _products(_check(model, torch.randn(3, 5, 32)))


def test_rows_known_at_run_time() -> None:
    model = Layer(nn.functional.linear, 24, 32)
    assert _products(_check(model, torch.randn(3, 32), torch.randn(9, 32), torch.randn(21, 32), dynamic=True))


def test_bf16() -> None:
    class Half(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = Q.quantize_per_tensor(x, 0.03, 121, 0, 255, torch.uint8)
            x = Q.dequantize_per_tensor(q, 0.03, 121, 0, 255, torch.uint8, out_dtype=torch.bfloat16)
            args = (self.scales, self.zeros, 0, -127, 127, torch.int8)
            weight = Q.dequantize_per_channel(self.weight, *args, out_dtype=torch.bfloat16)
            return nn.functional.linear(x, weight, self.bias.bfloat16())

    model, x = Half(nn.functional.linear, 48, 64), torch.randn(10, 64).bfloat16()
    torch._dynamo.reset()
    with torch.no_grad():
        got = torch.compile(model, backend="kiln", options={"freezing": True, "fallback": False})(x)
        want = model(x)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), want.float(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("shape", "window", "fn"),
    [
        ((2, 16, 9, 7), (24, 16, 1, 1), _conv()),
        ((1, 32, 9, 8), (16, 32, 1, 1), _conv(stride=2)),
        ((1, 64, 9, 7), (40, 64, 3, 3), _conv(padding=1)),
        ((2, 64, 9, 11), (16, 64, 3, 3), _conv(stride=2, padding=1)),
        ((2, 64, 21), (16, 64, 3), _conv(padding=1)),
        ((1, 128, 5, 5), (8, 128, 5, 5), _conv()),
    ],
)
def test_convolutions_are_products(shape: tuple[int, ...], window: tuple[int, ...], fn: Callable[..., Any]) -> None:
    assert _products(_check(Layer(fn, *window), torch.randn(shape)))


def test_layers_in_a_row_pass_integers() -> None:
    """With a residual in floats, and the integers themselves as a result."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (Layer(_conv(padding=1), 64, 64, 3, 3) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return _pair(self.second(self.first(x)) + x, STEP, 100)

    model = Block()
    x = torch.randn(1, 64, 8, 8)
    with torch.no_grad():
        torch._dynamo.reset()
        with collect() as reports:
            got = torch.compile(model, backend="kiln", options={"freezing": True, "fallback": False})(x)
        # One step of the first layer moves sums of the second.
        assert (got - model(x)).abs().mean() < STEP / 4
    assert sum(d.op.endswith("_int_mm") for d in reports[0].decisions) == 2


def test_aten_runs_what_was_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that does not compile for another reason runs with ATen, where views ask for the strides they knew."""

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolutions = nn.Sequential(Layer(_conv(), 32, 16, 1, 1), Layer(_conv(), 16, 32, 1, 1))
            self.linear = Layer(nn.functional.linear, 10, 16 * 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(self.convolutions(x).view(x.shape[0], -1))

    def refuse(*_: object) -> None:
        raise ImportUnsupported("refused")

    monkeypatch.setattr("kiln.frontend.compile._compile_native", refuse)
    model, x = Network(), torch.randn(2, 16, 2, 3)
    torch._dynamo.reset()
    with torch.no_grad(), collect() as reports:
        got = torch.compile(model, backend="kiln", options={"freezing": True}, fullgraph=True)(x)
        assert (got - model(x)).abs().mean() < STEP / 4
    assert [report.executor for report in reports] == ["aten"]


def test_unsigned_integers_from_outside() -> None:
    class Given(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = Q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
            return _pair(nn.functional.linear(Q.dequantize_per_tensor(x, 0.03, 7, 0, 255, torch.uint8), weight), STEP)

    assert _products(_check(Given(nn.functional.linear, 32, 48), torch.randint(0, 256, (6, 48), dtype=torch.uint8)))


@pytest.mark.parametrize(
    ("model", "x", "options", "why"),
    [
        (Layer(nn.functional.linear, 8, 16), (4, 16), {}, "zero points are known at run time only"),
        (Layer(nn.functional.linear, 8, 16, weight_zero=3), (4, 16), None, "zero points are not 0"),
        (Layer(_conv(groups=2), 32, 16, 3, 3), (1, 32, 8, 8), None, "transposed, grouped or dilated"),
        (Layer(_conv(), 16, 3, 3, 3), (1, 3, 8, 8), None, "windows of 3 channels"),
    ],
)
def test_what_stays_in_floats(model: nn.Module, x: tuple[int, ...], options: dict[str, Any] | None, why: str) -> None:
    reports = _check(model, torch.randn(x), options=options)
    assert not _products(reports) and any(why in note.reason for note in reports[0].notes)
