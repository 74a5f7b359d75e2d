# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Direct convolution of bf16 by pairs (VDPBF16PS) of input channels, which are neighbours in a channels-last image, or
of columns of the window, which are neighbours in a row-major one.

The direct kernel (direct.py) with two elements as one of 32 bits: weights lie as [kh][c / 2][kw][lanes][2], or
[kh][c][kw / 2][lanes][2].
"""

from dataclasses import replace

from torch_mlir import ir
from torch_mlir.dialects import arith
from typing_extensions import override

from kiln.dialects.schedules.cpu import DirectConvSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.amx import Features
from kiln.lowering.cpu.contraction.bf16 import add_pairs, as_pairs, broadcast_pair, has_pairs
from kiln.lowering.cpu.conv.borders import tile_runs
from kiln.lowering.cpu.conv.direct import Direct
from kiln.lowering.cpu.conv.problem import ConvBuffers, ConvEpilogue, ConvProblem
from kiln.lowering.cpu.matmul.problem import KernelContext

__all__ = ["PairsOfChannels", "emit_column_pairs", "emit_direct_pairs", "takes_column_pairs", "takes_pairs"]


def takes_pairs(p: ConvProblem, width: int, cpu: Features) -> bool:
    """Whether input channels come in pairs that a CPU multiplies at once."""
    return p.channels % 2 == 0 and p.x_strides[1] == 1 and has_pairs(p.dtype, width, cpu)


def emit_direct_pairs(
    b: Builder, p: ConvProblem, s: DirectConvSchedule, operands: ConvBuffers, epilogue: ConvEpilogue, ctx: KernelContext
) -> None:
    """Emits the kernel; schedule keys as those of `emit_direct`. Needs `takes_pairs`."""
    PairsOfChannels(b, p, s, operands, epilogue, ctx).emit()


def takes_column_pairs(p: ConvProblem, width: int, cpu: Features) -> bool:
    """Whether a CPU multiplies two columns of the window at once: neighbours in a row of the image, none of them
    padding. So are the windows of patches.
    """
    window = p.kernel[1] % 2 == 0 and p.padding[1] == 0 and p.dilation[1] == 1 and not p.transposed
    return window and p.x_strides[3] == 1 and has_pairs(p.dtype, width, cpu)


def emit_column_pairs(
    b: Builder, p: ConvProblem, s: DirectConvSchedule, operands: ConvBuffers, epilogue: ConvEpilogue, ctx: KernelContext
) -> None:
    """Emits the kernel; schedule keys as those of `emit_direct`. Needs `takes_column_pairs`."""
    _PairsOfColumns(b, p, s, operands, epilogue, ctx).emit()


class PairsOfChannels(Direct):
    """One thread's share. `p` counts pairs of channels; an offset in the packed weights counts pairs, too."""

    def __init__(
        self,
        b: Builder,
        p: ConvProblem,
        s: DirectConvSchedule,
        operands: ConvBuffers,
        epilogue: ConvEpilogue,
        ctx: KernelContext,
    ):
        super().__init__(b, p, s, operands, epilogue, ctx)
        self.single = p
        self.p = self.halved(p)
        self.pairs = b.view(ctx.scratch, ctx.scratch_offset, self.layout["elements"], b.i32)

    def halved(self, p: ConvProblem) -> ConvProblem:
        """The problem with pairs as its elements."""
        self.x_channel = 2
        return replace(p, channels=p.channels // 2)

    @property
    def unit(self) -> int:
        """How many packed elements lie between the first and the second one of a pair."""
        return self.p.kernel[1] * self.lanes

    def pack(self, channel: Index, count: Index) -> None:
        """Packed as f32 by the direct kernel, then two elements at a time put together, in place."""
        b, half = self.b, self.p
        self.p = self.single
        super().pack(channel, count)
        self.p = half
        unit = self.unit

        def pair(index: Index) -> None:  # what it overwrites has been read
            source, target = b.muli(index, 2 * unit), b.muli(index, unit)

            def vector(at: Index) -> None:
                low, high = (self.bits(b.sum_(source, at, offset)) for offset in (0, unit))
                type_ = low.type
                low = arith.shrui(low, b.int_(16, type_))
                high = arith.andi(high, b.int_(-65536, type_))
                b.vstore(arith.ori(low, high), self.pairs, b.addi(target, at))

            b.for_(0, unit, self.width, vector)

        b.for_(0, half.steps * self.lanes // unit, 1, pair)

    def bits(self, at: Index) -> ir.Value:
        """One vector of pairs from the scratch area, as i32."""
        return self.b.vload(self.pairs, at, self.width)

    @override
    def factor(self, at: Index) -> ir.Value:
        b = self.b
        if self.single.packed:
            return as_pairs(b, b.vload(self.operands.weight, b.muli(at, 2), 2 * self.width))
        return as_pairs(b, self.bits(at))

    @override
    def pixel(self, at: Index) -> ir.Value:
        return broadcast_pair(self.b, self.operands.x, at)

    @override
    def add(self, value: ir.Value, factor: ir.Value, acc: ir.Value) -> ir.Value:
        return add_pairs(value, factor, acc)


class _PairsOfColumns(PairsOfChannels):
    """`p` counts pairs of the window's columns, which are two columns of the image apart."""

    def halved(self, p: ConvProblem) -> ConvProblem:
        half = replace(p, kernel=(p.kernel[0], p.kernel[1] // 2), dilation=(p.dilation[0], 2))
        self.runs = tile_runs(half, self.mr)
        return half

    @property
    def unit(self) -> int:
        return self.lanes
