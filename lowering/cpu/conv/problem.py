# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a convolution kernel is asked to do: the problem, its buffers, the epilogue."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from typing import Protocol

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.problem import Size, Summed


@dataclass(frozen=True)
class Axis:
    """One spatial dim of a convolution: sizes of input and result, the window, strides of the input and the weight."""

    size: Size
    results: Size
    kernel: int
    stride: int
    padding: int
    dilation: int
    x_stride: Size
    weight_stride: Size


@dataclass(frozen=True)
class ConvProblem(Summed):
    """result[n, o, i, j] = sum over c, y, z of weight[o, c, y, z] * x[n, c, h, w].

    h = i * stride - padding + y * dilation, and w likewise of j and z; outside of the image x is 0. Where `transposed`
    it is the reverse: h * stride = i + padding - y * dilation, for those y where h is whole. `axes` are the spatial
    dims, outermost first: rows and columns, before them planes of a convolution over three dims; one over one dim has
    one row. `channels` and `outputs` are those of one group. Sizes of the weight are ints; `images` and the sizes of
    axes are ints or `index` Values, None at schedule time. Strides are in elements: `x_strides` of images and channels,
    `weight_strides` of outputs and channels. `dtype` is the operands' element type; the sum is taken in f32 (f64 for
    f64). `planar`: in the result consecutive columns are neighbours in memory (NCHW), not consecutive channels.
    `packed`: the weight lies in memory as the kernel packs it (weights.py), and its strides mean nothing.
    """

    images: Size
    groups: int
    channels: int
    outputs: int
    axes: tuple[Axis, ...]
    x_strides: tuple[Size, Size]
    weight_strides: tuple[Size, Size]
    dtype: str = "f32"
    planar: bool = False
    packed: bool = False
    transposed: bool = False

    @property
    def depthwise(self) -> bool:
        """Whether each result channel is made of one channel of its own, forwards: what the depthwise kernels do."""
        return self.channels == 1 and self.outputs == 1 and not self.transposed

    @property
    def row(self) -> Axis:
        """The second to last spatial dim."""
        return self.axes[-2]

    @property
    def column(self) -> Axis:
        """The last spatial dim."""
        return self.axes[-1]

    @property
    def lines(self) -> tuple[Axis, ...]:
        """The spatial dims but the last, outermost first."""
        return self.axes[:-1]

    @property
    def is_pointwise(self) -> bool:
        """Whether an element of the result is made of the channels at its own place in the image."""
        return not self.transposed and all((a.kernel, a.stride, a.padding) == (1, 1, 0) for a in self.axes)

    @property
    def window_rows(self) -> int:
        """Rows of the window, in all of its planes."""
        return prod(axis.kernel for axis in self.lines)

    @property
    def steps(self) -> int:
        """Products summed for one element of the result; at most, where `transposed`."""
        return self.channels * self.window_rows * self.column.kernel


@dataclass(frozen=True)
class ConvBuffers:
    """The operands' 1-D memrefs; element [0, 0, 0, 0] sits at the offset."""

    x: ir.Value
    weight: ir.Value
    x_offset: Index = 0
    weight_offset: Index = 0


class ConvEpilogue(Protocol):
    """The fused ops behind a convolution, evaluated on vectors of sums along the result's channels."""

    def channels(
        self, b: Builder, image: Index, row: Index, channel: Index, width: int, mask: ir.Value | None
    ) -> AbstractContextManager[Callable[[Index, ir.Value], None]]:
        """Channels [channel, channel + width) of one row of the result; lanes off in `mask` are no channels.

        `row` counts the rows of all planes.

        Gives `pixel(column, sums)`, which evaluates the fused ops and stores the results. What does not depend on the
        column is emitted once, before the loop that the caller opens inside of this context.
        """
        ...

    def columns(
        self, b: Builder, image: Index, row: Index, channel: Index
    ) -> AbstractContextManager[Callable[[Index, int, ir.Value, ir.Value | None], None]]:
        """One channel of one row of the result: gives `pixels(column, width, sums, mask)`, with lanes along columns."""
        ...
