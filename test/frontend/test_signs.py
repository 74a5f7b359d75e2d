# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Integer arguments of either sign: sizes that follow from them are those of eager, and so are the elements."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.report import collect

PROGRAMS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "rotated": lambda x, k: torch.cat([x[:, k:], x[:, :k]], 1) * 2,
    "rows": lambda x, k: torch.cat([x[k:], x[:k], x]).sin(),
    "cropped": lambda x, k: F.pad(x, (-1, k, 0, -k)).cos(),
    "middle": lambda x, k: torch.cat([x[:, :k].exp(), x[:, k : x.shape[1] - 1], x.flip(1)], 1),
    "column": lambda x, k: x.select(1, k).sin(),
    "rolled": lambda x, k: torch.roll(x, k, 1).sin(),
    "scaled": lambda x, k: x * k + k,
    "half": lambda x, k: x[:, k // 2 :].exp(),
    "rest": lambda x, k: x[:, k % 5 :].exp() * (k % 3),
    "diagonal": lambda x, k: x.diagonal(k).sin() + k,
    "triangle": lambda x, k: x.triu(k).tril(k + 3),
    "counted": lambda x, k: torch.arange(k, 9, device=x.device) * x[0, 0],
    "clipped": lambda x, k: x[:, min(k - 5, 3) :].exp(),
    "viewed": lambda x, k: x.repeat(abs(k), 1).view(abs(k), -1).sum(1),
    "summed": lambda x, k: x[:, k:].sum(1) / k,
}
CALLS = [(9, 40, 3), (9, 40, 7), (5, 33, -2), (12, 17, 5), (7, 9, -4), (64, 16, 2)]


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_of_either_sign(name: str, target: str) -> None:
    """One graph for those that are negative, one for the others."""
    torch.manual_seed(0)
    program = PROGRAMS[name]
    torch._dynamo.reset()
    compiled = torch.compile(program, backend=kiln.backend, dynamic=True, options={"target": target})
    for rows, columns, k in CALLS:
        x = torch.randn(rows, columns)
        with collect() as reports:
            torch.testing.assert_close(compiled(x, k), program(x, k))
        for report in reports:
            assert report.executor == "kiln", report.fallback_reason
