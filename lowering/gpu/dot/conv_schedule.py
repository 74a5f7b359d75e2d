# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tiles of a convolution on a GPU: those of the matrix product that it is, with the limits of
`choices/convolution_tiles.toml`.

Unlike a product's, a tile has at most the sums of 4 warps: one of 8 fills a multiprocessor, and nothing hides its
prologue and its stores. Deep pipelines take the shared memory that further programs of the multiprocessor would need.
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
    BYTES,
    Known,
    ProductShape,
    pow2,
    resident_stages,
    schedule_of_tile,
    takes_descriptors,
    tiles_by_time,
)
from kiln.lowering.gpu.rules import ConvolutionRules, rules_for


def rows_are_taps(channels: int, columns: int) -> bool:
    """Whether a window's rows of so many elements, each with so many channels, are as good as taps with more channels,
    if a row lies in one piece: a tap's channels are no step of the sums, and those of a row are whole ones.
    """
    step = rules_for(ConvolutionRules).least_step
    return columns > 1 and channels < step and channels * columns % step == 0


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
    rules = rules_for(ConvolutionRules)
    k = shape.taps * shape.channels
    product = ProductShape(shape.groups, shape.rows, shape.out, k, (k, 1), (1, k), shape.dtype)
    columns = max(16, pow2(shape.out))
    tiles = tiles_by_time(product, machine)
    fitting = [tile for tile in tiles if tile[0] * tile[1] <= rules.most_sums and tile[1] <= columns]
    described = through_maps and machine.tensor_maps and takes_descriptors(product)
    schedule = schedule_of_tile(product, machine, (fitting or tiles)[0], described)

    # A step stays within one tap where a tap has channels enough, and wastes none where a smaller step divides them.
    def wasteful(step: int) -> bool:
        return shape.channels < step or shape.channels % step != 0

    rows, step = schedule.block_m, schedule.block_k
    while step > rules.least_step <= shape.channels and wasteful(step):
        step //= 2
    is_narrow = shape.taps > 1 and (rows, schedule.block_n) == rules.narrow_tile
    is_narrow &= 2 * (2 * rows + schedule.block_n) * step * BYTES[shape.dtype] <= machine.shared_bytes - 1024
    if is_narrow and shape.rows is not None and shape.groups * (shape.rows // (2 * rows)) >= rules.waves * machine.sms:
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
    rules = rules_for(ConvolutionRules)
    images, height, width = result
    rows = 2 if shape.taps <= WRITTEN_OUT and height > 1 else 1
    columns = min(rules.columns, key=lambda k: (-(-width // k) * k, -k))
    least, most = rules.sliding_columns
    channels = min(most, max(least, pow2(shape.groups)))
    tiles, warps = rules.sliding_lanes // channels, rules.sliding_lanes // 128
    across = -(-shape.groups // channels)
    if -(-images * -(-height // rows) * -(-width // columns) // tiles) * across < rules.waves * machine.sms:
        channels, warps = max(least, channels // 2), warps // 2
        tiles = rules.sliding_lanes // 2 // channels
    return SlidingConvSchedule(
        block_m=tiles, block_n=channels, group_m=1, num_warps=warps, num_stages=2, rows=rows, columns=columns
    )


def _depthwise(shape: ConvShape, machine: Machine) -> DepthwiseConvSchedule:
    """A program's weights, 2 bytes each load of which takes as long as 16 of the image's, serve many positions; fewer
    where there would not be programs for all multiprocessors.
    """
    rules = rules_for(ConvolutionRules)
    columns = min(rules.strip_columns, pow2(shape.groups * shape.out))
    across = -(-shape.groups * shape.out // columns)

    def fills(elements: int) -> bool:
        return -(-(shape.rows or 0) // (elements // columns)) * across >= rules.waves * machine.sms

    *larger, least = rules.strips
    elements = rules.unknown_strip if shape.rows is None else next((n for n in larger if fills(n)), least)
    return DepthwiseConvSchedule(block_m=elements // columns, block_n=columns, group_m=1, num_warps=4, num_stages=2)
