# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions of one tap as products through tensor maps, on a GPU that is emulated."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln


def compiled(function: Any, **options: Any) -> Any:
    options = {"fallback": False, "cache": False, **options}
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options=options)


def image(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16).to(memory_format=torch.channels_last)


def check(function: Any, *inputs: torch.Tensor, **options: Any) -> None:
    found = compiled(function, **options)(*inputs)
    exact, eager = function(*(x.double() for x in inputs)), function(*inputs)
    assert found.shape == eager.shape
    errors = [((x.double() - exact).norm() / exact.norm().clamp_min(1e-30)).item() for x in (found, eager)]
    assert errors[0] < max(2 * errors[1], 4e-3)


def block(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    return F.relu(F.conv2d(x, w) * scale[:, None, None] + more)


@pytest.mark.parametrize(("images", "channels", "out", "side"), [(4, 64, 64, 32), (5, 24, 40, 41), (8192, 8, 72, 1)])
def test_with_what_follows(gpu, images: int, channels: int, out: int, side: int) -> None:
    x, more = image(images, channels, side, side), image(images, out, side, side)
    w, scale = image(out, channels, 1, 1), torch.randn(out, dtype=torch.bfloat16)
    check(block, x, w, scale, more)
    assert gpu.encoded, "the operands come through descriptors"
    before = len(gpu.encoded)
    check(block, x, w, scale, more, tensor_maps=False)
    assert len(gpu.encoded) == before


@pytest.mark.parametrize(
    "change", ["stride", "padding", "groups", "channels", "slice of columns"]
)  # fmt: skip
def test_what_is_no_product_of_matrices(gpu, change: str) -> None:
    """Blocks of the image are no blocks of a matrix, or rows do not start at multiples of 16 bytes."""
    channels = 36 if change == "channels" else 32
    x, w = image(4, channels, 32, 32), image(64, channels // (2 if change == "groups" else 1), 1, 1)
    named = {"stride": {"stride": 2}, "padding": {"padding": 1}, "groups": {"groups": 2}}.get(change, {})

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x = x[:, :, :, 1:30] if change == "slice of columns" else x
        return F.relu(F.conv2d(x, w, **named))

    check(function, x, w)
    assert not gpu.encoded


def test_sizes_known_at_run_time(gpu) -> None:
    function = torch.compile(
        lambda x, w: F.relu(F.conv2d(x, w)), backend=kiln.backend, fullgraph=True, dynamic=True,
        options={"fallback": False, "cache": False},
    )  # fmt: skip
    w = image(48, 16, 1, 1)
    for images, side in ((2, 40), (5, 30), (1, 9)):
        x = image(images, 16, side, side)
        exact = F.relu(F.conv2d(x.double(), w.double()))
        assert ((function(x, w).double() - exact).norm() / exact.norm()).item() < 1e-2
