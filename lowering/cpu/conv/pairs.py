# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Direct convolution of bf16 by pairs (VDPBF16PS) of input channels, which are neighbours in a channels-last image, or
of columns of the window, which are neighbours in a row-major one.

The direct kernel (direct.py) with two elements as one of 32 bits: weights lie as [kh][c / 2][kw][lanes][2], or
[kh][c][kw / 2][lanes][2].
"""

from dataclasses import replace
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith
from typing_extensions import override

from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.contraction.amx import Features
from kiln.lowering.cpu.contraction.bf16 import has_pairs
from kiln.lowering.cpu.contraction.vectors import float_unit
from kiln.lowering.cpu.conv.direct import Direct
from kiln.lowering.cpu.conv.problem import ConvProblem

__all__ = ["PairsOfChannels", "PairsOfColumns", "takes_column_pairs", "takes_pairs"]


def takes_pairs(p: ConvProblem, width: int, cpu: Features) -> bool:
    """Whether input channels come in pairs that a CPU multiplies at once."""
    return p.channels % 2 == 0 and p.x_strides[1] == 1 and has_pairs(p.dtype, width, cpu)


def takes_column_pairs(p: ConvProblem, width: int, cpu: Features) -> bool:
    """Whether a CPU multiplies two columns of the window at once: neighbours in a row of the image, none of them
    padding. So are the windows of patches.
    """
    window = p.kernel[1] % 2 == 0 and p.padding[1] == 0 and p.dilation[1] == 1 and not p.transposed
    return window and p.x_strides[3] == 1 and has_pairs(p.dtype, width, cpu)


class PairsOfChannels(Direct):
    """`p` counts pairs of channels; an offset in the packed weights counts pairs, too."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        p = self.p
        self.single = p
        self.p = self.halved(p)
        self.find_runs()
        self.unit = float_unit("f32", self.width, pairs=True)
        self.pairs = self.b.view(self.ctx.scratch, self.ctx.scratch_offset, self.layout["elements"], self.b.i32)

    def halved(self, p: ConvProblem) -> ConvProblem:
        """The problem with pairs as its elements."""
        self.x_channel = 2
        return replace(p, channels=p.channels // 2)

    @property
    def distance(self) -> int:
        """How many packed elements lie between the first and the second one of a pair."""
        return self.p.kernel[1] * self.lanes

    def pack(self, channel: Index, count: Index) -> None:
        """Packed as f32 by the direct kernel, then two elements at a time put together, in place."""
        b, half = self.b, self.p
        self.p = self.single
        super().pack(channel, count)
        self.p = half
        unit = self.distance

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
    def factors(self, at: Index) -> Place:
        return Place(self.weights, self.b.muli(at, 2)) if self.single.packed else Place(self.pairs, at)


class PairsOfColumns(PairsOfChannels):
    """`p` counts pairs of the window's columns, which are two columns of the image apart."""

    @override
    def halved(self, p: ConvProblem) -> ConvProblem:
        return replace(p, kernel=(p.kernel[0], p.kernel[1] // 2), dilation=(p.dilation[0], 2))

    @property
    @override
    def distance(self) -> int:
        return self.lanes
