# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels for the GPU, run as loops on the CPU, against PyTorch in float64: every kind of tile, odd sizes, all types."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln  # noqa: F401 - makes backend="kiln" known

r = torch.randn


def _ints(*shape: int, low: int = -50, high: int = 50, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=dtype)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "chain": (lambda x: torch.sigmoid(torch.relu(x * 2 + 1) * 0.5), lambda: (r(333, 77),)),
    "scalar": (lambda x: x * 2, lambda: (r(()),)),
    "empty": (lambda x: x * 2, lambda: (r(0, 33),)),
    "row broadcast": (lambda x, b: F.gelu(x + b) * x, lambda: (r(65, 130), r(130))),
    "outer product": (lambda x, y: x[:, None] * y[None, :], lambda: (r(70), r(33))),
    "strided": (lambda x: x[::2, 1::3] * 2, lambda: (r(70, 33),)),
    "transpose": (lambda x, y: x.t() + y, lambda: (r(65, 130), r(130, 65))),
    "permute": (lambda x: x.permute(2, 0, 1).contiguous() * 2, lambda: (r(7, 33, 65),)),
    "flip and roll": (lambda x: torch.roll(x.flip(1), 3, 0), lambda: (r(37, 30),)),
    "pad": (lambda x: F.pad(x, (1, 2, 3, 4)) + 1, lambda: (r(7, 9),)),
    "cat": (lambda x, y: torch.cat([x, y], 1) * 2, lambda: (r(7, 9), r(7, 5))),
    "gather rows": (lambda i, w: w[i] * 2, lambda: (_ints(7, 9, low=0), r(50, 33))),
    "softmax": (lambda x: torch.softmax(x, -1), lambda: (r(37, 300),)),
    "softmax of columns": (lambda x: torch.softmax(x, 0), lambda: (r(137, 30),)),
    "softmax of many rows": (lambda x: torch.softmax(x, -1), lambda: (r(1000, 40),)),
    "softmax of long rows": (lambda x: torch.softmax(x, -1), lambda: (r(3, 50000),)),
    "softmax of one expanded element": (lambda x, w: w * torch.softmax(x.expand(40000), 0), lambda: (r(1), r(40000))),
    "layer norm of long rows": (lambda x, w: F.layer_norm(x, (40000,), w, w), lambda: (r(2, 40000), r(40000))),
    "softmax of a batch of one": (lambda x: torch.softmax(x, -1), lambda: (r(1, 3, 5, 70),)),
    "layer norm": (lambda x, w: F.layer_norm(x, (300,), w, w), lambda: (r(37, 300), r(300))),
    "group norm": (lambda x, w: F.group_norm(x, 2, w, w), lambda: (r(2, 4, 7, 9), r(4))),
    "batch norm": (lambda x, m, v: F.batch_norm(x, m, v), lambda: (r(2, 3, 17, 19), r(3), r(3).abs())),
    "sum": (lambda x: (x * x).sum(), lambda: (r(37, 300),)),
    "sum of columns": (lambda x: (x * x).sum(0), lambda: (r(370, 300),)),
    "sum of the middle": (lambda x: (x * x).sum(1), lambda: (r(5, 37, 30),)),
    "sum of nothing": (lambda x: x.sum(0), lambda: (r(0, 33),)),
    "several results": (lambda x: (x.abs().sum(0), x.abs().sum(1), x + 1), lambda: (r(70, 33),)),
    "variance": (lambda x: torch.var_mean(x, (0, 2)), lambda: (r(7, 33, 65) + 3,)),
    "maximum": (lambda x: x.max(1), lambda: (r(37, 300),)),
    "argmax": (lambda x: x.argmax(0), lambda: (r(37, 300),)),
    "any": (lambda x: (x > 2).any(1), lambda: (r(37, 30),)),
    "product": (lambda x: (1 + x * 0.01).prod(1), lambda: (r(37, 300),)),
    "running sum": (lambda x: (x * x).cumsum(1), lambda: (r(37, 300),)),
    "running sum of columns": (lambda x: (x * x).cumsum(0), lambda: (r(137, 30),)),
    "running sum of long rows": (lambda x: (x * x).cumsum(1), lambda: (r(3, 9300),)),
    "max pool": (lambda x: F.max_pool2d(x, 3, 2, 1), lambda: (r(2, 3, 17, 19),)),
    "avg pool": (lambda x: F.avg_pool2d(x, 7), lambda: (r(2, 3, 17, 19),)),
    "cross entropy": (lambda x, y: F.cross_entropy(x, y), lambda: (r(70, 33), _ints(70, low=0, high=33))),
    "int8 sum": (lambda x: (x * 3).sum(1, dtype=torch.int8), lambda: (_ints(33, 40, dtype=torch.int8),)),
    "division": (
        lambda x, y: (x // y, x % y),
        lambda: (_ints(77, dtype=torch.int32), _ints(77, low=1, dtype=torch.int32)),
    ),
    "library": (
        lambda x: (
            torch.tanh(x),
            torch.log1p(x.abs()),
            torch.atan(x),
            torch.round(x),
            x.abs() ** 1.7,
            torch.sin(9 * x),
        ),
        lambda: (r(37, 30),),
    ),
}


def _compare(fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...], tolerance: float, dynamic: bool = False) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(fn, backend="kiln", dynamic=dynamic, options={"target": "tt-cpu", "fallback": False})
    found = compiled(*inputs)
    expected = fn(*[x.double() if x.is_floating_point() else x for x in inputs])
    if isinstance(found, torch.Tensor):
        found, expected = (found,), (expected,)
    for f, e in zip(found, expected, strict=True):
        assert f.shape == e.shape
        if f.is_floating_point():
            error = (f.double() - e.double()).norm() / max(1e-30, e.double().norm().item())
            assert f.numel() == 0 or error < tolerance
        else:
            assert torch.equal(f, e)


@pytest.mark.parametrize("name", CASES)
def test_float32(name: str) -> None:
    fn, inputs = CASES[name]
    _compare(fn, inputs(), 3e-6)


@pytest.mark.parametrize("name", ["chain", "softmax", "layer norm", "sum of columns", "running sum", "transpose"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 1e-2), (torch.float16, 2e-3), (torch.float64, 1e-13)]
)
def test_other_floats(name: str, dtype: torch.dtype, tolerance: float) -> None:
    fn, inputs = CASES[name]
    _compare(fn, tuple(x.to(dtype) for x in inputs()), tolerance)


@pytest.mark.parametrize(
    "name", ["chain", "softmax", "layer norm", "sum of columns", "running sum", "transpose", "cat"]
)
def test_dynamic_sizes(name: str) -> None:
    fn, inputs = CASES[name]
    _compare(fn, inputs(), 3e-6, dynamic=True)
