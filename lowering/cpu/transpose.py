# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Transposition in registers, as a network of shuffles."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder

__all__ = ["shuffle_squares", "transpose_registers"]

T = TypeVar("T")


def transpose_registers(b: Builder, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """The transpose of w vectors of w lanes (w a power of two), by 2-operand shuffles.

    First inside 128-bit lanes by unpacks, which are one instruction each, then of the 128-bit blocks by
    exchanges at growing distance (one vperm2f128 or vshuff32x4 each).
    """
    return shuffle_squares(b.shuffle, rows, 128 // ir.VectorType(rows[0].type).element_type.width)


def shuffle_squares(shuffle: Callable[[T, T, list[int]], T], rows: Sequence[T], lanes: int) -> list[T]:
    """The shuffles of `transpose_registers`, for `lanes` elements in 128 bits; shuffle(x, y, lanes) picks from both."""
    w = len(rows)
    group = min(w, lanes)
    out = list(rows)
    # Unpack stages: elements of 1, then 2, ... lanes interleave inside each 128-bit block.
    size = 1
    while size < group:
        blocks, runs = range(0, w, group), range(0, group // 2, size)
        low = [block + e + q + side * w for block in blocks for e in runs for side in range(2) for q in range(size)]
        high = [lane + group // 2 for lane in low]
        mixed = list(out)
        for i in (i for i in range(w) if not i % group & size):
            x, y = out[i], out[i + size]
            mixed[i], mixed[i + size] = shuffle(x, y, low), shuffle(x, y, high)
        out = mixed
        size *= 2
    # The stages leave column c of a group where the bits of c say in reverse.
    bits = group.bit_length() - 1
    places = [int(f"{c:0{bits}b}"[::-1], 2) if bits else 0 for c in range(group)]
    out = [out[base + places[c]] for base in range(0, w, group) for c in range(group)]
    # Exchange of 128-bit blocks: block q of group g swaps with block g of group q.
    distance = group
    while distance < w:
        keep = [lane + (w - distance if lane & distance else 0) for lane in range(w)]
        move = [lane + (w if lane & distance else distance) for lane in range(w)]
        for p in (p for p in range(w) if not p & distance):
            x, y = out[p], out[p + distance]
            out[p], out[p + distance] = shuffle(x, y, keep), shuffle(x, y, move)
        distance *= 2
    return out
