# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Integer arguments of either sign: sizes that follow from them are those of eager, and so are the elements."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.exc import BackendCompilerFailed

import kiln
from kiln.frontend.report import collect

PROGRAMS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "rotated": lambda x, k: torch.cat([x[:, k:], x[:, :k]], 1) * 2,
    "rows": lambda x, k: torch.cat([x[k:], x[:k], x]).sin(),
    "cropped": lambda x, k: F.pad(x, (-1, k, 0, -k)).cos(),
    "middle": lambda x, k: torch.cat([x[:, :k].exp(), x[:, k : x.shape[1] - 1], x.flip(1)], 1),
    "column": lambda x, k: x.select(1, k).sin(),
    "rolled": lambda x, k: torch.roll(x, k, 1).sin(),
}
CALLS = [(9, 40, 3), (9, 40, 7), (5, 33, -2), (12, 17, 5), (7, 9, -4), (64, 16, 2)]


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_of_either_sign(name: str, target: str) -> None:
    """Those that are not negative are compiled; one that is, is left to ATen with the reason."""
    torch.manual_seed(0)
    program = PROGRAMS[name]
    torch._dynamo.reset()
    compiled = torch.compile(program, backend=kiln.backend, dynamic=True, options={"target": target})
    for rows, columns, k in CALLS:
        x = torch.randn(rows, columns)
        with collect() as reports:
            torch.testing.assert_close(compiled(x, k), program(x, k))
        for report in reports:
            assert report.executor == "kiln" or k < 0 and "is negative" in report.fallback_reason


def test_a_negative_argument_without_the_fallback() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(PROGRAMS["rotated"], backend=kiln.backend, dynamic=True, options={"fallback": False})
    with pytest.raises(BackendCompilerFailed, match=r"an integer argument \(s\d+\) .* is negative"):
        compiled(torch.randn(5, 33), -2)
