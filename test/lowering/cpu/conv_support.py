# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Stand-alone convolution kernels, for tests and benchmarks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from matmul_support import DTYPES, Kernel
from torch_mlir import ir

from kiln.dialects.schedules.cpu import ConvSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.conv import (
    Axis,
    ConvBuffers,
    ConvProblem,
    choose_conv_schedule,
    conv_scratch_bytes,
    emit_conv,
)
from kiln.lowering.cpu.isa import Isa
from kiln.lowering.cpu.problem import Size


class ReluEpilogue:
    """out = max(sum + bias[o], 0), with out [n, o, row, column] at the given strides (unit along o, or columns)."""

    def __init__(self, out: ir.Value, strides: Sequence[Index], bias: ir.Value):
        self.out, self.strides, self.bias = out, strides, bias
        self.element = ir.MemRefType(out.type).element_type

    @contextmanager
    def channels(
        self, b: Builder, image: Index, row: Index, channel: Index, width: int, mask: ir.Value | None
    ) -> Iterator[Callable[[Index, ir.Value], None]]:
        bias = b.vload(self.bias, channel, width, mask)
        at = b.sum_(b.muli(image, self.strides[0]), channel, b.muli(row, self.strides[2]))

        def pixel(column: Index, sums: ir.Value) -> None:
            value = b.addf(b.cast_float(sums, bias.type.element_type), bias)
            value = b.fmax(value, b.zero(value.type))
            b.vstore(b.cast_float(value, self.element), self.out, b.addi(at, b.muli(column, self.strides[3])), mask)

        yield pixel

    @contextmanager
    def columns(
        self, b: Builder, image: Index, row: Index, channel: Index
    ) -> Iterator[Callable[[Index, int, ir.Value, ir.Value | None], None]]:
        bias = b.load(self.bias, channel)
        at = b.sum_(*(b.muli(i, s) for i, s in zip((image, channel, row), self.strides, strict=False)))

        def pixels(column: Index, width: int, sums: ir.Value, mask: ir.Value | None) -> None:
            value = b.addf(b.cast_float(sums, bias.type), b.broadcast(bias, width))
            value = b.fmax(value, b.zero(value.type))
            b.vstore(b.cast_float(value, self.element), self.out, b.addi(at, column), mask)

        yield pixels


def image_problem(
    images: Size, groups: int, channels: int, outputs: int, height: Size, width: Size, rows: Size, columns: Size,
    kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int],
    x_strides: Sequence[Size], weight_strides: Sequence[Size], dtype: str = "f32", planar: bool = False,
    transposed: bool = False,
) -> ConvProblem:  # fmt: skip
    """A problem over two dims; strides are those of [n, c, h, w] and [o, c, kh, kw]."""
    window = kernel, stride, padding, dilation
    axes = zip((height, width), (rows, columns), *window, x_strides[2:], weight_strides[2:], strict=True)
    return ConvProblem(
        images, groups, channels, outputs, tuple(Axis(*axis) for axis in axes), tuple(x_strides[:2]),
        tuple(weight_strides[:2]), dtype, planar, transposed=transposed,
    )  # fmt: skip


def conv_problem(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> ConvProblem:
    """The problem of `out = conv2d(x, weight)` for these shapes and strides; pixels are merged where they may be."""
    planar = out.stride(1) != 1 and out.stride(3) == 1
    (n, _, height, width), (_, outputs, rows, columns) = x.shape, out.shape
    x_strides = x.stride()
    plain = tuple(weight.shape[2:]) == (1, 1) and stride == (1, 1) and padding == (0, 0)
    if plain and planar and x_strides[2] == width * x_strides[3]:
        height, width, rows, columns = 1, height * width, 1, height * width
    elif plain and x_strides[2] == width * x_strides[3] and x_strides[0] == height * x_strides[2]:
        n, height, width, rows, columns = 1, 1, n * height * width, 1, n * height * width
    return image_problem(
        n, groups, x.shape[1] // groups, outputs // groups, height, width, rows, columns, tuple(weight.shape[2:]),
        stride, padding, dilation, x_strides, weight.stride(), DTYPES[x.dtype], planar,
    )  # fmt: skip


def conv_kernel(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, out: torch.Tensor, problem: ConvProblem, isa: Isa,
    threads: int = 1, schedule: ConvSchedule | None = None, checked: bool = True,
) -> tuple[Callable[[], None], dict]:  # fmt: skip
    """(call, schedule) of `out = relu(conv2d(x, weight, bias))`; out is channels-last or planar."""
    schedule = schedule or choose_conv_schedule(problem, isa)

    def emit(b, buffers, symbols, ctx):
        epilogue = ReluEpilogue(buffers[3], out.stride(), buffers[2])
        emit_conv(b, problem, schedule, ConvBuffers(*buffers[:2]), epilogue, ctx)

    dtypes = [DTYPES[t.dtype] for t in (x, weight, bias, out)]
    kernel = Kernel(dtypes, 0, conv_scratch_bytes(problem, schedule), emit, kind="conv")
    return kernel.bind([x, weight, bias, out], threads=threads, checked=checked), schedule
