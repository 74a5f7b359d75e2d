# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Corrections of an optimizer's averages in the first steps."""

from typing import Any

import pytest
import torch

import kiln


def compiled(function: Any, target: str) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend=kiln.backend, options={"fallback": False, "target": target})


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_differences_of_powers_from_one_keep_their_digits(target: str) -> None:
    steps = torch.tensor([1.0, 2.0, 100.0, 5000.0])

    def corrections(step: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return 1 - 0.999**step, 0.9**step - 1

    for ours, exact in zip(compiled(corrections, target)(steps), corrections(steps.double()), strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=5e-7, atol=0)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_differences_of_large_powers_from_one_keep_their_digits(target: str) -> None:
    """The logarithm of such a power has many units in the last place of error. The base is the same in float32."""
    exponents = torch.linspace(-1350.0, 300.0, 97)

    def powers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return 1 - 0.9375**x, 0.9375**x - 1

    for ours, exact in zip(compiled(powers, target)(exponents), powers(exponents.double()), strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-6, atol=0)


def test_limits_of_integers_are_whole() -> None:
    bits = torch.arange(1.0, 24.0)

    def limits(bits: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return 2.0**bits - 1, 1 - 0.5**bits

    for ours, exact in zip(compiled(limits, "cpu")(bits), limits(bits.double()), strict=True):
        assert torch.equal(ours.double(), exact)


def test_other_differences_stay() -> None:
    step = torch.tensor([1.0, 7.0])

    def function(step: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return 2 - 0.999**step, (-2.0) ** step - 1, 0.0**step - 1, 1 - step**2.0

    for ours, eager in zip(compiled(function, "cpu")(step), function(step), strict=True):
        torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("foreach", [False, True])
def test_steps_of_adamw_are_as_exact_as_eager(foreach: bool) -> None:
    """Of parameters that are 0, so that the update is not rounded to the digits of the parameter."""
    torch.manual_seed(0)
    gradients = torch.randn(64, 32)

    def update(dtype: torch.dtype, is_compiled: bool) -> torch.Tensor:
        parameter = torch.nn.Parameter(torch.zeros(64, 32, dtype=dtype))
        optimizer = torch.optim.AdamW([parameter], lr=1e-3, foreach=foreach)
        step: Any = compiled(optimizer.step, "cpu") if is_compiled else optimizer.step
        parameter.grad = gradients.to(dtype)
        step()
        return parameter.detach().double()

    exact = update(torch.float64, False)
    ours, eager = (((update(torch.float32, is_ours) - exact) / exact).abs().max() for is_ours in (True, False))
    assert ours <= max(2 * eager, 5e-7)
