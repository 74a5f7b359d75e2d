# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Loops that are cut at the borders of concatenations and pads: against float64, with one thread and with several."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import kiln
from kiln.lowering import paths

Program = Callable[[torch.Tensor], torch.Tensor | tuple[torch.Tensor, ...]]


def _filter(x: torch.Tensor, dim: int) -> torch.Tensor:
    y, steps = torch.zeros_like(x[0]), []
    for row in x:
        y = 0.5 * y + row.sin()
        steps.append(y)
    return torch.stack(steps, dim)


def _shifted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    moved = torch.stack([torch.roll(x, (i, 2 - i), (0, 1)) for i in range(5)])
    return moved, moved.sum(0)


def _table(x: torch.Tensor, columns: int) -> torch.Tensor:
    return x.reshape(-1)[: 7 * columns].view(7, columns)


def _wavelets(x: torch.Tensor) -> torch.Tensor:
    low, steps = _table(x, 256), []
    for _ in range(3):
        steps.append(low[:, ::2] - low[:, 1::2])
        low = low[:, ::2] + low[:, 1::2]
    return torch.cat([low, *steps[::-1]], 1)


def _colours(x: torch.Tensor) -> torch.Tensor:
    red, green, blue = x[:69].view(3, 23, 33).unbind(0)
    grey = 0.3 * red + 0.6 * green + 0.1 * blue
    return torch.stack([grey, 0.5 * (blue - grey), red - grey])


PROGRAMS: dict[str, Program] = {
    "long pieces": lambda x: torch.cat([x.exp(), x[:, :].cos(), x[3:7]], 0) * 2,
    "short pieces": lambda x: _filter(x, 0),
    "pieces along the lanes": lambda x: _filter(x, 1),
    "wide pieces along the lanes": lambda x: torch.cat([_table(x, 128) * 2, _table(x, 256).sin(), _table(x, 101)], 1),
    "wavelets": _wavelets,
    "colours": _colours,
    "filter": lambda x: _filter(_table(x, 256).view(7, 8, 32), 1),
    "sum over pieces": _shifted,
    "inside of a pad": lambda x: F.pad(x, (0, 0, 3, 5), value=1.5).exp() + F.pad(x, (0, 0, 5, 3)).sin(),
    "pads of two dims": lambda x: F.pad(x[None, :, :, None] * torch.ones(3), (0, 0, 2, 5, 4, 1), value=2.0).sin(),
    "reflected": lambda x: F.pad(
        x.reshape(2, 5, 7, 33).permute(0, 3, 1, 2).expand(2, 33, 5, 7), (3, 2, 1, 4), "reflect"
    ),
    "pieces of pieces": lambda x: torch.cat([torch.cat([x[:2], x[5:]]), F.pad(x[:4], (0, 0, 1, 0))]).tanh(),
    "mean of pieces": lambda x: torch.cat([x[None] + 1, x[None, :, :] * 3, x.abs()[None]]).mean((0, 1)),
    "nothing in a piece": lambda x: torch.cat([x[:0], x, x[4:4]]) - 1,
}

TAKEN = {
    "wide pieces along the lanes": "cpu loops: lanes cut at concatenations",
    **dict.fromkeys(("wavelets", "colours", "filter"), "cpu cuts: pieces in one nest"),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_against_float64(name: str, threads: int) -> None:
    x = torch.randn(70, 33)
    expected = PROGRAMS[name](x.double())
    torch._dynamo.reset()
    paths.reset()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = torch.compile(PROGRAMS[name], backend=kiln.backend, options={"fallback": False})(x)
    finally:
        torch.set_num_threads(before)
    if threads == 1 and name in TAKEN:  # with several threads the kernel is a known one
        assert paths.taken().get(TAKEN[name])
    for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected)), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)
