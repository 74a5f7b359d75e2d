# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Values that an op behind a product reads and the program needs as well: the product's kernel stores them, whatever dims
they have besides its rows and columns.
"""

import pytest
import torch

Tensor = torch.Tensor


def per_row(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """A product of a single column, as images of one pixel; the other value has no dim of columns."""
    scale = torch.rsqrt(v[:, 0] + 0.5)
    return (x @ w).reshape(1, -1, 1, 1) * (2 * scale).reshape(1, -1, 1, 1), scale


def in_a_row(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.rsqrt(v + 0.5).reshape(1, *v.shape, 1)
    return (x @ w).reshape(1, *v.shape, 1).relu() * scale, scale


def split_rows(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.sigmoid(v).reshape(2, -1, v.shape[1])
    return (x @ w).reshape(2, -1, v.shape[1]) * scale, scale


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("program", "sizes"),
    [
        *((per_row, sizes) for sizes in ((240, 1), (1, 1))),
        *((in_a_row, sizes) for sizes in ((240, 1), (1, 1), (48, 17), (1, 48))),
        *((split_rows, sizes) for sizes in ((240, 1), (48, 17))),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_both_are_right(program, sizes, dtype, target):
    rows, columns = sizes
    x, w, v = (torch.randn(*shape).to(dtype) for shape in ((rows, 64), (64, columns), (rows, columns)))
    v = v.abs()
    found = torch.compile(program, backend="kiln", options={"target": target, "fallback": False})(x, w, v)
    for ours, exact in zip(found, program(x.double(), w.double(), v.double()), strict=True):
        assert (ours.double() - exact).norm() <= (1e-5 if dtype is torch.float32 else 1e-2) * exact.norm()
