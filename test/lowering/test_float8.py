# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""8-bit floats: conversions bit by bit as eager's, on the CPU and as the GPU's kernels do them; quantisation."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kiln.frontend.report import collect
from kiln.lowering import float8

TYPES = [torch.float8_e4m3fn, torch.float8_e5m2]


def _run(fn: Callable[..., Any], inputs: list[torch.Tensor], target: str, calls: int = 0, **more: Any) -> Any:
    torch._dynamo.reset()
    options = {"target": target, "fallback": False, "cache": False, **more}
    with collect() as reports:
        found = torch.compile(fn, backend="kiln", options=options)(*inputs)
    assert len([call for report in reports for call in report.aten_calls]) == calls
    return found


def _bits(x: torch.Tensor) -> torch.Tensor:
    """All NaNs are one."""
    return torch.where(x.float().isnan(), 256, x.view(torch.uint8).int())


def _every_case(dtype: torch.dtype) -> torch.Tensor:
    """Every 8-bit float and its f32 neighbours, the middle to the next one and its neighbours, special values, noise."""
    each = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    each = each[each.isfinite()].sort().values
    middles = (each[1:] + each[:-1]) / 2
    largest = each[-1] + (each[-1] - each[-2]) * torch.tensor([0.25, 0.5, 0.75, 1.0, 1.5, 8.0])
    exact = torch.cat([each, middles, largest, -largest])
    up, down = (torch.nextafter(exact, torch.tensor(s * float("inf"))) for s in (1, -1))
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 3e38, -3e38, 1e-45, -1e-45, 1e-20])
    noise = torch.randint(-(1 << 31), 1 << 31, (20000,)).to(torch.int32).view(torch.float32)
    return torch.cat([exact, up, down, special, noise, torch.randn(3000) * 100])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_every_rounding_is_that_of_eager(dtype: torch.dtype, target: str) -> None:
    x = _every_case(dtype)
    found, expected = _run(lambda x: x.to(dtype), [x], target), x.to(dtype)
    assert found.dtype == dtype
    wrong = _bits(found) != _bits(expected)
    assert not wrong.any(), (x[wrong][:5], _bits(found)[wrong][:5], _bits(expected)[wrong][:5])


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("saturates", [True, False])
def test_what_is_too_large_is_as_the_installed_pytorch_has_it(
    target: str, saturates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest number, or, before PyTorch 2.13, a NaN."""
    monkeypatch.setattr(float8, "_saturates", lambda: saturates)
    # Of another size each time: kernels that were compiled before are found by what they compute.
    edges = torch.tensor([448.0, 464.0, 464.01, 480.0, 1e9, float("inf"), float("nan")])
    x = torch.cat([edges, torch.randn(100 + saturates) * 300])
    found = _run(lambda x: x.to(torch.float8_e4m3fn), [torch.cat([x, -x])], target)
    size = torch.cat([x, -x]).abs()
    expected = torch.cat([x, -x]).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    wrong = (size > 464) & (not saturates) | size.isnan()
    assert torch.equal(found.float().nan_to_num(1e9), torch.where(wrong, 1e9, expected))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32])
def test_from_and_to_other_types(dtype: torch.dtype, target: str, wide: torch.dtype) -> None:
    small = torch.arange(256, dtype=torch.uint8).view(dtype)
    small = small[small.float().isfinite()] if wide == torch.int32 else small
    assert torch.equal(_run(lambda x: x.to(wide), [small], target).nan_to_num(7), small.to(wide).nan_to_num(7))
    x = torch.randn(1000).to(wide) * 20
    assert torch.equal(_bits(_run(lambda x: x.to(dtype), [x], target)), _bits(x.to(dtype)))


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_between_the_two(target: str) -> None:
    small = torch.arange(256, dtype=torch.uint8).view(torch.float8_e5m2)
    found = _run(lambda x: x.to(torch.float8_e4m3fn), [small], target)
    assert torch.equal(_bits(found), _bits(small.to(torch.float8_e4m3fn)))


def _quantized(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows scaled to what float8_e4m3fn can have."""
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448.0
    return (x / scale).to(torch.float8_e4m3fn), scale


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_quantisation_of_rows_is_one_kernel(target: str, dtype: torch.dtype) -> None:
    x = torch.randn(37, 300).to(dtype)
    torch._dynamo.reset()
    with collect() as reports:
        options = {"target": target, "fallback": False, "cache": False}
        found = torch.compile(_quantized, backend="kiln", options=options)(x)
    assert [len(report.kernels) for report in reports] == [1] and not reports[0].aten_calls
    expected = _quantized(x)
    # A GPU divides with an error of 2 units in the last place.
    torch.testing.assert_close(found[1], expected[1], rtol=2 * torch.finfo(dtype).eps, atol=0)
    assert (_bits(found[0]) != _bits(expected[0])).float().mean() < 0.03  # a quotient may be rounded otherwise
    assert torch.allclose(found[0].float(), expected[0].float(), rtol=0.13)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_moved_and_widened_in_one_kernel(target: str) -> None:
    x = torch.randn(12, 10).to(torch.float8_e4m3fn)
    fn = lambda x, s: x.t()[1:].float() * s
    assert torch.equal(_run(fn, [x, torch.tensor(0.5)], target), fn(x, torch.tensor(0.5)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_dynamic_sizes_and_strides(dynamic: bool) -> None:
    torch._dynamo.reset()
    run = torch.compile(
        lambda x: x.to(torch.float8_e5m2), backend="kiln", dynamic=dynamic, options={"target": "tt-cpu", "cache": False}
    )
    for shape in ((7, 9), (33, 65)):
        x = torch.randn(shape).t()[:, ::2]
        assert torch.equal(_bits(run(x).contiguous()), _bits(x.to(torch.float8_e5m2).contiguous()))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz])
def test_the_other_kinds_are_calls(dtype: torch.dtype) -> None:
    x = torch.randn(100)
    assert torch.equal(_bits(_run(lambda x: x.to(dtype), [x], "tt-cpu", calls=1)), _bits(x.to(dtype)))


@pytest.mark.parametrize("dtype", TYPES)
def test_integer_arithmetic_is_right_as_well(dtype: torch.dtype) -> None:
    """What chips without conversions run."""
    from kiln.passes.pipelines import gpu_pipeline

    pipeline = ",".join(step.pass_.spec() for step in gpu_pipeline(arch="sm_80"))
    x = _every_case(dtype)
    found = _run(lambda x: (x.to(dtype), x.to(dtype).float()), [x], "tt-cpu", pipeline=pipeline)
    assert torch.equal(_bits(found[0]), _bits(x.to(dtype)))
    assert torch.equal(found[1].nan_to_num(7), x.to(dtype).float().nan_to_num(7))
