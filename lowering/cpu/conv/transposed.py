# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Transposed convolution: the direct kernel on the phases of a row of the result.

Column j of the result meets every `step`-th column of the window only, from one that depends on j modulo the stride on.
So the columns of one such remainder, a *phase*, are a dense convolution with a smaller window and stride 1. A tile is a
few consecutive columns of a phase: its pixels are neighbours in the input. Their sums lie in the scratch row where
the columns of the result are, so that the epilogue finds whole rows. Rows of the result (and planes) choose their
window's rows likewise, at run time (window.py). Nothing is scattered, and no products with zeros are taken.
"""

from typing import Any

from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.conv.direct import Direct
from kiln.lowering.cpu.conv.pairs import PairsOfChannels
from kiln.lowering.cpu.conv.phases import find_phases, phase_runs
from kiln.lowering.cpu.conv.window import Window
from kiln.lowering.cpu.matmul.problem import known

__all__ = ["TransposedDirect", "TransposedPairs"]


class TransposedDirect(Direct):
    """`tiles` of the schedule are those of each phase."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        p = self.p
        self.phases = [(phase, phase_runs(p, phase, self.mr)) for phase in find_phases(p.column_axis)]
        self.phase = self.phases[0][0]

    @property
    def span(self) -> int:
        """Columns of the result in a part of a row: `tiles` tiles of each phase."""
        return self.mr * self.tiles * self.p.stride[1]

    @property
    def known(self) -> bool:
        """Whether the tiles of a row are known."""
        return all(runs is not None for _, runs in self.phases)

    @property
    def window(self) -> int:
        """Columns of the window that a pixel of this phase meets."""
        return self.phase.count

    def first_weight(self, channel: Index) -> Index:
        """Where the weights of an output channel begin: [C, O / groups, ...]."""
        b, p = self.b, self.p
        group, inner = b.divi(channel, p.outputs), b.remi(channel, p.outputs)
        start = b.addi(self.operands.weight_offset, b.muli(inner, known(p.weight_strides[0])))
        if p.groups == 1:
            return start
        return b.addi(start, b.muli(group, b.muli(p.channels, known(p.weight_strides[1]))))

    def known_row(self, window: Window, begin: Index) -> None:
        """The tiles of all phases in a part of a row, from `begin` on."""
        for phase, runs in self.phases:
            self.phase = phase
            for run in runs or ():
                self.run(run, window, begin)

    def row(self, window: Window, start: Index, stop: Index) -> None:
        """Columns [start, stop) of a row of a size that is not known."""
        b, stride = self.b, self.p.stride[1]
        width = known(self.p.width)
        origin = start
        for phase, _ in self.phases:
            self.phase = phase
            reach = [phase.reach(t) for t in range(phase.count)] or [0]
            first, last = (
                b.divi(b.maxi(b.addi(b.subi(x, phase.remainder), stride - 1), 0), stride) for x in (start, stop)
            )
            low: Index = max(0, -min(reach))
            high = b.maxi(b.subi(width, max(reach)), low) if phase.count else last
            # The scratch row begins with column `start`, wherever in its period that is.
            self.origin = b.subi(b.addi(b.muli(first, stride), phase.remainder), origin)
            self.pixels(window, low, high, first, last, self.inside)
        self.origin = None

    def inside(self, column: Index) -> tuple[Index, Index]:
        """The columns of the window, by their number, that lie inside of the input for a column of the phase."""
        b, phase = self.b, self.phase
        at = b.addi(column, phase.offset)
        low = b.ceildivi(b.maxi(b.addi(b.subi(at, known(self.p.width)), 1), 0), phase.back)
        high = b.mini(b.ceildivi(b.maxi(b.addi(at, 1), 0), phase.back), phase.count)
        return low, high

    origin: Index | None = None

    def place(self, at: Index, r: int = 0) -> Index:
        """Where the sums of the phase's column at + r are, counted from the first one of the part."""
        b, stride = self.b, self.p.stride[1]
        first: Index = self.phase.remainder if self.origin is None else self.origin
        return b.addi(b.addi(self.sums, b.muli(b.addi(b.muli(at, stride), first), self.lanes)), r * stride * self.lanes)

    def at(self, column: Index) -> Index:
        """The distance of a phase's column in the input."""
        return self.b.muli(column, self.x_column)

    def tap(self, z: Index) -> Index:
        """The column of the window that is the z-th to meet the phase."""
        return self.b.addi(self.b.muli(z, self.phase.step), self.phase.first)

    def offset(self, z: Index, r: int) -> Index:
        """The distance, in columns of the input, of what a tile's pixel r meets at the z-th column of its window."""
        return self.b.addi(self.b.subi(self.phase.offset, self.b.muli(z, self.phase.back)), r)


class TransposedPairs(PairsOfChannels, TransposedDirect):
    """The same for bf16 in pairs of channels."""
