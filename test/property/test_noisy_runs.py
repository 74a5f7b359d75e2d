# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The errors of the judge's noisy runs are those that roundings have."""

from contextlib import nullcontext

import pytest
import torch

from benchmarks.fuzz.gradients import derive, leaves
from benchmarks.fuzz.judge import Reference, WrongResult
from benchmarks.fuzz.program import Input, Program
from benchmarks.fuzz.roundings import HALF_ULP, Runs


@pytest.mark.parametrize(("deviations", "is_right"), [(4, True), (12, False)])
def test_a_kink_that_rounding_passes_in_few_of_many_elements(deviations: int, is_right: bool) -> None:
    """A graph with 100,000 elements near a kink has some on its other side that are four deviations away."""
    one = torch.ones(1)

    def sample(k: int, scale: float) -> list[torch.Tensor]:
        return [(deviations + scale * torch.randn(1, generator=torch.Generator().manual_seed(k))).sign().double()]

    found = Reference(Program([], [], [0]), [], [one], [one.double()], sample)
    with nullcontext() if is_right else pytest.raises(WrongResult):
        found.compare("sign", -one, 0)


def test_equal_numbers_have_equal_errors_in_some_runs() -> None:
    """A sum of equal numbers is off by as many roundings as it has terms."""
    program = Program([Input((256,), torch.bfloat16, 0, values="equal")], ["v0 / 7", "v1.float().sum()"], [2])
    runs = Runs(program)
    runs.eager(program.make())
    wide = runs.wide([x.double() for x in program.make()])
    far = [(runs.noisy([x.double() for x in program.make()], k)[2] / wide[2] - 1).abs() for k in range(12)]
    assert (
        max(far[k] for k in (5, 8, 11)) > 0.3 * HALF_ULP[torch.bfloat16] > 2 * max(far[k] for k in (0, 1, 2, 4, 7, 10))
    )


def test_gradients_of_sigmoids_near_one_have_the_rounding_of_the_result() -> None:
    """`1 - s` is 0.0003 of s here: a rounding of s is a thousand of the difference."""
    program = Program([Input((4, 64), torch.float32, 0)], ["v0 * 0.1 + 8", "torch.sigmoid(v1)"], [2])
    runs = Runs(program)
    runs.eager(leaves(program))
    exact, noisy = (
        derive(program, values, [values[2]])[0]
        for values in (
            runs.wide(leaves(program, dtype=torch.float64)),
            runs.noisy(leaves(program, dtype=torch.float64), 0),
        )
    )
    assert exact is not None
    assert noisy is not None
    assert 500 < (noisy / exact - 1).abs().max() / HALF_ULP[torch.float32] < 10000


def test_gelus_near_zero_have_the_roundings_of_what_cancels() -> None:
    """So the largest of two such numbers may be the other one."""
    program = Program([Input((4, 64), torch.float32, 0)], ["v0 * 0.1 - 6.8", "F.gelu(v1)"], [2])
    runs = Runs(program)
    runs.eager(program.make())
    given = [x.double() for x in program.make()]
    errors = runs.noisy(given, 0)[2] - runs.wide(given)[2]
    assert 1 < errors.abs().max() / HALF_ULP[torch.float32] < 8
