# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checked execution of kernels that read at computed positions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln  # noqa: F401 - makes backend="kiln" known in a checkout that is not installed
from kiln.runtime.checked.checker import LaunchChecker


def compiled(model: Callable[..., Any], target: str = "cpu") -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(
        model, backend="kiln", options={"check": True, "fallback": False, "cache": False, "target": target}
    )


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_positions_that_are_in_bounds_by_themselves(target: str, checkers: list[LaunchChecker]) -> None:
    """Of tables, of loops, and computed in floats, by one kernel or another: proved, too, where it is a GPU's."""

    def resized(x: torch.Tensor) -> Any:
        small, large = (F.interpolate(x, size=size, mode="bilinear") for size in ((11, 20), (9, 300)))
        return small, large, x[..., [3, 0, 6]] * 2, x[..., 6 - torch.arange(7)] * 2, torch.roll(x, 2, 3) * 2

    x = torch.randn(2, 3, 5, 7)
    for found, expected in zip(compiled(resized, target)(x), resized(x), strict=True):
        torch.testing.assert_close(found, expected)
    assert checkers[0].checked and not checkers[0].skipped


def test_where_rounding_decides_what_is_read(checkers: list[LaunchChecker]) -> None:
    """Either neighbour is right."""
    x = torch.randn(64, 32)
    compiled(lambda x: x[:, (torch.arange(300, dtype=torch.bfloat16) * 0.1).long()] * 2)(x)
    assert checkers[0].checked and not checkers[0].skipped
