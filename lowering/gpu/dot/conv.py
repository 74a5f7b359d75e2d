# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolution as a matrix product whose left operand is never built: rows are output positions, the reduction runs over
the taps of the window and the channels (implicit GEMM). One input channel a group is a sum of its own kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import tt
from kiln.dialects.schedules.gpu import DepthwiseConvSchedule, ImplicitConvSchedule
from kiln.lowering.gpu.builder import Builder, Condition, Index
from kiln.lowering.gpu.dot.conv_window import WRITTEN_OUT
from kiln.lowering.gpu.dot.operands import Epilogue, Line, dot_offset, line, split_batch, tile_position


@dataclass(frozen=True)
class ConvProblem:
    """result[n, g * out + o, *p] = sum over channels c and taps t of
    x[n, g * channels + c, *(p * stride - padding + t * dilation)] * weight[g * out + o, c, *t]; x is zero outside.

    x_strides and weight_strides are by [N, C, *spatial] and [O, C, *kernel], in elements. channels and out are those of
    one group. result_size: the output's spatial sizes. sums: element type of the sums.
    """

    batch: Index
    groups: int
    channels: int
    out: int
    size: tuple[Index, ...]
    kernel: tuple[int, ...]
    result_size: tuple[Index, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    x: ir.Value
    weight: ir.Value
    x_strides: tuple[Index, ...]
    weight_strides: tuple[Index, ...]
    sums: ir.Type
    precision: str = "ieee"

    def rows(self, b: Builder) -> Index:
        """Output positions of all images."""
        count = self.batch
        for size in self.result_size:
            count = b.muli(count, size)
        return count

    @property
    def taps(self) -> int:
        """Elements of the window."""
        count = 1
        for size in self.kernel:
            count *= size
        return count


def emit_conv(
    b: Builder,
    p: ConvProblem,
    schedule: ImplicitConvSchedule | DepthwiseConvSchedule,
    program: Index,
    epilogue: Epilogue,
) -> None:
    """One program: a tile of output positions by output channels of one group."""
    rows, columns = schedule.block_m, schedule.block_n
    depthwise = isinstance(schedule, DepthwiseConvSchedule)
    groups, width = (1, p.out * p.groups) if depthwise else (p.groups, p.out)
    count = p.rows(b)
    down, across = b.ceildivi(count, rows), -(-width // columns)
    group, i, j = tile_position(b, program, down, across, schedule.group_m)
    if groups == 1:
        group = 0
    window = _Window(b, p, line(b, b.muli(i, rows), rows, 0, count), count)
    n = line(b, b.muli(j, columns), columns, 1, width)
    sums = (
        _dense(window, n, group, schedule)
        if not isinstance(schedule, DepthwiseConvSchedule)
        else _depthwise(window, n, schedule)
    )
    shift = b.muli(group, p.out)
    channels = Line(b.addi(n.start, shift), b.addi(n.index, shift), n.mask)
    epilogue.apply(b, [], window.line, channels, [sums])


class _Window:
    """Where the rows of a tile read x: offsets of the window's first tap and, per tap, which rows are inside."""

    def __init__(self, b: Builder, p: ConvProblem, rows: Line, count: Index):
        self.b, self.p, self.line = b, p, rows
        image, *position = split_batch(b, rows.clamped(b, count), [p.batch, *p.result_size])
        self.first = [
            b.subi(b.muli(x, stride), padding) for x, stride, padding in zip(position, p.stride, p.padding, strict=True)
        ]
        # The window's first tap may lie before the image: an offset to add to, not an address.
        self.offset = b.addi(b.muli(image, p.x_strides[0]), dot_offset(b, self.first, p.x_strides[2:]))

    def load(self, tap: Index, channel: Index, kept: Condition, shape: Sequence[int]) -> ir.Value:
        """A block of x under a tap (one position in the window, or one per column) in some channels; zero outside."""
        b, p = self.b, self.p
        at = split_batch(b, tap, p.kernel)
        inside = kept
        for first, step, dilation, size, padding in zip(self.first, at, p.dilation, p.size, p.padding, strict=True):
            if padding:  # else every window lies inside
                x = b.addi(first, b.muli(step, dilation))
                inside = b.andc(inside, b.andc(b.cmpi("sge", x, 0), b.cmpi("slt", x, size)))
        moved = b.sum_(*(b.muli(b.muli(x, d), s) for x, d, s in zip(at, p.dilation, p.x_strides[2:], strict=True)))
        offset = b.sum_(self.offset, moved, b.muli(channel, p.x_strides[1]))
        return b.load(b.broadcast(b.addptr(p.x, offset), shape), inside, other=0)

    def weights(self, tap: Index, channel: Index, out: Index, kept: Condition, shape: Sequence[int]) -> ir.Value:
        """A block of the weights of some taps and channels (rows) for some output channels (columns)."""
        b, p = self.b, self.p
        at = dot_offset(b, split_batch(b, tap, p.kernel), p.weight_strides[2:])
        offset = b.sum_(at, b.muli(channel, p.weight_strides[1]), b.muli(out, p.weight_strides[0]))
        return b.load(b.broadcast(b.addptr(p.weight, offset), shape), kept, other=0)


def _dense(window: _Window, n: Line, group: Index, schedule: ImplicitConvSchedule) -> ir.Value:
    """Sums by tensor cores. Where channels fill a step, a step has one tap; else steps run across taps."""
    b, p = window.b, window.p
    step = schedule.block_k
    left, right = (schedule.block_m, step), (step, schedule.block_n)
    along, down = b.lanes(step, 1, 2), b.lanes(step, 0, 2)
    shift, out = b.muli(group, p.channels), b.addi(n.index, b.muli(group, p.out))
    steps = -(-p.channels // step)

    def one_tap(number: Index, sums: ir.Value) -> ir.Value:
        tap, start = b.divi(number, steps), b.muli(b.remi(number, steps), step)
        channels = [b.addi(start, lanes) for lanes in (along, down)]
        exist = [True if p.channels % step == 0 else b.cmpi("slt", c, p.channels) for c in channels]
        x = window.load(tap, b.addi(channels[0], shift), exist[0], left)
        w = window.weights(tap, channels[1], out, b.andc(exist[1], n.mask), right)
        return b.dot(x, w, sums, p.precision)

    def across_taps(number: Index, sums: ir.Value) -> ir.Value:
        terms = [b.addi(b.muli(number, step), lanes) for lanes in (along, down)]
        exist = [b.cmpi("slt", k, p.taps * p.channels) for k in terms]
        taps, channels = [b.divi(k, p.channels) for k in terms], [b.remi(k, p.channels) for k in terms]
        x = window.load(taps[0], b.addi(channels[0], shift), exist[0], left)
        w = window.weights(taps[1], channels[1], out, b.andc(exist[1], n.mask), right)
        return b.dot(x, w, sums, p.precision)

    multiply = one_tap if p.channels >= step else across_taps
    trips = p.taps * steps if p.channels >= step else -(-p.taps * p.channels // step)
    zeros = b.constant(0, tt.with_shape([schedule.block_m, schedule.block_n], p.sums))
    stages = {"tt.num_stages": f"{schedule.num_stages} : i32"}

    def body(number: Index, carried: Sequence[ir.Value]) -> list[ir.Value]:
        return [multiply(number, carried[0])]

    return b.for_(0, trips, 1, body, [zeros], stages)[0]


def _depthwise(window: _Window, n: Line, schedule: DepthwiseConvSchedule) -> ir.Value:
    """One input channel a group: a multiplication and an addition per tap, no reduction over channels. The taps of
    small windows are written out: weights, whose channels are apart, are loaded together, and bounds tested once a row
    and once a column of the window.
    """
    b, p = window.b, window.p
    channel = b.divi(n.index, p.out)
    shape = schedule.block_m, schedule.block_n

    def add(tap: Index, sums: ir.Value) -> ir.Value:
        x = b.cast_float(window.load(tap, channel, n.mask, shape), p.sums)
        w = b.cast_float(window.weights(tap, 0, n.index, n.mask, (1, shape[1])), p.sums)
        return b.addf(sums, b.mulf(x, w))

    sums = b.constant(0.0, tt.with_shape([schedule.block_m, schedule.block_n], p.sums))
    if p.taps <= WRITTEN_OUT:
        for tap in range(p.taps):
            sums = add(tap, sums)
        return sums
    return b.for_(0, p.taps, 1, lambda tap, carried: [add(tap, carried[0])], [sums])[0]
