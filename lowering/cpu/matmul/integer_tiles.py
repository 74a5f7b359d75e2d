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
from torch_mlir.dialects import arith

from kiln.dialects.schedules.cpu import AmxInt8Schedule, Int8Schedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.amx import AMX_INT8
from kiln.lowering.cpu.contraction.operands import once
from kiln.lowering.cpu.contraction.sizes import LINE, apart, round_up
from kiln.lowering.cpu.matmul.blocks import Masks
from kiln.lowering.cpu.matmul.fetch import Fetch, next_lines, steps_of_line
from kiln.lowering.cpu.matmul.integer_packing import IntegersInScratch
from kiln.lowering.cpu.matmul.integer_rows import RowsInPlace
from kiln.lowering.cpu.matmul.integers import units_for
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, known

__all__ = ["emit_integers", "integers_layout", "packed_integer_strides"]


def integers_layout(problem: MatmulProblem, schedule: Int8Schedule) -> dict[str, int]:
    """Offsets of the scratch areas and their total `bytes`: the sums, those of the lhs rows, both operands' copies,
    and which parts of the operands what is there was made from (`cells`)."""
    mr, nr = schedule.mr, schedule.nv * schedule.width
    mc, nc, kc = round_up(schedule.mc, mr), round_up(schedule.nc, nr), round_up(schedule.kc, LINE)
    wide = 1 if units_for(schedule).shifted else 2  # bytes of an element of the lhs
    layout = {"tile_stride": nc, "mc": mc, "nc": nc, "kc": kc, "elements": round_up(mc * nc, LINE // 4)}
    layout["rows"] = layout["elements"] * 4
    layout["lhs"], layout["lhs_stride"] = layout["rows"] + round_up(mc * 4, LINE), apart(kc, LINE)
    layout["cells"] = layout["lhs"] + (0 if schedule.in_place else mc * layout["lhs_stride"] * wide)
    layout["rhs"] = layout["cells"] + LINE
    layout["bytes"] = layout["rhs"] + (0 if schedule.packed else nc * kc)
    return layout


def packed_integer_strides(schedule: Int8Schedule, k: int) -> tuple[int, int, int]:
    """Strides along k (between groups) and n (between panels) of a packed rhs, and the steps of k in a group."""
    group = AMX_INT8.group if isinstance(schedule, AmxInt8Schedule) else units_for(schedule).group
    whole = AMX_INT8.depth if isinstance(schedule, AmxInt8Schedule) else group  # tiles are read whole
    return schedule.nv * schedule.width, round_up(k, whole), group


def emit_integers(
    b: Builder,
    problem: MatmulProblem,
    schedule: Int8Schedule,
    operands: Buffers,
    epilogue: Epilogue,
    ctx: KernelContext,
) -> None:
    """Emits the kernel; schedule keys: mr, nv, width, mc, nc, kc (a multiple of 64), packed,
    in_place (a lhs with unit stride along k, of a group of steps at least; by VNNI alone), fetch (see fetch.py)."""
    _Integers(b, problem, schedule, operands, epilogue, ctx).emit()


class _Integers(IntegersInScratch):
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
        super().__init__(b, problem, s, operands, epilogue, ctx, lay, b.i32)
        self.units = units_for(s)
        self.group = self.units.group
        self.step = self.width * self.group
        kind, count = (b.i8, 1) if self.units.shifted else (b.i16, 2)

        def area(name: str, elements: int, type_: ir.Type) -> ir.Value:
            return b.view(ctx.scratch, b.addi(ctx.scratch_offset, lay[name]), elements, type_)

        self.sums = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], b.i32)
        self.rows = area("rows", lay["mc"], b.i32)
        self.cells = area("cells", 2, b.i64)
        self.left = None
        if s.in_place:
            self.left = RowsInPlace(b, operands.lhs, self.lhs_row, self.units)
        else:
            elements = lay["mc"] * lay["lhs_stride"]
            self.lhs, self.groups = area("lhs", elements, kind), area("lhs", elements * count // 4, b.i32)
        self.whole = isinstance(problem.k, int) and problem.k <= lay["kc"]
        self.packed = s.packed
        self.rhs = operands.rhs if self.packed else area("rhs", lay["nc"] * lay["kc"], b.i8)

    def k_piece(self, pc: Index, depth: Index, lhs: Index, rhs: Index, rows: Index, cols: Index) -> None:
        b, mr, left = self.b, self.mr, self.left
        if left is None:
            self.pack_lhs(lhs, rows, depth)
        elif self.units.shifted:
            self.once(0, lhs, lambda: left.keep_sums(lhs, rows, depth, mr, self.rows))
        if not self.packed:
            self.once(1, rhs, lambda: self.pack_panels(rhs, cols, depth, self.layout["kc"], self.step))

        def tiles(j: Index, right: Index, masks: Masks) -> None:
            # Rows past the end have sums of what lies there, which nothing reads.
            fetch = next_lines(self, j, right, cols) if self.s.fetch else None

            def copied(i: Index) -> None:
                stride = self.layout["lhs_stride"] // self.group
                starts = [b.muli(b.addi(i, r), stride) for r in range(mr)]
                self.tile(pc, depth, i, j, right, starts, fetch)

            if left is not None:
                starts = left.starts
                left.tiles(rows, mr, lambda i, n: self.tile(pc, depth, i, j, right, starts(lhs, n), fetch))
            else:
                b.for_(0, rows, mr, copied)

        self.column_tiles(rhs, cols, None if self.packed else lambda j: b.muli(j, self.layout["kc"]), tiles)

    def once(self, cell: int, start: Index, make: Callable[[], None]) -> None:
        """Makes what a block needs in scratch of an operand's part that begins at `start`, unless the block before has
        left it there: consecutive blocks share rows or columns."""
        if self.left is None or not self.whole:
            make()
        else:
            once(self.b, self.cells, cell, start, make)

    def emit(self) -> None:
        for cell in range(2):
            self.b.store(self.b.int_(-1, self.b.i64), self.cells, cell)
        super().emit()

    def tile(
        self, pc: Index, depth: Index, i: Index, j: Index, right: Index, starts: list[Index], fetch: Fetch | None
    ) -> None:
        """One register tile: sums over this piece of k, then added to the block. `starts`: where its rows begin."""
        b, nv, units, rows = self.b, self.nv, self.units, self.left
        count = len(starts)

        def products(g: Index, acc: Sequence[ir.Value], group: Callable[[Index], ir.Value]) -> list[ir.Value]:
            out = list(acc)
            at = b.addi(right, b.muli(g, self.nr * self.group))
            row = [units.right(b, b.vload(self.rhs, b.addi(at, v * self.step), self.step)) for v in range(nv)]
            for r, start in enumerate(starts):
                x = units.everywhere(b, group(start))
                for v in range(nv):
                    out[r * nv + v] = units.add(b, out[r * nv + v], row[v], x)
            return out

        def step(g: Index, acc: Sequence[ir.Value]) -> list[ir.Value]:
            if rows is None:
                return products(g, acc, lambda start: b.load(self.groups, b.addi(start, g)))
            group = rows.group
            return products(g, acc, lambda start: group(start, b.muli(g, self.group)))

        if units.shifted:
            over = [b.broadcast(b.load(self.rows, b.addi(i, r)), self.width) for r in range(count)]
            acc = [x for x in over for _ in range(nv)]
        else:
            acc = [b.zero(self.vector)] * (count * nv)
        groups = b.ceildivi(depth, self.group) if rows is None else b.divi(depth, self.group)
        if fetch is None:
            acc = b.for_(0, groups, 1, step, acc)
        else:
            run, number = steps_of_line(self.operands.rhs) // self.group, b.divi(i, self.mr)

            def begun(g: Index, acc: list[ir.Value]) -> list[ir.Value]:
                fetch(number, b.muli(g, self.group))
                return b.for_(g, b.mini(b.addi(g, run), groups), 1, step, acc)

            acc = b.for_(0, groups, run, begun, acc)
        if rows is not None:
            tail, before = b.subi(depth, b.muli(groups, self.group)), acc
            acc = b.if_(
                b.cmpi("sgt", tail, 0),
                lambda: products(groups, before, lambda start: rows.last_group(start, depth, tail)),
                lambda: before,
                [self.vector] * len(acc),
            )
        self.keep(pc, i, j, count, acc)

    def add(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The sum of two vectors of sums."""
        return arith.addi(x, y)

    def block(self, batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        # Sums that are the result go there from registers, not by way of scratch: 7 % of [512, 768] x [768, 768].
        b = self.b
        to = self.epilogue.destination(b, batch) if self.epilogue.is_plain_store else None
        self.extent = rows, cols
        self.result = to and replace(to, offset=b.sum_(to.offset, b.muli(m0, to.row_stride), n0))
        super().block(batch, m0, n0, rows, cols)

    def finish(self, batch: list[Index], origin: tuple[Index, Index], size: tuple[Index, Index]) -> None:
        if self.result is None:
            super().finish(batch, origin, size)

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
