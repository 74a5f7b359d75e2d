# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sizes of areas in scratch memory."""

from collections.abc import Mapping

__all__ = ["LINE", "apart", "areas", "even_part", "round_up"]

LINE = 64
"""Bytes of a cache line."""


def round_up(x: int, unit: int) -> int:
    """The least multiple of `unit` that is not below x."""
    return -(-x // unit) * unit


def even_part(x: int, most: int) -> int:
    """The size of equal parts of x, as few as there can be of at most `most`; the last may be smaller. 1 of nothing."""
    x = max(x, 1)
    return -(-x // -(-x // most))


def areas(sizes: Mapping[str, int], unit: int) -> dict[str, int]:
    """Where areas of some sizes begin, one behind the other, each at a multiple of `unit`; `end`: what they take."""
    places, top = dict[str, int](), 0
    for name, size in sizes.items():
        places[name] = top
        top += round_up(size, unit)
    return places | {"end": top}


def apart(row: int, line: int) -> int:
    """The pitch of rows in scratch: rows a multiple of a page apart fall into the same cache sets, one line more do
    not. row, line: elements of a row and of a cache line.
    """
    return row + line
