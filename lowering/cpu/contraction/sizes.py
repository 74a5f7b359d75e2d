# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sizes of areas in scratch memory."""

__all__ = ["LINE", "round_up"]

LINE = 64
"""Bytes of a cache line."""


def round_up(x: int, unit: int) -> int:
    """The least multiple of `unit` that is not below x."""
    return -(-x // unit) * unit
