# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of average poolings in kernels: each element of an image adds up the windows that cover it."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.average_gradients import average_decompositions
from kiln.frontend.report import collect

aten = torch.ops.aten

IMAGES = [((2, 3, 18, 19), torch.contiguous_format), ((2, 3, 9, 11), torch.channels_last), ((3, 20, 17), None)]


@pytest.mark.parametrize(("shape", "memory"), IMAGES)
@pytest.mark.parametrize("stride", [1, 2, 3, (2, 1)])
def test_formula(shape: tuple[int, ...], memory: Any, stride: Any) -> None:
    """The numbers and the strides of ATen's op."""
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64)
    x = x if memory is None else x.contiguous(memory_format=memory)
    options = product([1, 2, 3, (3, 2), 6], [0, 1, (1, 0)], [False, True], [False, True], [None, 5])
    for kernel, padding, ceil, include, divisor in options:
        sizes, margins = _pair(kernel), _pair(padding)
        if any(2 * p > k for p, k in zip(margins, sizes, strict=True)):
            continue
        y = F.avg_pool2d(x, kernel, stride, padding, ceil, include, divisor)
        arguments = (torch.randn_like(y), x, sizes, _pair(stride), margins, ceil, include, divisor)
        expected = aten.avg_pool2d_backward.default(*arguments)
        found = average_decompositions()[aten.avg_pool2d_backward.default](*arguments)
        if found is NotImplemented:  # many windows cover an element
            assert stride == 1 and kernel == 6
            continue
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13, msg=f"{arguments[2:]}", check_stride=True)


def _pair(n: Any) -> list[int]:
    return [n, n] if isinstance(n, int) else list(n)


POOLINGS: list[tuple[Any, tuple[int, ...]]] = [
    (lambda x: F.avg_pool2d(x, 2), (2, 3, 8, 10)),
    (lambda x: F.avg_pool2d(x, 2), (2, 3, 9, 17)),
    (lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 3, 9, 19)),
    (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), (2, 3, 10, 12)),
    (lambda x: F.avg_pool2d(x, (3, 2), (1, 3), divisor_override=5), (3, 10, 19)),
    (lambda x: F.avg_pool1d(x, 4, 3, 2), (2, 3, 20)),
    (lambda x: F.avg_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0)), (2, 2, 5, 6, 17)),
    (lambda x: F.avg_pool2d(x, 2, (6, 4)), (2, 3, 12, 18)),
    (lambda x: F.adaptive_avg_pool2d(x, (2, 5)), (2, 3, 8, 10)),
    (lambda x: F.adaptive_avg_pool3d(x, (2, 1, 3)), (2, 3, 4, 5, 6)),
]


def gradient(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    y = run(x)
    weights = torch.linspace(1, -1, y.numel()).view(y.shape).bfloat16().to(y.dtype)
    (found,) = torch.autograd.grad(y, x, weights)
    return found


def compiled(function: Any, target: str = "cpu", **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend=kiln.backend, options={"fallback": False, "target": target}, **options)


@pytest.mark.parametrize(
    ("target", "dtype"),
    [*(("cpu", t) for t in (torch.float32, torch.bfloat16, torch.float16, torch.float64)), ("tt-cpu", torch.float32)],
)
@pytest.mark.parametrize(("pool", "shape"), POOLINGS)
def test_kernels_alone(pool: Any, shape: tuple[int, ...], dtype: torch.dtype, target: str) -> None:
    if len(shape) == 5 and dtype.itemsize == 2:
        pytest.skip("ATen has no average pooling of volumes in this type")
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    images = [x] + ([x.contiguous(memory_format=torch.channels_last)] if x.dim() == 4 else [])
    for image in images:
        exact = gradient(pool, image.double())
        with collect() as reports:
            found = gradient(compiled(pool, target), image)
        assert not any(report.aten_calls for report in reports)
        # Gradients are sums of a few, in f32, and are rounded once.
        rounding = {torch.bfloat16: 2**-8, torch.float16: 2**-10, torch.float32: 1e-6, torch.float64: 1e-13}[dtype]
        torch.testing.assert_close(found.double(), exact, rtol=rounding, atol=1e-6 if dtype.itemsize < 8 else 1e-14)
        assert found.stride() == gradient(pool, image).stride()


def test_any_number_of_images() -> None:
    """The sizes of the windows' dims are known, that of the batch is not."""

    def pool(x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x, 3, 2, 1).sin()

    run = compiled(pool)
    for n in (2, 5, 3):
        x = torch.randn(n, 4, 9, 20)
        with collect() as reports:
            found = gradient(run, x)
        assert not any(report.aten_calls for report in reports)
        torch.testing.assert_close(found, gradient(pool, x))


@pytest.mark.parametrize(
    ("pool", "dynamic"),
    [
        (lambda x: F.avg_pool2d(x, 6, 1), False),  # 36 windows cover an element
        (lambda x: F.adaptive_avg_pool2d(x, 5), False),  # windows of unlike sizes
        (lambda x: F.avg_pool2d(x, 2, 5), False),  # steps that are longer than those measured to be faster
        (lambda x: F.avg_pool2d(x, 2), False),  # rows shorter than a vector, into which windows don't fit
        (lambda x: F.avg_pool2d(x, 3, 1, 1), True),
    ],
)
def test_what_is_left_to_aten(pool: Any, dynamic: bool) -> None:
    x = torch.randn(2, 3, 9, 11)
    with collect() as reports:
        found = gradient(compiled(pool, dynamic=dynamic), x)
    assert [len(report.aten_calls) for report in reports] == [0, 1]
    torch.testing.assert_close(found, gradient(pool, x))
