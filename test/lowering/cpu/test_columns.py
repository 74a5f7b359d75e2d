# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reductions along columns whose number is known at run time: wide blocks, single vectors behind them, a masked rest."""

import pytest
import torch

FUNCTIONS = {
    "sum": lambda x: x.sum(0),
    "mean of squares": lambda x: (x * x).mean(0),
    "variance": lambda x: x.var(0, unbiased=False),
    "largest": lambda x: x.amax(0),
}


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    torch._dynamo.reset()
    yield
    torch.set_num_threads(before)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_against_float64(name, threads):
    function = FUNCTIONS[name]
    run = torch.compile(function, backend="kiln", dynamic=True)
    for rows in (2, 7, 300):
        for columns in (3, 15, 16, 17, 63, 64, 65, 80, 81, 145, 1000):
            for x in (torch.randn(rows, columns), torch.randn(columns, rows).t()):
                exact = function(x.double())
                error = (run(x).double() - exact).abs().max() / exact.abs().max()
                assert float(error) < 3e-6, (rows, columns, x.stride())


def test_long_columns_stay_accurate(threads):
    """Of 50,000 terms, half of them equal: the sums of 224 chunks of 224 terms were off by 2e-6."""
    torch.manual_seed(0)
    x = torch.randn(50_000, 65)

    def sums(x: torch.Tensor) -> list[torch.Tensor]:
        return [FUNCTIONS[name](x.relu()) for name in ("sum", "mean of squares", "variance")]

    for result, exact in zip(torch.compile(sums, backend="kiln")(x), sums(x.double()), strict=True):
        assert float(((result - exact) / exact).abs().max()) < 7e-7
