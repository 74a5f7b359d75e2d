# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Backward graphs that write over saved tensors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kiln
from kiln.frontend import native
from kiln.runtime.plan import Launch, Plan

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that are made: of the forward graph, and of the backward graph."""
    found: list[Plan] = []
    make = native.make_runner

    def keep(plan: Plan, *rest: Any) -> Any:
        found.append(plan)
        return make(plan, *rest)

    monkeypatch.setattr(native, "make_runner", keep)
    return found


def overwritten(plan: Plan) -> int:
    """How many results of launches lie in arguments."""
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    written = [p for launch in launches for p in launch.pointers[len(launch.pointers) - launch.results :]]
    return sum(plan.buffers[p.buffer].kind == "input" for p in written)


def sine(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).sin().sum()


def reshaped(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The product is saved as a matrix, its gradient is a stack of matrices until it is multiplied."""
    return (x.view(2, 12, 32) @ w).sin().sum()


def read_twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """One product is saved as it is and transposed, and another one is saved."""
    y = x @ w
    return y.sin().sum() + (y @ w).cos().sum()


def returned(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The gradient itself is as large as what is saved."""
    return (x.cumsum(0).detach().sin() * x).sum() + w.sum()


def check(function: Function, plans: list[Plan], target: str) -> int:
    torch.manual_seed(0)
    x, w = torch.randn(24, 32), torch.randn(32, 32) / 6
    torch._dynamo.reset()
    run = torch.compile(function, backend=kiln.backend, options={"fallback": False, "target": target})
    for step in range(2):
        ours, theirs = ([t.clone().requires_grad_() for t in (x + step, w)] for _ in range(2))
        run(*ours).backward()
        function(*theirs).backward()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)
    return overwritten(plans[-1])


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize(("function", "count"), [(sine, 1), (reshaped, 1), (read_twice, 1), (returned, 0)])
def test_gradients_written_over_what_was_saved(function: Function, count: int, plans: list[Plan], target: str) -> None:
    """Only where nothing else lies in that memory, and where the gradient is not returned."""
    assert check(function, plans, target) == count


def test_graphs_that_are_kept_are_not_written_over(plans: list[Plan]) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(24, 32, requires_grad=True), torch.randn(32, 32)
    torch._dynamo.reset()
    y = torch.compile(sine, backend=kiln.backend, options={"fallback": False})(x, w)
    (first,) = torch.autograd.grad(y, x, retain_graph=True)
    (second,) = torch.autograd.grad(y, x)
    assert torch.equal(first, second)
    assert overwritten(plans[-1]) == 0
