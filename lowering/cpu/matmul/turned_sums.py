# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Blocks of sums whose kernel computes the transpose."""

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import pack

__all__ = ["turn_sums"]

_LANES = 16


def turn_sums(
    b: Builder, sums: ir.Value, stride: int, turned: ir.Value, turned_stride: int, rows: Index, cols: Index
) -> None:
    """turned[j, i] = sums[i, j] of f32 for i < rows, j < cols, in registers, 16 x 16 at a time.

    Both buffers have room for multiples of 16 rows and columns.
    """

    def square(i: Index, j: Index) -> None:
        start, target = b.addi(b.muli(i, stride), j), b.addi(b.muli(j, turned_stride), i)
        x = [b.vload(sums, b.addi(start, r * stride), _LANES) for r in range(_LANES)]
        for r, y in enumerate(pack.transpose_registers(b, x)):
            b.vstore(y, turned, b.addi(target, r * turned_stride))

    b.for_(0, rows, _LANES, lambda i: b.for_(0, cols, _LANES, lambda j: square(i, j)))
