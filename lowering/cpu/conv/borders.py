# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tiles of consecutive pixels of a row of the result, and which of them have an input pixel at each window column."""

from collections.abc import Callable
from dataclasses import dataclass

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.matmul.problem import known

Valid = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Run:
    """Tiles [first, last) of a row that one piece of code computes: `count` pixels each.

    valid: for each window column the range of the tile's pixels that find an input pixel there (the others find
    padding, which adds nothing).
    """

    first: int
    last: int
    count: int
    valid: Valid


def everywhere(count: int, window: int) -> Valid:
    """The ranges of a tile without padding."""
    return ((0, count),) * window


def tile_runs(p: ConvProblem, mr: int) -> list[Run] | None:
    """The tiles of mr pixels (the last one may be smaller) of a row of known size; None where it is not known."""
    if not isinstance(p.columns, int) or not isinstance(p.width, int):
        return None
    low, high = _interior(p, p.width, p.columns)
    return cut_row(p.columns, mr, low, high, p.kernel[1], lambda start, count, z: _valid(p, start, count, z))


def cut_row(
    columns: int, mr: int, low: int, high: int, window: int, valid_of: Callable[[int, int, int], tuple[int, int]]
) -> list[Run]:
    """The tiles of a row: those inside of columns [low, high), which find no padding, and those around them.

    valid_of(start, count, z): the pixels of a tile for which column z of the window lies inside of the input.
    """
    first, last = -(-low // mr), high // mr  # whole tiles inside
    runs: list[Run] = []
    t, tiles = 0, -(-columns // mr)
    while t < tiles:
        if first <= t < last:
            runs.append(Run(t, last, mr, everywhere(mr, window)))
            t = last
            continue
        count = min(mr, columns - t * mr)
        valid = tuple(valid_of(t * mr, count, z) for z in range(window))
        if runs and runs[-1].count == count and runs[-1].valid == valid:
            runs[-1] = Run(runs[-1].first, t + 1, count, valid)
        else:
            runs.append(Run(t, t + 1, count, valid))
        t += 1
    return runs


def _interior(p: ConvProblem, width: int, columns: int) -> tuple[int, int]:
    """Columns [low, high) of the result whose whole window lies inside of an image of known width."""
    low = -(-p.padding[1] // p.stride[1])
    reach = (p.kernel[1] - 1) * p.dilation[1] - p.padding[1]
    return low, min(columns, -(-max(0, width - reach) // p.stride[1]))


def _valid(p: ConvProblem, start: int, count: int, window_column: int) -> tuple[int, int]:
    """The pixels of a tile for which a window column lies inside of the input."""
    assert isinstance(p.width, int)
    stride, before = p.stride[1], p.padding[1] - window_column * p.dilation[1]
    low = max(0, -(-before // stride) - start)
    high = min(count, (p.width - 1 + before) // stride + 1 - start)
    return (low, high) if low < high else (0, 0)


def interior(b: Builder, p: ConvProblem) -> tuple[Index, Index]:
    """Columns [low, high) of the result whose whole window lies inside of the input (high >= low)."""
    columns = known(p.columns)
    if p.padding[1] == 0:
        return 0, columns
    low = b.mini(-(-p.padding[1] // p.stride[1]), columns)
    reach = (p.kernel[1] - 1) * p.dilation[1] - p.padding[1]
    room = b.maxi(b.subi(known(p.width), reach), 0)
    high = b.ceildivi(room, p.stride[1])
    return low, b.maxi(b.mini(high, columns), low)
