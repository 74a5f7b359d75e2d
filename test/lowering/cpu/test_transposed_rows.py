# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reductions along rows of what is contiguous the other way: blocks of rows, transposed on their way to scratch memory."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rows_support import check

from kiln.lowering import paths

ROWS = (16, 17, 40, 64)
LENGTHS = (3, 16, 33, 100, 200)
FUNCTIONS: dict[str, Any] = {
    "softmax": lambda x, y: torch.softmax(x.transpose(-1, -2), -1),
    "sum of products": lambda x, y: (x.transpose(-1, -2) * y).sum(-1),
    "layer norm": lambda x, y: F.layer_norm(x.transpose(-1, -2), x.shape[-2:-1]) * y,
    "mean beside": lambda x, y: (x.transpose(-1, -2) + y, (x.transpose(-1, -2) + y).mean(-1)),
    "a row for all": lambda x, y: (x.transpose(-1, -2) * 0.5 + y[..., :1, :]).amax(-1),
}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_numbers(name: str, cpu: str) -> None:
    for rows in ROWS:
        for length in LENGTHS:
            torch._dynamo.reset()
            x, y = torch.randn(3, length, rows), torch.randn(3, rows, length)
            check(FUNCTIONS[name], x, y, 2e-6, **({} if cpu == "native" else {"cpu": cpu}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_types(name: str, dtype: torch.dtype) -> None:
    tolerance = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-14}[dtype]
    check(FUNCTIONS[name], torch.randn(3, 50, 40).to(dtype), torch.randn(3, 40, 50).to(dtype), tolerance)


def test_integers_and_booleans() -> None:
    def total(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(x.t() > 0, y, 0).sum(-1)

    for dtype in (torch.int8, torch.int32, torch.int64, torch.bool):
        torch._dynamo.reset()
        x, y = torch.randint(0, 2, (100, 48)).to(dtype), torch.randint(-50, 50, (48, 100))
        found = torch.compile(total, backend="kiln", options={"fallback": False})(x, y)
        assert torch.equal(found, total(x, y))


def test_number_of_rows_known_at_run_time() -> None:
    function = FUNCTIONS["softmax"]
    compiled = torch.compile(function, backend="kiln", options={"fallback": False})
    for rows in (20, 33, 64, 17):
        x = torch.randn(2, 60, rows)
        torch._dynamo.maybe_mark_dynamic(x, 2)
        error = (compiled(x, x).double() - function(x.double(), x)).abs().max()
        assert float(error) < 1e-6


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_it_is_taken_whatever_the_threads(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        paths.reset()  # sizes of their own: kernels of earlier graphs are taken
        check(FUNCTIONS["softmax"], torch.randn(7, 90, 50 + threads), torch.randn(1), 1e-6)
        assert paths.taken()["cpu loops: transposed rows"]
    finally:
        torch.set_num_threads(before)


def test_rows_of_two_dims_that_are_no_line() -> None:
    """An operand that changes within a block is none of it."""

    def inside(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        image = x[:, 1:-1, 2:-1].permute(0, 3, 1, 2)
        return (image - image.mean((-1, -2), keepdim=True)) * y

    check(inside, torch.randn(2, 9, 11, 40), torch.randn(2, 40, 7, 8), 1e-6)
    softmax = FUNCTIONS["softmax"]
    check(lambda x, y: softmax(x, y)[:, 1:].sum((-1, -2)), torch.randn(3, 30, 20), torch.randn(1), 1e-6)


def test_several_operands_count_once_however_many_loops_read_them() -> None:
    def softmax(*given: torch.Tensor) -> torch.Tensor:
        x, y, z, w = (v.t() for v in given)
        return (x + y * z - w).softmax(-1)

    given = [torch.randn(200, 170) for _ in range(4)]
    paths.reset()
    found = torch.compile(softmax, backend="kiln", options={"fallback": False})(*given)
    assert paths.taken()["cpu loops: transposed rows"]
    assert float((found.double() - softmax(*(x.double() for x in given))).abs().max()) < 1e-6
