# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""In which order the programs of a grid run: a GPU promises none."""

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.ttcpu.settings import Settings

__all__ = ["program_at"]

_PRIMES = (2147483647, 2147483629, 2147483587, 2147483579, 2147483563, 2147483549, 2147483543, 2147483497)
"""None divides the number of programs, which is below 2^31 (the first would have to be it), so that multiples of one
are in another order, modulo that number, and each is there once."""


def program_at(b: Builder, settings: Settings, turn: Index, total: Index) -> Index:
    """The program that runs when `turn` others have run."""
    if settings.order == "reversed":
        return b.subi(b.subi(total, 1), turn)
    if settings.order == "forward":
        return turn
    prime, start = _PRIMES[settings.seed % len(_PRIMES)], settings.seed // len(_PRIMES) * 7919 + 1
    return b.remi(b.addi(b.muli(turn, prime), start), total)
