# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The rows of a window that lie inside of the image: loops over all dims of the window but its columns."""

from collections.abc import Callable, Sequence

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.conv.borders import phase_of, taps
from kiln.lowering.cpu.conv.problem import Axis, ConvProblem
from kiln.lowering.cpu.matmul.problem import known

__all__ = ["Window", "row_count"]

Step = Callable[[Index, Sequence[Index], list[ir.Value]], list[ir.Value] | None]


def row_count(b: Builder, p: ConvProblem) -> Index:
    """The rows of one image of the result, in all of its planes."""
    count: Index = 1
    for axis in p.lines:
        count = b.muli(count, known(axis.results))
    return count


class Window:
    """The rows of the window for row `row` (of all planes) of the result.

    x: the address of the image, with the channel, and the column for the tile that asks.
    """

    def __init__(self, b: Builder, p: ConvProblem, x: Index, row: Index):
        self.b, self.p = b, p
        self.axes: list[_Forward | _Backward] = []
        *outer, last = p.lines
        places = [row]
        if outer:
            rows = known(last.results)
            places = [b.divi(row, rows), b.remi(row, rows)]
        for axis, place in zip(p.lines, places, strict=True):
            made = (_Backward if p.transposed else _Forward)(b, axis, place)
            self.axes.append(made)
            x = b.addi(x, made.start)
        self.x = x

    def fold(self, body: Step, acc: Sequence[ir.Value] = (), shift: Index = 0) -> list[ir.Value]:
        """`acc = body(address, index in the window, acc)` for each row; the address is `shift` elements further on."""
        return self._loop(body, self.axes, self.b.addi(self.x, shift), [], acc)

    def _loop(
        self,
        body: Step,
        axes: Sequence["_Forward | _Backward"],
        x: Index,
        index: list[Index],
        acc: Sequence[ir.Value],
    ) -> list[ir.Value]:
        if not axes:
            return list(body(x, index, list(acc)) or ())
        axis, *rest = axes

        def inside(y: Index, acc: Sequence[ir.Value] = ()) -> list[ir.Value]:
            return self._loop(body, rest, self.b.addi(x, axis.offset(y)), [*index, y], acc)

        return self.b.for_(axis.low, axis.high, axis.step, inside, list(acc))

    def flat(self, index: Sequence[Index]) -> Index:
        """The number of a row of the window among those of all planes."""
        number: Index = 0
        for axis, y in zip(self.p.lines, index, strict=True):
            number = self.b.addi(self.b.muli(number, axis.kernel), y)
        return number


class _Forward:
    """Input i * stride - padding + y * dilation for element y of the window."""

    step = 1

    def __init__(self, b: Builder, axis: Axis, place: Index):
        self.b, self.axis = b, axis
        self.low, self.high = phase_of(axis).inside(b, axis, place)
        self.start = b.muli(b.subi(b.muli(place, axis.stride), axis.padding), known(axis.x_stride))

    def offset(self, y: Index) -> Index:
        return self.b.muli(y, self.b.muli(self.axis.dilation, known(self.axis.x_stride)))


class _Backward:
    """Input (i + padding - y * dilation) / stride for those elements y of the window for which it is whole."""

    start = 0

    def __init__(self, b: Builder, axis: Axis, place: Index):
        self.b, self.axis = b, axis
        self.step, back = taps(axis)
        common = axis.stride // self.step
        self.at = b.addi(place, axis.padding)
        behind = b.addi(b.subi(self.at, b.muli(known(axis.size), axis.stride)), 1)
        low = b.ceildivi(b.maxi(behind, 0), axis.dilation)
        # The next element whose distance from the position is a multiple of the stride.
        first = b.muli(b.divi(self.at, common), pow(back, -1, self.step)) if self.step > 1 else 0
        self.low = b.addi(low, b.remi(b.addi(first, b.muli(low, self.step - 1)), self.step))
        self.high = b.mini(b.addi(b.divi(self.at, axis.dilation), 1), axis.kernel)
        if common > 1:
            self.high = b.select_index(b.cmpi("eq", b.remi(self.at, common), 0), self.high, 0)

    def offset(self, y: Index) -> Index:
        b, axis = self.b, self.axis
        row = b.divi(b.subi(self.at, b.muli(y, axis.dilation)), axis.stride)
        return b.muli(row, known(axis.x_stride))
