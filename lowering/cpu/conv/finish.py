# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The epilogue on sums that lie in scratch, channels beside each other: rows of the result at a time."""

from torch_mlir import ir

from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.contraction.pack import transpose_block
from kiln.lowering.cpu.conv.kernel import ConvKernel
from kiln.lowering.cpu.conv.weights import Order, Pack
from kiln.lowering.cpu.matmul.problem import known

__all__ = ["BlockKernel"]


class BlockKernel(ConvKernel):
    """A kernel that computes blocks of `lanes` outputs, whose weights it packs first, and sums in scratch.

    Attributes of the kernel: `scratch` in the sum type; in it, from `sums` on, `lanes` channels of each pixel. For a
    planar result, `layout["turned"]` is where the channels lie with lanes along columns, `layout["pitch"]` elements
    apart. Weights that are not packed already are by `packing`; the block's begin with word `panel` of `order`.
    """

    scratch: ir.Value
    layout: dict[str, int]
    sums: Index
    lanes: int
    order: Order
    packing: Pack
    panel: Index = 0

    def begin_block(self, group: Index, i: Index, number: Index) -> tuple[Index, Index]:
        """The first output, and how many there are, of the i-th block of a group, the `number`-th of all; its weights
        are packed.
        """
        b, p = self.b, self.p
        first = b.muli(i, self.lanes)
        count: Index = self.lanes
        if p.outputs % self.lanes:
            count = b.mini(b.subi(p.outputs, first), self.lanes)
        channel = b.addi(b.muli(group, p.outputs), first)
        start = self.operands.weight_offset
        if p.packed:
            self.panel = b.addi(start, b.muli(number, self.order.words))
            return channel, count
        stride = known(p.weight_strides[0])
        if p.transposed:  # [C, O / groups, ...]
            of_group = b.muli(self.packing.p.channels, known(p.weight_strides[1]))
            start = b.sum_(start, b.muli(first, stride), b.muli(group, of_group))
        else:
            start = b.addi(start, b.muli(channel, stride))
        self.packing.pack(start, count)
        return channel, count

    def finish(self, image: Index, row: Index, channel: Index, count: Index, start: Index, pixels: Index) -> None:
        """The epilogue on the sums of `pixels` columns from `start` on, `count` channels each."""
        b = self.b
        if self.p.planar:
            self.finish_planar(image, row, channel, count, start, pixels)
            return

        def some(j: Index, mask: ir.Value | None) -> None:
            with self.epilogue.channels(b, image, row, b.addi(channel, j), self.width, mask) as pixel:

                def one(i: Index) -> None:
                    at = b.sum_(self.sums, b.muli(i, self.lanes), j)
                    pixel(b.addi(start, i), b.vload(self.scratch, at, self.width))

                b.for_(0, pixels, 1, one)

        self.vectors(0, count, some)

    def finish_planar(
        self, image: Index, row: Index, channel: Index, count: Index, start: Index, pixels: Index
    ) -> None:
        """The same with lanes along columns, after a transposition in scratch."""
        b, width, pitch = self.b, self.width, self.layout["pitch"]

        source = Place(self.scratch, self.sums, self.lanes)
        transpose_block(b, source, Place(self.scratch, self.layout["turned"], pitch), pixels, self.lanes, width)

        def one(c: Index) -> None:
            line = b.addi(self.layout["turned"], b.muli(c, pitch))
            with self.epilogue.columns(b, image, row, b.addi(channel, c)) as store:

                def vector(i: Index, mask: ir.Value | None) -> None:
                    store(b.addi(start, i), width, b.vload(self.scratch, b.addi(line, i), width), mask)

                self.vectors(0, pixels, vector)

        b.for_(0, count, 1, one)
