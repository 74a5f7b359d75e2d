# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul of bf16 by AMX: 2 x 2 (for few rows 1 x 4) tiles of 16 x 16 sums, 32 steps of k an instruction.

Rows of the lhs with unit stride along k are read where they lie; the rhs has its rows k and k + 1 next to each other
(pairs_packing.py), in scratch, where it stays for all blocks of rows, or packed by the compiler (`packed`). Tiles are
read whole, so that an incomplete last one is a copy in scratch: the last rows of the lhs, or, where k is not known to
be a multiple of 32, all of it, filled up with zeros.

A weight [n, k] is better the lhs (`swapped`): the kernel then computes the transpose, packs the rows of the input
instead of the weight, which is much larger, reads the weight once and as it is, and turns the sums in registers.
"""

from collections.abc import Callable
from dataclasses import replace

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects.schedules.cpu import AmxBf16Schedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Grid, Place, add_products
from kiln.lowering.cpu.contraction.amx import AMX_BF16
from kiln.lowering.cpu.contraction.bf16 import LANES
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.matmul.pairs_packing import PairsInScratch
from kiln.lowering.cpu.matmul.partition import for_each_block, run_epilogue
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem
from kiln.lowering.cpu.matmul.tiles_schedule import DEPTH, ROWS
from kiln.lowering.cpu.matmul.turned_sums import turn_sums

__all__ = ["begin_sharing", "emit_tiles", "tiles_layout"]


def transposed(problem: MatmulProblem) -> MatmulProblem:
    """The problem whose result is the transpose: operands exchanged, each with its last two strides."""

    def turn(strides: tuple) -> tuple:
        return (*strides[:-2], strides[-1], strides[-2])

    return replace(
        problem, m=problem.n, n=problem.m, lhs_strides=turn(problem.rhs_strides), rhs_strides=turn(problem.lhs_strides)
    )


def _of_transposed(schedule: AmxBf16Schedule) -> AmxBf16Schedule:
    """The schedule of the transposed problem, which the kernel works on."""
    height, width = schedule.nv * LANES, schedule.mr
    return replace(schedule, mr=height, nv=width // LANES, mc=schedule.nc, nc=schedule.mc)


def tiles_layout(problem: MatmulProblem, schedule: AmxBf16Schedule) -> dict[str, int]:
    """Offsets of the scratch areas and their total `bytes`: the f32 sums, what of the lhs is copied, the rhs."""
    if schedule.transposed:
        return _layout(_of_transposed(schedule))
    return _layout(schedule)


def _layout(s: AmxBf16Schedule) -> dict[str, int]:
    nr = s.nv * LANES
    mc, nc, kc = round_up(s.mc, ROWS), round_up(s.nc, nr), round_up(s.kc, DEPTH)
    layout = {"mc": mc, "nc": nc, "kc": kc, "tile_stride": nc, "elements": mc * nc}
    top = 4 * layout["elements"]
    if s.transposed:
        layout["turned"] = top
        top += 4 * layout["elements"]
    # Rows a multiple of a page apart would fall into the same cache sets: one line of padding.
    rows = mc if s.pack_lhs else ROWS
    layout["lhs"], layout["lhs_stride"] = top, kc + DEPTH
    layout["lhs_elements"] = rows * layout["lhs_stride"]
    top += 2 * layout["lhs_elements"]
    layout["cell"] = top
    top += LINE
    if not s.packed:
        layout["rhs"], layout["rhs_pairs"] = top, nc * kc // 2
        top += 4 * layout["rhs_pairs"]
    layout["bytes"] = top
    return layout


def emit_tiles(
    b: Builder,
    problem: MatmulProblem,
    schedule: AmxBf16Schedule,
    operands: Buffers,
    epilogue: Epilogue,
    ctx: KernelContext,
) -> None:
    """Emits the kernel; schedule keys: mr and nv (16 rows and columns a tile; at most 4 tiles together), mc, nc,
    kc (steps of k that are packed at once), ks (of which a register tile sums in one go), pack_lhs, packed,
    transposed, shared (see `share_lhs`).

    Without `pack_lhs` the lhs has unit stride along k, a known multiple of 32.
    """
    if schedule.transposed:
        exchanged = Buffers(operands.rhs, operands.lhs, operands.rhs_offset, operands.lhs_offset)
        _Tiles(b, transposed(problem), _of_transposed(schedule), exchanged, epilogue, ctx).emit()
    else:
        _Tiles(b, problem, schedule, operands, epilogue, ctx).emit()


def begin_sharing(b: Builder, layout: dict[str, int], ctx: KernelContext) -> None:
    """Emits what has to precede the blocks of products with a schedule of `share_lhs`; layout: its `scratch_layout`."""
    b.store(b.int_(-1, b.i64), _cell(b, layout, ctx), 0)


def _cell(b: Builder, layout: dict[str, int], ctx: KernelContext) -> ir.Value:
    """The place in scratch that says where the rhs begins whose copy is there."""
    return b.view(ctx.scratch, b.addi(ctx.scratch_offset, layout["cell"]), 1, b.i64)


class _Tiles(PairsInScratch):
    s: AmxBf16Schedule

    def __init__(
        self,
        b: Builder,
        problem: MatmulProblem,
        s: AmxBf16Schedule,
        operands: Buffers,
        epilogue: Epilogue,
        ctx: KernelContext,
    ):
        lay = _layout(s)
        super().__init__(b, problem, replace(s, width=LANES), operands, epilogue, ctx, lay, b.f32)
        self.transposed, self.packed = s.transposed, s.packed
        self.high, self.kc = self.mr // ROWS, lay["kc"]
        self.whole = isinstance(problem.k, int) and problem.k <= lay["kc"]

        def area(name: str, count: int, type_: ir.Type) -> ir.Value:
            return b.view(ctx.scratch, b.addi(ctx.scratch_offset, lay[name]), count, type_)

        self.sums = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], b.f32)
        self.lhs = area("lhs", lay["lhs_elements"], ir.BF16Type.get())
        self.cell = _cell(b, lay, ctx)
        if not self.packed:
            self.rhs = area("rhs", lay["rhs_pairs"], b.i32)
        if self.transposed:
            self.turned_sums = area("turned", lay["elements"], b.f32)

    def emit(self) -> None:
        b, lay = self.b, self.layout
        AMX_BF16.begin(b)
        if not self.s.shared:
            self.forget()
        for_each_block(b, self.p, self.ctx, lay["mc"], lay["nc"], self.nr, self.block, ROWS)
        AMX_BF16.end(b)

    def forget(self) -> None:
        """Nothing is packed yet."""
        self.b.store(self.b.int_(-1, self.b.i64), self.cell, 0)

    def finish(self, batch: list[Index], origin: tuple[Index, Index], size: tuple[Index, Index]) -> None:
        if not self.transposed:
            super().finish(batch, origin, size)
            return
        stride, height = self.layout["tile_stride"], self.layout["mc"]
        turn_sums(self.b, self.sums, stride, self.turned_sums, height, *size)
        origin, size = (origin[1], origin[0]), (size[1], size[0])
        run_epilogue(self.b, self.epilogue, batch, origin, size, self.turned_sums, 0, height, LANES)

    def k_piece(self, pc: Index, depth: Index, lhs: Index, rhs: Index, rows: Index, cols: Index) -> None:
        b = self.b
        if self.s.pack_lhs:
            self.pack_lhs(lhs, rows, depth)
        else:
            tail = b.remi(rows, ROWS)
            last = b.addi(lhs, b.muli(b.subi(rows, tail), self.lhs_row))
            b.if_(b.cmpi("sgt", tail, 0), lambda: self.copy_rows(last, tail, depth))
        if not self.packed:
            self.pack_once(rhs, cols, depth)

        def steps(at: Index) -> None:
            count = b.mini(b.subi(depth, at), self.s.ks)
            first = b.andc(b.cmpi("eq", pc, 0), b.cmpi("eq", at, 0))
            self.tiles(first, at, b.muli(b.ceildivi(count, DEPTH), DEPTH), lhs, rhs, rows, cols)

        b.for_(0, b.maxi(depth, 1), self.s.ks, steps)

    def tiles(
        self, first: bool | ir.Value, at: Index, count: Index, lhs: Index, rhs: Index, rows: Index, cols: Index
    ) -> None:
        """All register tiles of the block, for `count` steps of k from `at` on, a multiple of 32.

        The operand that comes from memory is in the outer loop, so that it is read once.
        """
        b, mr, nr = self.b, self.mr, self.nr
        copied = self.s.pack_lhs
        complete = b.muli(b.ceildivi(rows, ROWS), ROWS) if copied else b.round_down(rows, ROWS)
        full = b.round_down(complete, mr)

        def left(i: Index, r: int) -> Place:
            if copied:
                stride = self.layout["lhs_stride"]
                return self.lhs, b.sum_(b.muli(i, stride), r * stride, at), stride
            start = b.sum_(lhs, b.muli(i, self.lhs_row), b.muli(self.lhs_row, r), at)
            return self.operands.lhs, start, self.lhs_row

        def one(i: Index, j: Index, height: int) -> None:
            sources = [left(i, r * ROWS) for r in range(height)]
            self.tile(first, count, at, sources, (rhs, cols), i, j)

        def last(j: Index) -> None:
            source = (self.lhs, at, self.layout["lhs_stride"])
            self.tile(first, count, at, [source], (rhs, cols), complete, j)

        def columns(body: Callable[[Index], None]) -> None:
            b.for_(0, cols, nr, body)

        def strips(i: Index, height: int) -> None:
            columns(lambda j: one(i, j, height))

        def down(j: Index) -> None:
            b.for_(0, full, mr, lambda i: one(i, j, self.high))
            b.for_(full, complete, ROWS, lambda i: one(i, j, 1))
            if not copied:
                b.if_(b.cmpi("slt", complete, rows), lambda: last(j))

        if not self.transposed:
            columns(down)
            return
        b.for_(0, full, mr, lambda i: strips(i, self.high))
        b.for_(full, complete, ROWS, lambda i: strips(i, 1))
        if not copied:
            b.if_(b.cmpi("slt", complete, rows), lambda: columns(last))

    def tile(
        self,
        first: bool | ir.Value,
        count: Index,
        at: Index,
        sources: list[Place],
        right: tuple[Index, Index],
        i: Index,
        j: Index,
    ) -> None:
        """One register tile: the sums of the rows `sources` by columns j ... of the block `right` of the rhs (where it
        begins, how many columns)."""
        b, stride = self.b, self.layout["tile_stride"]
        rhs, cols = right

        def left(_: int, r: int, k: Index) -> Place:
            buffer, start, distance = sources[r]
            return buffer, b.addi(start, k), distance

        add_products(
            b,
            AMX_BF16,
            Grid(len(sources), self.nv),
            lambda r, v: (self.sums, b.sum_(b.muli(i, stride), j, r * ROWS * stride + v * LANES), stride),
            left,
            lambda _, v, k: self.right_tile(rhs, j, b.addi(at, k), v),
            count,
            first=first,
            before=self.fetching(rhs, cols, at, sources, i, j),
        )

    def right_tile(self, rhs: Index, j: Index, k: Index, v: int) -> Place:
        """Where 32 steps of k of the v-th 16 columns behind j lie, in pairs of rows."""
        b, nr = self.b, self.nr
        if self.packed:
            start = b.sum_(rhs, b.muli(j, self.rhs_col), b.muli(k, nr), 2 * v * LANES)
            return self.operands.rhs, start, 2 * nr
        start = b.sum_(b.muli(j, self.layout["kc"] // 2), b.muli(b.divi(k, 2), nr), v * LANES)
        return self.rhs, start, nr

    def fetching(
        self, rhs: Index, cols: Index, at: Index, sources: list[Place], i: Index, j: Index
    ) -> Callable[[Index], None] | None:
        """What a tile fetches, while it multiplies, of the operand that comes from memory: its share of the cache lines
        that the tiles of the next columns of a packed constant (`transposed`: of the next rows) want at the same k, or
        from which the next block will be packed."""
        b, nr = self.b, self.nr
        if not self.s.fetch:
            return None
        if self.transposed:
            count = max(1, -(-self.s.nc // nr))
            buffer, start, distance = sources[0]
            lines = len(sources) * ROWS
            number = b.divi(j, nr)
            start = b.addi(start, b.muli(lines, distance))
        elif self.packed:
            count = max(1, -(-self.s.mc // self.mr))
            buffer, distance, lines = self.operands.rhs, LINE // 2, nr
            number = b.divi(i, self.mr)
            start = b.sum_(rhs, b.muli(b.addi(j, nr), self.rhs_col), b.muli(at, nr))
        else:  # rows of the rhs, where its next block of columns will be packed from
            count = max(1, -(-self.s.mc // self.mr))
            buffer, distance, lines = self.operands.rhs, self.rhs_k, DEPTH
            number = b.divi(i, self.mr)
            start = b.sum_(rhs, cols, j, b.muli(at, self.rhs_k))
        share = -(-lines // count)
        start = b.addi(start, b.muli(b.muli(number, share), distance))
        speed = 1 if self.transposed else nr if self.packed else self.rhs_k

        beside = range(0, nr, LINE // 2) if not (self.transposed or self.packed) else range(1)

        def fetch(k: Index) -> None:
            here = b.addi(start, b.muli(k, speed))
            for e in range(share):
                for column in beside:
                    b.prefetch(buffer, b.sum_(here, b.muli(e, distance), column), locality=2)

        return fetch

    def pack_once(self, rhs: Index, cols: Index, depth: Index) -> None:
        """Packs the rhs block, unless the block before has left it there."""
        b = self.b

        def copy() -> None:
            self.pack_rhs(rhs, cols, depth)
            self.fill_panels(cols, depth)

        if not self.whole:
            copy()
            return
        key = arith.index_cast(b.i64, b.value(rhs))

        def again() -> None:
            copy()
            b.store(key, self.cell, 0)

        b.if_(arith.cmpi(arith.CmpIPredicate.ne, b.load(self.cell, 0), key), again)

    def fill_panels(self, cols: Index, depth: Index) -> None:
        """Zeros for the steps of k that the last tile of the rhs has too many."""
        b, nr = self.b, self.nr
        done = b.ceildivi(depth, 2)
        needed = b.muli(b.ceildivi(depth, DEPTH), DEPTH // 2)
        zeros = b.zero(b.vec(LANES, b.i32))

        def pair(j: Index, k: Index) -> None:
            for v in range(self.nv):
                place = b.sum_(b.muli(j, self.layout["kc"] // 2), b.muli(k, nr), v * LANES)
                b.vstore(zeros, self.rhs, place)

        b.for_(0, cols, nr, lambda j: b.for_(done, needed, 1, lambda k: pair(j, k)))

    def pack_lhs(self, lhs: Index, rows: Index, depth: Index) -> None:
        """Copies the lhs block to scratch, zeros behind the last step of k."""
        b, stride = self.b, self.layout["lhs_stride"]
        if isinstance(self.lhs_k, int) and self.lhs_k == 1:
            self.copy_rows(lhs, rows, depth)
            return
        super().pack_lhs(lhs, rows, depth)
        full = b.round_down(depth, DEPTH)
        tail = b.subi(depth, full)
        zeros = b.zero(b.vec(DEPTH, ir.BF16Type.get()))

        def fill(i: Index) -> None:
            b.vstore(zeros, self.lhs, b.addi(b.muli(i, stride), full), b.mask_between(tail, DEPTH, DEPTH))

        b.if_(b.cmpi("sgt", tail, 0), lambda: b.for_(0, rows, 1, fill))

    def copy_rows(self, lhs: Index, rows: Index, depth: Index) -> None:
        """The same of rows with unit stride along k."""
        b, stride = self.b, self.layout["lhs_stride"]
        full = b.round_down(depth, DEPTH)
        tail = b.subi(depth, full)

        def row(i: Index) -> None:
            source, target = b.addi(lhs, b.muli(i, self.lhs_row)), b.muli(i, stride)

            def copy(k: Index, mask: ir.Value | None = None) -> None:
                x = b.vload(self.operands.lhs, b.addi(source, k), DEPTH, mask)
                b.vstore(x, self.lhs, b.addi(target, k))

            b.for_(0, full, DEPTH, copy)
            b.if_(b.cmpi("sgt", tail, 0), lambda: copy(full, b.tail_mask(tail, DEPTH)))

        b.for_(0, rows, 1, row)
