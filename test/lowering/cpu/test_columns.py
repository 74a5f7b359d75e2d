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
