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
from kiln.lowering.cpu.matmul.problem import Size


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
class ConvProblem:
    """result[n, o, i, j] = sum over c, y, z of weight[o, c, y, z] * x[n, c, h, w].

    h = i * stride - padding + y * dilation, and w likewise of j and z; outside of the image x is 0. Where `transposed`
    it is the reverse: h * stride = i + padding - y * dilation, for those y where h is whole. A convolution over one
    dim has height 1; one over three has `planes` as its outermost dim. `channels` and `outputs` are those of one group.
    Sizes of the weight are ints; `images`, `height`, `width`, `rows` and `columns` (of the result) are ints or `index`
    Values, None at schedule time. Strides are in elements, of [n, c, h, w] and [o, c, kh, kw]. `dtype` is the operands'
    element type; the sum is taken in f32 (f64 for f64). `planar`: in the result consecutive columns are neighbours in
    memory (NCHW), not consecutive channels. `packed`: the weight lies in memory as the kernel packs it (weights.py),
    and its strides mean nothing.
    """

    images: Size
    groups: int
    channels: int
    outputs: int
    height: Size
    width: Size
    rows: Size
    columns: Size
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    x_strides: tuple[Size, Size, Size, Size]
    weight_strides: tuple[Size, Size, Size, Size]
    dtype: str = "f32"
    planar: bool = False
    packed: bool = False
    planes: Axis | None = None
    transposed: bool = False

    @property
    def sum_dtype(self) -> str:
        """The dtype that products are summed in."""
        return "f64" if self.dtype == "f64" else "f32"

    @property
    def sum_bytes(self) -> int:
        """Bytes of one sum."""
        return 8 if self.dtype == "f64" else 4

    @property
    def depthwise(self) -> bool:
        """Whether each result channel is made of one channel of its own, forwards: what the depthwise kernels do."""
        return self.channels == 1 and self.outputs == 1 and not self.transposed

    @property
    def row_axis(self) -> Axis:
        """The second to last spatial dim."""
        return self._axis(0, self.height, self.rows)

    @property
    def column_axis(self) -> Axis:
        """The last spatial dim."""
        return self._axis(1, self.width, self.columns)

    def _axis(self, dim: int, size: Size, results: Size) -> Axis:
        window = self.kernel[dim], self.stride[dim], self.padding[dim], self.dilation[dim]
        return Axis(size, results, *window, self.x_strides[2 + dim], self.weight_strides[2 + dim])

    @property
    def lines(self) -> tuple[Axis, ...]:
        """The spatial dims but the last, outermost first."""
        return (self.row_axis,) if self.planes is None else (self.planes, self.row_axis)

    @property
    def window_rows(self) -> int:
        """Rows of the window, in all of its planes."""
        return prod(axis.kernel for axis in self.lines)

    @property
    def steps(self) -> int:
        """Products summed for one element of the result; at most, where `transposed`."""
        return self.channels * self.window_rows * self.kernel[1]


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
