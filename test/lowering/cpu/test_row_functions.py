# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Functions of what short rows are reduced to: evaluated for a block of rows in vectors."""

from typing import Any

import pytest
import torch
from rows_support import check

from kiln.lowering import paths

FUNCTIONS: dict[str, Any] = {
    "exp of a sum": lambda x, y: torch.exp(-x.sum(-1)),
    "kernel matrix": lambda x, y: torch.exp(-(x[:100, None] - y[None, :50]).pow(2).sum(-1)),
    "two reductions": lambda x, y: torch.log(x.abs().sum(-1) + 1) * torch.tanh(y.mean(-1)),
    "one behind another": lambda x, y: torch.exp(-(x - x.mean(-1, keepdim=True)).square().sum(-1)),
    "the sum itself too": lambda x, y: (x.sum(-1), torch.sigmoid(x.sum(-1))),
    "beside an element": lambda x, y: torch.tanh(x.amax(-1) - y[:, 1]),
    "keepdim": lambda x, y: torch.sin(x.sum(-1, keepdim=True)),
    "booleans": lambda x, y: torch.where((x > 2).any(-1), torch.exp(y.sum(-1) * 0.1), 1.0),
    "positions": lambda x, y: torch.cos(x.argmax(-1) + y.sum(-1)),
    "all of a row": lambda x, y: torch.exp(-x.view(-1, 4, x.shape[-1]).sum((-1, -2))),
    "rows that are gathered": lambda x, y: torch.exp(-(x * y.t().contiguous().t()).mean(-1)),
}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_numbers(name: str, cpu: str) -> None:
    for rows, length in ((2048, 16), (1100, 20), (1612, 33)):
        torch._dynamo.reset()
        paths.reset()
        x, y = torch.randn(rows, length), torch.randn(rows, length)
        check(FUNCTIONS[name], x, y, 3e-6, **({} if cpu == "native" else {"cpu": cpu}))
        if name == "exp of a sum":
            assert paths.taken()["cpu loops: functions of rows"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "positions"])
def test_types(name: str, dtype: torch.dtype) -> None:
    tolerance = {torch.bfloat16: 5e-2, torch.float16: 1e-2, torch.float64: 1e-13}[dtype]
    x, y = (0.3 * torch.randn(2, 1100, 20)).to(dtype)
    check(FUNCTIONS[name], x, y, tolerance)


def test_number_of_rows_known_at_run_time() -> None:
    function = FUNCTIONS["two reductions"]
    compiled = torch.compile(function, backend="kiln", options={"fallback": False})
    for rows in (20, 33, 64, 17, 2000):
        x = torch.randn(rows, 24)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        assert float((compiled(x, x).double() - function(x.double(), x.double())).abs().max()) < 1e-5


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_whatever_the_threads(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(FUNCTIONS["kernel matrix"], torch.randn(200, 17), torch.randn(200, 17), 3e-6)
    finally:
        torch.set_num_threads(before)


def test_blocks_of_rows_that_are_transposed_too() -> None:
    paths.reset()
    check(lambda x, y: torch.exp(-(x.t() * y).sum(-1)), torch.randn(60, 1040), torch.randn(1040, 60), 3e-6)
    assert paths.taken()["cpu loops: functions of rows"]
    assert paths.taken()["cpu loops: transposed rows"]
