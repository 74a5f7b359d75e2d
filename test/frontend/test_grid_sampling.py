# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sampling of images at positions of a grid: what is gathered on GPUs, run on the CPU, against ATen in float64."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

import kiln  # noqa: F401 - makes backend="kiln" known in a checkout that is not installed
from kiln.frontend import grid_sampling
from kiln.lowering import paths

MODES = ["nearest", "bicubic"]
PADDINGS = ["zeros", "border", "reflection"]


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    monkeypatch.setattr(grid_sampling, "_DEVICES", ("cpu",))
    yield
    torch._dynamo.reset()


def positions(dtype: torch.dtype, rows: int = 6, columns: int = 9) -> torch.Tensor:
    """Of 64ths, which all types have: halfway between two pixels, at borders, outside."""
    return (torch.randint(-80, 81, (2, rows, columns, 2)) / 64).to(dtype)


def compiled(target: str, **how: object):
    def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid, **how) * 2

    options = {"target": target, "fallback": False, "cache": False}
    return torch.compile(sampled, backend="kiln", dynamic=False, options=options)


def check(y: torch.Tensor, x: torch.Tensor, grid: torch.Tensor, **how: object) -> None:
    expected = F.grid_sample(x.double(), grid.double(), **how) * 2
    assert (y.shape, y.dtype) == (expected.shape, x.dtype) and y.is_contiguous()
    limit = {torch.float32: 1e-5, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}[x.dtype]
    torch.testing.assert_close(y.double(), expected, rtol=limit, atol=limit)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_against_float64(target: str, mode: str, padding: str, align_corners: bool) -> None:
    how = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    for dtype in (torch.bfloat16, torch.float16, *([torch.float32] if mode == "nearest" else [])):
        x, grid = torch.randn(2, 3, 8, 12).to(dtype), positions(dtype)
        paths.reset()
        check(compiled(target, **how)(x, grid), x, grid, **how)
        assert paths.taken()[f"cuda grid-sampling: {'nearest' if mode == 'nearest' else 'cubic'}"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", PADDINGS)
def test_one_pixel_and_other_layouts(mode: str, padding: str) -> None:
    how = {"mode": mode, "padding_mode": padding, "align_corners": True}
    channels_last = [torch.randn(2, 8, 12, 3).permute(0, 3, 1, 2)] if mode == "bicubic" else []
    for x in (torch.randn(2, 3, 1, 1), torch.randn(2, 3, 12, 8).mT, *channels_last):
        grid = positions(torch.bfloat16)
        paths.reset()
        check(compiled("cpu", **how)(x.bfloat16(), grid), x.bfloat16(), grid, **how)
        torch._dynamo.reset()
        assert not paths.taken().get("cuda grid-sampling: left to ATen")


@pytest.mark.parametrize("mode", MODES)
def test_what_lies_outside_counts_as_zero_whatever_the_image_holds(mode: str) -> None:
    x = torch.full((2, 3, 5, 5), float("inf"), dtype=torch.bfloat16)
    grid = torch.full((2, 4, 4, 2), 3.0, dtype=torch.bfloat16)
    grid[0, 0, 0] = torch.tensor([float("nan"), float("inf")])
    grid[0, 0, 1] = torch.tensor([float("-inf"), 3e38])
    y = compiled("cpu", mode=mode, align_corners=False)(x, grid)
    rest = torch.ones(4, 4, dtype=torch.bool)
    rest[0, :2] = mode == "nearest"  # weights of no number are none
    assert not y[:, :, rest].any()


def test_gradients_are_eagers() -> None:
    x, grid = torch.randn(2, 3, 8, 12, requires_grad=True), positions(torch.float32)
    y = compiled("cpu", mode="nearest", align_corners=False)(x, grid)
    y.square().sum().backward()
    found, x.grad = x.grad, None
    (F.grid_sample(x, grid, mode="nearest", align_corners=False) * 2).square().sum().backward()
    torch.testing.assert_close(found, x.grad)


def test_what_atens_kernels_do_as_fast_is_left_to_them() -> None:
    x, grid = torch.randn(2, 3, 8, 12), positions(torch.float32)
    for mode, image in (("bilinear", x), ("bicubic", x), ("nearest", x.to(memory_format=torch.channels_last))):
        paths.reset()
        compiled("cpu", mode=mode, align_corners=False)(image, grid)
        torch._dynamo.reset()
        assert {k for k, n in paths.taken().items() if n and "grid-sampling" in k} == {
            "cuda grid-sampling: left to ATen"
        }
