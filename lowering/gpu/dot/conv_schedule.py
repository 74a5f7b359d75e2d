# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tiles of a convolution on a GPU: those of the matrix product that it is, but for two things that `max-autotune`
measured in ResNet-50 with 128 images (H200, bf16, microseconds; 1x1 windows, each with its batch norm, residual, relu):

| rows x channels -> outputs | 8 warps | 128x128, 4 warps | others              |
|----------------------------|---------|------------------|---------------------|
| 401408 x 64 -> 256         | 210.1   | 176.1            | 64x256 166.5        |
| 401408 x 256 -> 128        | 116.0   | 97.6             |                     |
| 100352 x 128 -> 512        | 107.8   | 93.8             | 64x256 128.9        |
| 100352 x 512 -> 256        | 73.2    | 68.2             |                     |
| 25088 x 256 -> 1024        | 64.6    | 56.7             |                     |
| 25088 x 1024 -> 512        | 55.4    | 52.0             |                     |
| 6272 x 512 -> 2048         | 43.4    | 44.5             |                     |
| 6272 x 2048 -> 512         | 28.1    | 25.9             |                     |
| 25088 x 1024 -> 256        |         | 4 stages 33.9    | 3 stages 32.2       |
| 401408 x 256 -> 64         |         | 128x64, 3: 94.3  | 128x64, 2: 75.7     |
| 401408 x 64 -> 64          | 68.2    | 55.4             | 64 columns 38.3     |

A tile of 8 warps fills a multiprocessor, and nothing hides its prologue and its stores; and deep pipelines take the
shared memory that further programs of the multiprocessor would need."""

from dataclasses import dataclass

from kiln.lowering.gpu.dot.machine import Machine
from kiln.lowering.gpu.dot.schedule import (
    Known,
    ProductShape,
    pow2,
    resident_stages,
    schedule_of_tile,
    takes_descriptors,
    tiles_by_time,
)

_LEAST_STEP = 32
_MOST_SUMS = 128 * 128
"""Sums of a tile that 4 warps hold."""


def rows_are_taps(channels: int, columns: int) -> bool:
    """Whether a window's rows of so many elements, each with so many channels, are as good as taps with more channels,
    if a row lies in one piece: a tap's channels are no step of the sums, and those of a row are whole ones."""
    return columns > 1 and channels < _LEAST_STEP and channels * columns % _LEAST_STEP == 0


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


def choose_conv(shape: ConvShape, machine: Machine, through_maps: bool = False) -> dict:
    """The schedule: "kernel" is "implicit" (tensor cores), "tensor_map" (the same as a product of matrices; only with
    `through_maps`: the operands are such) or "depthwise" (one input channel a group)."""
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
    columns = max(16, pow2(shape.out))
    tiles = tiles_by_time(product, machine)
    fitting = [tile for tile in tiles if tile[0] * tile[1] <= _MOST_SUMS and tile[1] <= columns]
    described = through_maps and machine.tensor_maps and takes_descriptors(product)
    schedule = schedule_of_tile(product, machine, (fitting or tiles)[0], described)

    # A step stays within one tap where a tap has channels enough, and wastes none where a smaller step divides them.
    def wasteful(step: int) -> bool:
        return shape.channels < step or shape.channels % step != 0

    while schedule["block_k"] > _LEAST_STEP <= shape.channels and wasteful(schedule["block_k"]):
        schedule["block_k"] //= 2
    stages = min(schedule["num_stages"], resident_stages(product, machine, schedule))
    kernel = "tensor_map" if schedule["kernel"] == "tensor_map" else "implicit"
    return schedule | {"kernel": kernel, "num_stages": stages}
