# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tiles of a convolution on a GPU: those of the matrix product that it is."""

from dataclasses import dataclass

from kiln.lowering.gpu.dot.machine import Machine
from kiln.lowering.gpu.dot.schedule import Known, ProductShape, choose_tile, pow2

_LEAST_STEP = 32


@dataclass(frozen=True)
class ConvShape:
    """rows: output positions of all images. channels, out: of one group. taps: elements of the window.
    dtype as in ProductShape."""

    rows: Known
    groups: int
    channels: int
    out: int
    taps: int
    dtype: str


def choose_conv(shape: ConvShape, machine: Machine) -> dict:
    """The schedule: "kernel" is "implicit" (tensor cores) or "depthwise" (one input channel a group)."""
    if shape.channels == 1 and shape.groups > 1:
        columns = min(64, pow2(shape.groups * shape.out))
        return {
            "kernel": "depthwise",
            "block_m": 2048 // columns,
            "block_n": columns,
            "group_m": 1,
            "num_warps": 4,
            "num_stages": 2,
        }
    k = shape.taps * shape.channels
    product = ProductShape(shape.groups, shape.rows, shape.out, k, (k, 1), (1, k), shape.dtype)
    schedule = choose_tile(product, machine)

    # A step stays within one tap where a tap has channels enough, and wastes none where a smaller step divides them.
    def wasteful(step: int) -> bool:
        return shape.channels < step or shape.channels % step != 0

    while schedule["block_k"] > _LEAST_STEP <= shape.channels and wasteful(schedule["block_k"]):
        schedule["block_k"] //= 2
    return schedule | {"kernel": "implicit"}
