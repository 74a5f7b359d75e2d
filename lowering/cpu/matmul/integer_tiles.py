# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul of 8-bit integers by register tiles: broadcast groups of the lhs times vectors of groups of the rhs.

A vector of the rhs holds the `group` next steps of k of each of its columns, next to each other: packed so in scratch,
or by the compiler for a constant (`packed`), [k / group][nr][group]. The lhs is read in place where its rows allow it
(`in_place`), else copied to scratch, where a group is one 32-bit element. Its last group ends in zeros, which make up
for what the last group of the rhs holds beyond k.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.schedules.cpu import AmxInt8Schedule, Int8Schedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.contraction.amx import AMX_INT8
from kiln.lowering.cpu.contraction.integers import integer_unit
from kiln.lowering.cpu.contraction.operands import once
from kiln.lowering.cpu.contraction.rows import Rows
from kiln.lowering.cpu.contraction.sizes import LINE, apart, round_up
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.matmul.blocks import Masks, Right
from kiln.lowering.cpu.matmul.integer_packing import IntegersInScratch
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, known

__all__ = ["Integers", "integers_layout", "packed_integer_strides"]


def integers_layout(problem: MatmulProblem, schedule: Int8Schedule) -> dict[str, int]:
    """Offsets of the scratch areas and their total `bytes`: the sums, those of the lhs rows, both operands' copies,
    and which parts of the operands what is there was made from (`cells`).
    """
    mr, nr = schedule.mr, schedule.nv * schedule.width
    mc, nc, kc = round_up(schedule.mc, mr), round_up(schedule.nc, nr), round_up(schedule.kc, LINE)
    wide = 1 if integer_unit(schedule.width, target()).shifted else 2  # bytes of an element of the lhs
    layout = {"tile_stride": nc, "mc": mc, "nc": nc, "kc": kc, "elements": round_up(mc * nc, LINE // 4)}
    layout["rows"] = layout["elements"] * 4
    layout["lhs"], layout["lhs_stride"] = layout["rows"] + round_up(mc * 4, LINE), apart(kc, LINE)
    layout["cells"] = layout["lhs"] + (0 if schedule.in_place else mc * layout["lhs_stride"] * wide)
    layout["rhs"] = layout["cells"] + LINE
    layout["bytes"] = layout["rhs"] + (0 if schedule.packed else nc * kc)
    return layout


def packed_integer_strides(schedule: Int8Schedule, k: int) -> tuple[int, int, int]:
    """Strides along k (between groups) and n (between panels) of a packed rhs, and the steps of k in a group."""
    unit = AMX_INT8 if isinstance(schedule, AmxInt8Schedule) else integer_unit(schedule.width, target())
    return schedule.nv * schedule.width, round_up(k, unit.depth), unit.group


class Integers(IntegersInScratch):
    """in_place: the lhs has unit stride along k, and a group of steps of k at least."""

    s: Int8Schedule

    def __init__(
        self,
        b: Builder,
        problem: MatmulProblem,
        s: Int8Schedule,
        operands: Buffers,
        epilogue: Epilogue,
        ctx: KernelContext,
    ):
        lay = integers_layout(problem, s)
        self.unit = self.integers = integer_unit(s.width, target())
        super().__init__(b, problem, s, operands, epilogue, ctx, lay, b.i32)
        self.shifted, self.group = self.integers.shifted, self.integers.group
        self.step = self.width * self.group
        kind = b.i8 if self.shifted else b.i16

        def area(name: str, elements: int, type_: ir.Type) -> ir.Value:
            return b.view(ctx.scratch, b.addi(ctx.scratch_offset, lay[name]), elements, type_)

        self.sums = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], b.i32)
        self.rows = area("rows", lay["mc"], b.i32)
        self.cells = area("cells", 2, b.i64)
        if not s.in_place:
            self.lhs = area("lhs", lay["mc"] * lay["lhs_stride"], kind)
        self.whole = isinstance(problem.k, int) and problem.k <= lay["kc"]
        self.packed = s.packed
        self.rhs = operands.rhs
        if not self.packed:
            self.rhs = area("rhs", lay["nc"] * lay["kc"], b.i8)
            word = ir.IntegerType.get_signless(8 * self.group)
            self.rhs_words = area("rhs", lay["nc"] * lay["kc"] // self.group, word)

    @override
    def left_rows(self, lhs: Index, rows: Index, depth: Index) -> Rows:
        if self.s.in_place:
            left = Rows(self.operands.lhs, lhs, self.lhs_row)
            if self.shifted:
                self.once(0, lhs, lambda: self.keep_row_sums(left, rows, depth))
            return left
        self.pack_lhs(lhs, rows, depth)  # sums of rows past the end are those of what lies there, which nothing reads
        return Rows(self.lhs, 0, self.layout["lhs_stride"], padded=True, zeros=True)

    @override
    def pack_right(self, rhs: Index, cols: Index, depth: Index) -> Callable[[Index], Index] | None:
        if self.packed:
            return None
        self.once(1, rhs, lambda: self.pack_panels(rhs, cols, depth, self.layout["kc"] // self.group))
        return lambda j: self.b.muli(j, self.layout["kc"])

    @override
    def right_at(self, start: Index, masks: Masks) -> Right:
        step = self.steps(start, self.nr)
        return lambda v, k, _: Place(self.rhs, self.b.addi(step(k), v * self.step))

    def begin(self, i: Index, count: int) -> list[ir.Value]:
        """What shifting the rhs adds is taken off first."""
        if not self.shifted:
            return super().begin(i, count)
        b = self.b
        over = [b.broadcast(b.load(self.rows, b.addi(i, r)), self.width) for r in range(count)]
        return [x for x in over for _ in range(self.nv)]

    def once(self, cell: int, start: Index, make: Callable[[], None]) -> None:
        """Makes what a block needs in scratch of an operand's part that begins at `start`, unless the block before has
        left it there: consecutive blocks share rows or columns.
        """
        if not self.s.in_place or not self.whole:
            make()
        else:
            once(self.b, self.cells, cell, start, make)

    @override
    def emit(self) -> None:
        for cell in range(2):
            self.b.store(self.b.int_(-1, self.b.i64), self.cells, cell)
        super().emit()

    @override
    def block(self, batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        # Sums that are the result go there from registers, not by way of scratch: 7 % of [512, 768] x [768, 768].
        b = self.b
        to = self.epilogue.destination(b, batch) if self.epilogue.is_plain_store else None
        self.extent = rows, cols
        self.result = to and replace(to, offset=b.sum_(to.offset, b.muli(m0, to.row_stride), n0))
        super().block(batch, m0, n0, rows, cols)

    @override
    def finish(self, batch: list[Index], origin: tuple[Index, Index], size: tuple[Index, Index]) -> None:
        if self.result is None:
            super().finish(batch, origin, size)

    @override
    def keep(self, pc: Index, i: Index, j: Index, count: int, acc: Sequence[ir.Value]) -> None:
        b = self.b
        if self.result is None:
            super().keep(pc, i, j, count, acc)
            return
        acc = self.resumed(pc, i, j, count, acc)
        last = b.cmpi("sge", b.addi(pc, self.kc), known(self.p.k))
        b.if_(last, lambda: self.store(i, j, count, acc), lambda: self.save(i, j, count, acc))

    def store(self, i: Index, j: Index, count: int, acc: Sequence[ir.Value]) -> None:
        """The sums of a tile, as the result."""
        b, (rows, cols), to = self.b, self.extent, self.result
        assert to is not None
        starts = [b.sum_(to.offset, b.muli(b.addi(i, r), to.row_stride), j) for r in range(count)]

        def whole() -> None:
            for r, start in enumerate(starts):
                for v in range(self.nv):
                    b.vstore(acc[r * self.nv + v], to.buffer, b.addi(start, v * self.width))

        def part() -> None:
            left = b.subi(cols, j)
            masks = [b.mask_below(b.maxi(b.subi(left, v * self.width), 0), self.width) for v in range(self.nv)]

            def row(r: int) -> None:
                for v, mask in enumerate(masks):
                    b.vstore(acc[r * self.nv + v], to.buffer, b.addi(starts[r], v * self.width), mask)

            for r in range(count):
                b.if_(b.cmpi("slt", b.addi(i, r), rows), lambda r=r: row(r))

        inside = b.andc(b.cmpi("sle", b.addi(i, count), rows), b.cmpi("sle", b.addi(j, self.nr), cols))
        b.if_(inside, whole, part)
