# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The walk over blocks of outputs and units of work, and the epilogue on sums in scratch: rows of the result."""

from collections.abc import Callable

from torch_mlir import ir

from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.contraction.sums import transpose_block
from kiln.lowering.cpu.conv.kernel import ConvKernel
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.weights import Order, Pack
from kiln.lowering.cpu.problem import in_vectors, known
from kiln.lowering.cpu.sizes import LINE, apart, areas

__all__ = ["BlockKernel", "block_layout"]


def block_layout(p: ConvProblem, order: Order, pixels: int, line: int, image: int = 0) -> dict[str, int]:
    """Areas of scratch in elements of the sum, and the total `bytes`.

    A block's weights, unless they are packed already, the sums of `pixels` pixels, and a copy of `image` elements. For
    a planar result, sums of a line again at `turned`, with lanes along columns, `pitch` elements a channel.
    """
    unit = LINE // p.sum_bytes
    pitch = apart(line, unit)
    sizes = {"weights": 0 if p.packed else order.words, "sums": pixels * order.lanes}
    sizes |= {"turned": pitch * order.lanes if p.planar else 0, "image": image}
    layout = areas(sizes, unit) | {"pitch": pitch}
    return layout | {"bytes": layout["end"] * p.sum_bytes}


class BlockKernel(ConvKernel):
    """A kernel that computes blocks of `lanes` outputs, whose weights it packs first, and sums in scratch.

    In `scratch`, from `sums` on, are `lanes` channels of each pixel. The weights of a block begin with word `panel`.
    """

    packing: Pack
    panel: Index = 0

    def prepare(self, layout: dict[str, int], order: Order) -> None:
        """The areas of scratch, as `block_layout` has them."""
        b, p, ctx = self.b, self.p, self.ctx
        self.areas, self.order, self.lanes, self.nv = layout, order, order.lanes, self.s.nv
        self.scratch = b.view(ctx.scratch, 0, layout["end"], self.sum_type)
        self.sums: Index = layout["sums"]
        self.weights, self.per_word = self.operands.weight, order.group
        if not p.packed:
            at = layout["weights"] * p.sum_bytes
            word = b.i32 if order.group > 1 else self.sum_type
            self.weights, self.per_word = b.view(ctx.scratch, at, order.words, word), 1
            self.packing = Pack(b, p, order, self.width, self.operands.weight, self.weights)

    def share(
        self,
        units: Index,
        together: Index,
        by_units: bool,
        unit: Callable[[Index, Index, Index, Index, Index], None],
        copy: Callable[[Index, Index, Index], None] | None = None,
    ) -> None:
        """This thread's share of (unit of work, block of outputs): units and in these blocks (`by_units`), or the
        reverse. Sets of `together` units go by, which share packed weights.

        unit(u, group, channel, count, start): for `count` outputs from `channel` on, of the set that begins with unit
        `start`. copy(group, start, stop): what units of a set read of a group's image.
        """
        b, p = self.b, self.p
        of_group = -(-p.outputs // self.lanes)
        blocks = p.groups * of_group
        low, high = b.split(self.ctx.tid, self.ctx.nt, b.muli(units, blocks))
        if by_units:
            first, last = b.divi(low, blocks), b.ceildivi(high, blocks)
            groups: tuple[Index, Index] = (0, p.groups)
        else:
            first, last = 0, units
            safe = b.maxi(b.muli(units, of_group), 1)
            groups = b.divi(low, safe), b.ceildivi(high, safe)

        def some(start: Index) -> None:
            stop = b.mini(b.addi(start, together), last)

            def block(group: Index, i: Index) -> None:
                number = b.addi(b.muli(group, of_group), i)
                if by_units:
                    begin, end = (b.ceildivi(b.maxi(b.subi(x, number), 0), blocks) for x in (low, high))
                else:
                    begin, end = (b.subi(x, b.muli(number, units)) for x in (low, high))
                begin, end = b.maxi(begin, start), b.mini(end, stop)

                def here() -> None:
                    channel, count = self.begin_block(group, i, number)
                    b.for_(begin, end, 1, lambda u: unit(u, group, channel, count, start))

                b.if_(b.cmpi("slt", begin, end), here)

            def one(group: Index) -> None:
                if copy is not None:
                    copy(group, start, stop)
                b.for_(0, of_group, 1, lambda i: block(group, i))

            b.for_(*groups, 1, one)

        b.for_(first, last, together, some)

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

        in_vectors(b, 0, count, self.width, some)

    def finish_planar(
        self, image: Index, row: Index, channel: Index, count: Index, start: Index, pixels: Index
    ) -> None:
        """The same with lanes along columns, after a transposition in scratch."""
        b, width, pitch = self.b, self.width, self.areas["pitch"]
        source = Place(self.scratch, self.sums, self.lanes)
        transpose_block(b, source, Place(self.scratch, self.areas["turned"], pitch), pixels, self.lanes, width)

        def one(c: Index) -> None:
            line = b.addi(self.areas["turned"], b.muli(c, pitch))
            with self.epilogue.columns(b, image, row, b.addi(channel, c)) as store:

                def vector(i: Index, mask: ir.Value | None) -> None:
                    store(b.addi(start, i), width, b.vload(self.scratch, b.addi(line, i), width), mask)

                in_vectors(b, 0, pixels, width, vector)

        b.for_(0, count, 1, one)
