# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Into how many parts the sums of a product are split that has too few tiles for all multiprocessors: the rule."""

from dataclasses import replace

from kiln.lowering.gpu.dot.machine import Machine
from kiln.lowering.gpu.dot.schedule import ProductShape, best_tile, tile_time

__all__ = ["split_parts"]

_LEAST_PART = 256
"""Terms that a part has at least: shorter ones are over before their loads run side by side."""
_GRAIN = 64
"""Terms that parts are multiples of: whole lines of 16-bit elements."""
_MOST_PARTS = 64
_GAIN = 1.25
"""How many times faster the model has to find it."""


def split_parts(shape: ProductShape, machine: Machine) -> int:
    """How many parts the sums of a 16-bit product get; 1: none, a program has the whole sum.

    The modelled time is that of the parts side by side, and of a kernel that adds them up, which the pointwise ops that
    follow are part of. Measured on an H200 with bf16, a bias and ReLU behind (microseconds; eager:
    two kernels, without the bias):

    | m x n x k       | parts   | split | whole | eager  |
    |-----------------|---------|-------|-------|--------|
    | 64x64x16384     | 32      | 6.7   | 32.8  | 10.5   |
    | 128x256x8192    | 8       | 7.3   | 18.3  | 11.6   |
    | 128x128x4096    | 8       | 5.9   | 8.4   | 11.0   |
    | 32x1024x4096    | 4 (8)   | 7.8   | 8.6   | 10.8   |
    | 256x256x16384   | 8       | 11.4  | 29.8  | 14.9   |
    | 512x512x8192    | 4       | 14.5  | 17.7  | 17.6   |
    | 64x256x2048     | 1 (4)   | 5.5   | 5.9   | 9.1    |
    | 256x1024x4096   | 1       | 11.3  | 10.0  | 12.8   |
    | 512x768x3072    | 1       | 13.3  | 9.2   | 12.3   |
    """
    if shape.dtype not in ("bf16", "f16") or shape.batch != 1 or shape.k is None:
        return 1
    if shape.m is None or shape.n is None or 1 in (shape.m, shape.n):
        return 1
    loads = 2 * shape.k * (shape.m + shape.n) / machine.memory_rate
    whole = max(loads, tile_time(shape, machine, best_tile(shape, machine)))
    best, parts = whole / _GAIN, 1
    for count in range(2, min(_MOST_PARTS, shape.k // _LEAST_PART) + 1):
        if shape.k % (count * _GRAIN):
            continue
        part = replace(shape, batch=count, k=shape.k // count)
        added = 2 * 4 * count * shape.m * shape.n / machine.sums_rate + machine.sums_time
        time = max(loads, tile_time(part, machine, best_tile(part, machine))) + added
        if time < best:
            best, parts = time, count
    return parts
