# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of reflected borders in kernels: the border is folded back."""

from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.padding_gradients import padding_decompositions
from kiln.frontend.report import collect

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("shape", "dims", "memory"),
    [
        ((2, 3, 5), 1, torch.contiguous_format),
        ((3, 5), 1, torch.contiguous_format),
        ((2, 3, 5, 6), 2, torch.contiguous_format),
        ((2, 3, 5, 6), 2, torch.channels_last),
        ((3, 2, 6), 2, torch.contiguous_format),
    ],
)
def test_formula(shape: tuple[int, ...], dims: int, memory: Any) -> None:
    """The numbers and the strides of ATen's op."""
    torch.manual_seed(0)
    forward, backward = (
        (aten.reflection_pad1d.default, aten.reflection_pad1d_backward.default)
        if dims == 1
        else (aten.reflection_pad2d.default, aten.reflection_pad2d_backward.default)
    )
    x = torch.randn(shape, dtype=torch.float64).contiguous(memory_format=memory)
    for padding in product([0, 1] if dims == 2 else [0, 1, 2, 4], repeat=2 * dims):
        grad = torch.randn_like(forward(x, padding))
        found = padding_decompositions()[backward](grad, x, padding)
        expected = backward(grad, x, padding)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13, check_stride=True)


def gradient(run: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    y = run(x)
    weights = torch.linspace(1, -1, y.numel()).view(y.shape).bfloat16().to(y.dtype)
    (found,) = torch.autograd.grad(y, x, weights)
    return found


def compiled(function: Any, target: str = "cpu", **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend=kiln.backend, options={"fallback": False, "target": target}, **options)


PADDINGS: list[tuple[tuple[int, ...], tuple[int, ...], Any]] = [
    ((2, 3, 20), (3, 5), torch.contiguous_format),
    ((2, 3, 9, 11), (1, 1, 1, 0), torch.contiguous_format),
    ((2, 3, 9, 11), (1, 1, 1, 1), torch.channels_last),
]


@pytest.mark.parametrize(
    ("target", "dtype"),
    [*(("cpu", t) for t in (torch.float32, torch.bfloat16, torch.float16, torch.float64)), ("tt-cpu", torch.float32)],
)
@pytest.mark.parametrize(("shape", "padding", "memory"), PADDINGS)
def test_kernels_alone(
    shape: tuple[int, ...], padding: tuple[int, ...], memory: Any, dtype: torch.dtype, target: str
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype).contiguous(memory_format=memory)

    def pad(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, padding, mode="reflect")

    exact = gradient(pad, x.double())
    with collect() as reports:
        found = gradient(compiled(pad, target), x)
    assert [report.aten_calls for report in reports] == [[], []]
    rounding = {torch.bfloat16: 2**-8, torch.float16: 2**-10, torch.float32: 1e-6, torch.float64: 1e-13}[dtype]
    torch.testing.assert_close(found.double(), exact, rtol=rounding, atol=1e-6 if dtype.itemsize < 8 else 1e-14)
    assert found.stride() == gradient(pad, x).stride()


@pytest.mark.parametrize(("padding", "dynamic"), [((2, 1, 1, 1), False), ((1, 1, 1, 1), True)])
def test_what_is_left_to_aten(padding: tuple[int, ...], dynamic: bool) -> None:
    """Wide borders of images, and sizes that are known at run time only."""
    x = torch.randn(2, 3, 9, 11)
    with collect() as reports:
        found = gradient(compiled(lambda x: F.pad(x, padding, mode="reflect"), dynamic=dynamic), x)
    assert len(reports[-1].aten_calls) == 1
    torch.testing.assert_close(found, gradient(lambda x: F.pad(x, padding, mode="reflect"), x))
