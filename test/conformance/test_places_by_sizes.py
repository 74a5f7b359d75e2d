# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Slices and rolls whose place is an expression of sizes known at run time only: kernels, and right at any size."""

from collections.abc import Callable

import pytest
import torch

from kiln.frontend.report import collect

Program = Callable[[torch.Tensor, int], torch.Tensor]

SLICES: dict[str, Program] = {
    "the middle": lambda x, n: x[:, n // 2 - 2 : n // 2 + 3],
    "a third": lambda x, n: x[:, n // 3 : 2 * n // 3],
    "near the end": lambda x, n: x[:, n - 5 : n - 1],
    "to the end": lambda x, n: x[:, n - 5 :],
    "from the end": lambda x, n: x[:, -(n // 2) :],
    "steps to the end": lambda x, n: x[:, n // 4 :: 2],
    "steps to a size": lambda x, n: x[:, n // 2 : n : 3],
    "steps of the inside": lambda x, n: x[:, 1 : n - 1 : 2],
    "past the end": lambda x, n: x[:, n // 2 : n + 3],
    "a piece": lambda x, n: x.narrow(1, n // 2 - 1, 2),
    "of two dims": lambda x, n: x[x.shape[0] // 2 - 1 : x.shape[0] // 2 + 1, n // 2 - 2 : n // 2 + 2],
    "written": lambda x, n: torch.slice_scatter(x, x[:, :5].cos(), 1, n // 2 - 2, n // 2 + 3),
}
ROLLS: dict[str, Program] = {
    "to the middle": lambda x, n: torch.fft.fftshift(x),
    "and back": lambda x, n: torch.fft.ifftshift(x),
    "by a third": lambda x, n: x.roll(n // 3, 1),
    "to the left": lambda x, n: x.roll(-(n // 2), 1),
    "by one less": lambda x, n: x.roll(n - 1, 1),
    "once around": lambda x, n: x.roll(n, 1),
}
UNKNOWN: dict[str, Program] = {
    "steps from a place that may be negative": lambda x, n: x[:, n - 3 :: 4],
    "farther than once around": lambda x, n: x.roll(2 * n + 1, 1),
    "in memory": lambda x, n: x.roll(n // 2),
    "by another size": lambda x, n: x.roll(x.shape[0] // 2, 1),
}
"""ATen's: a start that counts from the end for one size, and rolls by more than the size, as far as is known."""
KERNELS = {**SLICES, **{f"rolled {name}": program for name, program in ROLLS.items()}}


def _right(program: Program, target: str, call: bool) -> None:
    def whole(x: torch.Tensor) -> torch.Tensor:
        return program(x.sin(), x.shape[1]) * 2

    torch._dynamo.reset()
    with collect() as reports:
        options = {"fallback": False, "verify": "stages", "target": target}
        compiled = torch.compile(whole, backend="kiln", fullgraph=True, dynamic=True, options=options)
        for sizes in ((6, 16), (5, 17), (4, 9), (7, 30), *([(3, 2)] if call else [])):
            x = torch.randn(*sizes)
            torch.testing.assert_close(compiled(x), whole(x))
    assert any(report.aten_calls for report in reports) == call


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("name", KERNELS)
def test_places_that_sizes_decide(name: str, target: str) -> None:
    _right(KERNELS[name], target, call=False)


@pytest.mark.parametrize("name", UNKNOWN)
def test_places_that_are_not_known(name: str) -> None:
    _right(UNKNOWN[name], "cpu", call=True)


def test_a_size_of_two() -> None:
    """Rolls by half of it, rounded up, and by all of it."""
    for name in ("to the middle", "and back", "once around"):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x, roll=ROLLS[name]: roll(x, x.shape[1]), backend="kiln", dynamic=True)
        for sizes in ((3, 2), (2, 3)):
            x = torch.randn(*sizes)
            assert torch.equal(compiled(x), ROLLS[name](x, sizes[1]))
