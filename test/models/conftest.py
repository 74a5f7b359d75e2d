# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Shared by the model tests: one way to judge a compiled model."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kiln
from kiln.frontend.report import CompileReport, collect

#: An error this small is rounding of the last digit, whatever eager's own is.
FLOOR = {torch.float32: 2e-7, torch.bfloat16: 1e-3}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A graph that falls back to ATen would pass for right: make its warning an error."""
    for item in items:
        if "models" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("error:kiln.*:RuntimeWarning"))


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """Frobenius norm of the difference over that of ``exact``, in float64."""
    return float((result.double() - exact).norm() / exact.norm())


@pytest.fixture
def check_model() -> Callable[..., list[CompileReport]]:
    """``check_model(model, *inputs)``: compile once, run every input, hold each against eager and float64.

    ``freezing`` is the option; other keywords are ``torch.compile``'s.

    Returns the reports of all graphs compiled; their number is that of compilations.
    """

    def run(
        model: torch.nn.Module, *inputs: tuple[torch.Tensor, ...], freezing: bool = False, **compile_options: Any
    ) -> list[CompileReport]:
        options = {"fallback": False, "freezing": freezing}
        compiled = torch.compile(model, backend=kiln.backend, fullgraph=True, options=options, **compile_options)
        dtype = next(model.parameters()).dtype
        exact_model = copy.deepcopy(model).double()
        with torch.no_grad(), collect() as reports:
            for arguments in inputs:
                eager = model(*arguments)
                result = compiled(*arguments)
                exact = exact_model(*(a.double() if a.is_floating_point() else a for a in arguments))
                assert result.dtype == eager.dtype
                assert result.shape == eager.shape
                assert result.stride() == eager.stride()
                error, allowed = relative_error(result, exact), 3 * relative_error(eager, exact)
                assert error <= max(allowed, FLOOR[dtype]), f"error {error:.2e}, three times eager's is {allowed:.2e}"
        assert all(report.executor == "kiln" for report in reports)
        return reports

    return run
