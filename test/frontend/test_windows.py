# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Windows of images as columns, the columns back in an image, and their gradients: eager's numbers, in Kiln's kernels."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import kiln

WINDOWS: dict[str, dict[str, Any]] = {
    "overlapping": {"kernel_size": 3, "padding": 1},
    "patches": {"kernel_size": (2, 3), "stride": (2, 3)},
    "strided": {"kernel_size": 3, "padding": 1, "stride": 2},
    "with holes": {"kernel_size": 3, "padding": 2, "dilation": 2},
    "unlike": {"kernel_size": (5, 2), "padding": (3, 1), "stride": (3, 1), "dilation": (1, 2)},
    "with gaps": {"kernel_size": 2, "stride": 4},
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_as_eager(name: str, dynamic: bool) -> None:
    window = WINDOWS[name]
    shape = (2, 3, 12, 15) if name != "patches" else (3, 10, 12)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=not dynamic)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        columns = F.unfold(x, **window)
        weight = torch.arange(columns.shape[-1], dtype=x.dtype) + 1
        return columns, F.fold(columns * weight, x.shape[-2:], **window)

    torch._dynamo.reset()
    compiled = torch.compile(program, backend=kiln.backend, dynamic=dynamic, options={"fallback": False})
    found, expected = compiled(x), program(x)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    if not dynamic:
        gradients = [torch.autograd.grad(sum((y * y).sum() for y in ys), x) for ys in (found, expected)]
        torch.testing.assert_close(*gradients)


def test_kernels() -> None:
    """Not one call of ATen."""
    x = torch.randn(2, 3, 12, 15)
    report = str(kiln.explain(lambda x: F.fold(F.unfold(x, 3) * x.mean(), (12, 15), 3), x))
    assert "no ATen call is left" in report
