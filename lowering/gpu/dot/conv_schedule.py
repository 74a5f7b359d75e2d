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
shared memory that further programs of the multiprocessor would need.
"""

from dataclasses import asdict, dataclass, replace

from kiln.dialects.schedules.gpu import (
    ConvSchedule,
    DepthwiseConvSchedule,
    ImplicitConvSchedule,
    SlidingConvSchedule,
    TmaConvSchedule,
    TmaSchedule,
)
from kiln.lowering.gpu.dot.conv_window import WRITTEN_OUT
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
_NARROW = (64, 32)
"""The model's tile for up to 32 outputs. With windows, whose addresses each step computes, one of twice the rows is
faster (us; batch norm and ReLU behind): 3x3, stride 2, 3 -> 32 @ 224, 64 images 28.0 (45.0), 3x3, 32 -> 32 @ 112, 64
images 86 (113, cuDNN 104), 5x5, stride 2, 3 -> 32 @ 224, 32 images, by pixels as channels 45.1 (57.7, cuDNN 58.2)."""
_COLUMNS = (8, 7, 6, 5, 4)
"""Neighbouring positions of a lane."""
_ELEMENTS = 512
"""Lanes of a program whose windows slide: four channels a thread, which one load fetches."""
_WAVES = 4
"""Programs for each multiprocessor that are enough."""


def rows_are_taps(channels: int, columns: int) -> bool:
    """Whether a window's rows of so many elements, each with so many channels, are as good as taps with more channels,
    if a row lies in one piece: a tap's channels are no step of the sums, and those of a row are whole ones.
    """
    return columns > 1 and channels < _LEAST_STEP and channels * columns % _LEAST_STEP == 0


@dataclass(frozen=True)
class ConvShape:
    """rows: output positions of all images. channels, out: of one group. taps: elements of the window.
    dtype as in ProductShape. sliding: images, height and width of the result, where `SlidingConvSchedule` is for it.
    """

    rows: Known
    groups: int
    channels: int
    out: int
    taps: int
    dtype: str
    sliding: tuple[int, int, int] | None = None


def choose_conv(shape: ConvShape, machine: Machine, through_maps: bool = False) -> ConvSchedule:
    """The schedule; through tensor maps only with `through_maps`: the operands are matrices that these describe."""
    if shape.sliding is not None:
        return _sliding(shape, shape.sliding, machine)
    if shape.channels == 1 and shape.groups > 1:
        return _depthwise(shape, machine)
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

    rows, step = schedule.block_m, schedule.block_k
    while step > _LEAST_STEP <= shape.channels and wasteful(step):
        step //= 2
    is_narrow = shape.taps > 1 and (rows, schedule.block_n) == _NARROW
    if is_narrow and shape.rows is not None and shape.groups * (shape.rows // (2 * rows)) >= _WAVES * machine.sms:
        rows *= 2
    schedule = replace(schedule, block_m=rows, block_k=step)
    schedule = replace(schedule, num_stages=min(schedule.num_stages, resident_stages(product, machine, schedule)))
    kernel = TmaConvSchedule if isinstance(schedule, TmaSchedule) else ImplicitConvSchedule
    return kernel(**asdict(schedule))


def _sliding(shape: ConvShape, result: tuple[int, int, int], machine: Machine) -> SlidingConvSchedule:
    """As many neighbouring positions as registers hold: sums, and a row of the image, in f32. Small windows are written
    out, so that two rows of results share rows of the image. Where that leaves multiprocessors idle, programs are half
    as large.
    """
    images, height, width = result
    rows = 2 if shape.taps <= WRITTEN_OUT and height > 1 else 1
    columns = min(_COLUMNS, key=lambda k: (-(-width // k) * k, -k))
    channels = min(64, max(16, pow2(shape.groups)))
    tiles, warps = _ELEMENTS // channels, _ELEMENTS // 128
    across = -(-shape.groups // channels)
    if -(-images * -(-height // rows) * -(-width // columns) // tiles) * across < _WAVES * machine.sms:
        channels, warps = max(16, channels // 2), warps // 2
        tiles = _ELEMENTS // 2 // channels
    return SlidingConvSchedule(
        block_m=tiles, block_n=channels, group_m=1, num_warps=warps, num_stages=2, rows=rows, columns=columns
    )


def _depthwise(shape: ConvShape, machine: Machine) -> DepthwiseConvSchedule:
    """A program's weights, 2 bytes each load of which takes as long as 16 of the image's, serve many positions; fewer
    where there would not be programs for all multiprocessors. Microseconds, 3x3, by a program's elements (bf16, H200,
    batch norm and ReLU behind):

    | channels @ size, images | 1024 | 2048 | 4096 | 8192 | cuDNN and a kernel |
    |-------------------------|------|------|------|------|--------------------|
    | 96 @ 112, 64            | 346  | 246  | 207  | 235  | 207                |
    | 384 @ 14, 64            | 20.0 | 15.9 | 13.3 | 16.7 | 20.5               |
    | 144 @ 56, 64, stride 2  | 36.5 | 30.0 | 30.0 | 33.0 | 42.6               |
    | 192 @ 28, 64            | 38.0 | 28.9 | 24.7 | 27.6 | 32.7               |
    | 960 @ 7, 64             | 13.7 | 12.5 | 9.8  | 11.9 | 13.9               |
    | 384 @ 14, 1             | 2.2  | 2.9  | 3.0  | 5.0  |                    |
    | 32 @ 112, 1             | 2.8  | 3.5  | 3.0  | 5.5  |                    |
    | 96 @ 56, 32, planar     | 188  | 107  | 66   | 70   | 102                |
    """
    columns = min(64, pow2(shape.groups * shape.out))
    across = -(-shape.groups * shape.out // columns)

    def fills(elements: int) -> bool:
        return -(-(shape.rows or 0) // (elements // columns)) * across >= _WAVES * machine.sms

    elements = 2048 if shape.rows is None else next((n for n in (4096, 2048) if fills(n)), 1024)
    return DepthwiseConvSchedule(block_m=elements // columns, block_n=columns, group_m=1, num_warps=4, num_stages=2)
