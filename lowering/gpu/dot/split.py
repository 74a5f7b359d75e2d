# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Into how many parts the sums of a product are split that has too few tiles for all multiprocessors: the rule."""

from dataclasses import replace

from kiln.lowering.gpu.dot.machine import Machine
from kiln.lowering.gpu.dot.schedule import ProductShape, best_tile, tile_time
from kiln.lowering.gpu.rules import ProductRules, rules_for

__all__ = ["split_parts"]

_GRAIN = 64
"""Terms that parts are multiples of: whole lines of 16-bit elements."""


def split_parts(shape: ProductShape, machine: Machine) -> int:
    """How many parts the sums of a 16-bit product get; 1: none, a program has the whole sum.

    The modelled time is that of the parts side by side, and of a kernel that adds them up, which the pointwise ops that
    follow are part of.
    """
    if shape.dtype not in ("bf16", "f16") or shape.batch != 1 or shape.k is None:
        return 1
    if shape.m is None or shape.n is None or 1 in (shape.m, shape.n):
        return 1
    rules = rules_for(ProductRules)
    loads = 2 * shape.k * (shape.m + shape.n) / machine.memory_rate
    whole = max(loads, tile_time(shape, machine, best_tile(shape, machine)))
    best, parts = whole / rules.part_gain, 1
    for count in range(2, min(rules.most_parts, shape.k // rules.least_part) + 1):
        if shape.k % (count * _GRAIN):
            continue
        part = replace(shape, batch=count, k=shape.k // count)
        added = 2 * 4 * count * shape.m * shape.n / machine.sums_rate + machine.sums_time
        time = max(loads, tile_time(part, machine, best_tile(part, machine))) + added
        if time < best:
            best, parts = time, count
    return parts
