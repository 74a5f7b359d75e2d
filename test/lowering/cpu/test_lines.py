# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Lanes that lie on a line with a jump, and lanes a few elements apart: what is loaded is what eager reads."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import kiln
from kiln.lowering import paths

Program = Callable[[torch.Tensor], list[torch.Tensor]]


def _columns(x: torch.Tensor) -> list[torch.Tensor]:
    """Sums of neighbours: columns of tables of 2 to 9, from their first and their last column, whole and in part."""
    found: list[torch.Tensor] = []
    for n in range(2, 10):
        table = x.reshape(-1)[: x.numel() // n * n].view(-1, n)
        found += [table[:, 0] + table[:, -1], table[1:-1, n // 2] + 1]
    return found


def _merged(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.stack([a, b], -1).flatten(1)


def _points(x: torch.Tensor) -> list[torch.Tensor]:
    """Stacks of 2 to 8 along the last dim, of what they share and not; with results that lack this dim."""
    found: list[torch.Tensor] = []
    for n in range(2, 9):
        found += [torch.stack([x * (k % 3) + x[0] for k in range(n)], -1), (x + n).T.contiguous()]
        found.append(torch.stack([x > k for k in range(n)], -1))
    return [*found, torch.stack([x, x + 1, x * 2], -1).transpose(0, 1).contiguous()]


PROGRAMS: dict[str, tuple[Program, str]] = {
    "rolls": (lambda x: [torch.roll(x, s, d) + x for s in (1, -1, 16, 31, -32) for d in (0, 1)], "two lines"),
    "rolls of rolls": (lambda x: [torch.roll(torch.roll(x, (3, 5), (0, 1)) + 1, (2, -7), (0, 1)) * 2], "two lines"),
    "rolls of all": (lambda x: [torch.roll(x, 29) + torch.roll(x, -1)], "two lines"),
    "sums of rolls": (lambda x: [torch.roll(x, 2, 1).sum(1), (torch.roll(x, 2, 1) + x).sum(0)], "two lines"),
    "rolls in pads": (lambda x: [F.pad(torch.roll(x, 3, 1), (2, 1, 1, 0)) + 1], "two lines"),
    "parts of rows, flat": (lambda x: [x[:, 2:].reshape(-1) + x[:, :-2].reshape(-1)], ""),
    "columns": (_columns, "interleaved"),
    "backwards": (lambda x: [x.flip(1) + x, x[:, ::2].flip(1) + 1, x.flip((0, 1)) * 2, x.flip(1).sum(0)], "backwards"),
    "interleaved": (lambda x: [torch.stack([x + 1, -x], -1).flatten(1), torch.stack([x, x * 2] * 2, -1).flatten()], ""),
    "interleaved twice": (
        lambda x: [_merged(_merged(x, x * 3) + 1, _merged(x - 2, -x)), _merged(x.T, x.T + 1).sum(1)],
        "",
    ),
    "points": (_points, ""),
    "pixels": (
        lambda x: [(x.reshape(-1)[: x.numel() // n * n].view(-1, n) * 2 + 1).T.contiguous() for n in range(2, 9)],
        "interleaved",
    ),
    "repeated": (
        lambda x: (
            [x.repeat_interleave(k, 1) + 1 for k in (2, 3, 4, 8)]
            + [torch.stack([x[:, 1:].repeat_interleave(2, 1), x[:, 1:].repeat_interleave(2, 1) + 3], 2).flatten(1)]
        ),
        "pieces",
    ),
    "shuffled pixels": (lambda x: [F.pixel_shuffle(x[:24, :32].reshape(2, 8, 6, 8), 2) * 2], ""),
    "every other": (lambda x: [x[:, ::2] + 1, x[:, 1::3] + 1, x[::2, 2::4] + x[::2, 1:-1:4]], "interleaved"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("columns", [35, 70])
def test_as_eager(name: str, dtype: torch.dtype, columns: int) -> None:
    program, path = PROGRAMS[name]
    x = torch.randint(-40, 40, (27, columns)).to(dtype)
    torch._dynamo.reset()
    paths.reset()
    found = torch.compile(program, backend=kiln.backend, options={"fallback": False})(x)
    for a, b in zip(found, program(x), strict=True):
        assert torch.equal(a, b)
    if dtype == torch.float32 and columns == 70:
        assert not path or paths.taken().get(f"cpu loads: {path}")
        assert name != "points" or paths.taken().get("cpu stores: interleaved")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("name", ["rolls", "rolls of rolls", "rolls of all", "sums of rolls", "rolls in pads"])
def test_rolls_of_any_size(name: str, dtype: torch.dtype) -> None:
    program, path = PROGRAMS[name]
    torch._dynamo.reset()
    paths.reset()
    compiled = torch.compile(program, backend=kiln.backend, dynamic=True, options={"fallback": False})
    for rows, columns in ((27, 70), (5, 300), (33, 7), (2, 3)):
        x = torch.randint(-40, 40, (rows, columns)).to(dtype)
        for a, b in zip(compiled(x), program(x), strict=True):
            assert torch.equal(a, b)
    assert name in ("rolls in pads", "sums of rolls", "rolls of all") or paths.taken().get(f"cpu loads: {path}")
