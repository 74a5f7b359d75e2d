# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul of bf16 by pairs along k: register tiles of broadcast pairs of the lhs times vectors of pairs of the rhs.

The kernel of register tiles (blocked.py) with twice the products an instruction and half the bytes. A vector of the rhs
holds 16 columns of rows k and k + 1, next to each other ("VNNI order"): packed so in scratch, in panels
[k / 2][nr][2], or by the compiler for a constant (`packed`); for few rows two rows of the rhs are interleaved in
registers. An odd k ends in a pair with a zero on both sides.
"""

from dataclasses import replace

from torch_mlir import ir

from kiln.dialects.schedules.cpu import VnniBf16Schedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.bf16 import (
    LANES,
    add_pairs,
    as_pairs,
    broadcast_last,
    broadcast_pair,
    interleave,
)
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.matmul.blocks import Masks
from kiln.lowering.cpu.matmul.fetch import Fetch, next_lines, steps_of_line
from kiln.lowering.cpu.matmul.pairs_packing import PairsInScratch
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, Size

_ROWS_IN_PLACE = 12
_KC = 192
_MC, _NC = 256, 128
_LARGE_BYTES = 256 << 10  # of a rhs that the second-level cache does not keep from call to call


def choose_pairs(problem: MatmulProblem, m: int, packed: bool = False) -> VnniBf16Schedule:
    """The schedule for about m rows; `packed`: the rhs is a constant, packed by the compiler.

    The caller has asked `has_pairs`. A rhs that is in no near cache costs most, so tiles prefetch what comes next, and
    pieces of k and blocks of columns are small enough for two of them in the second-level cache.
    Measured: "bf16 products in pairs" in epyc-kernel-rules.json.
    """
    nr = LANES
    n: Size = problem.n
    nv = 4
    if isinstance(n, int):  # the widest panel, unless its last one is mostly padding
        nv = min((4, 3, 2, 1), key=lambda v: (-(-max(n, 1) // (v * nr)) * v * (1 + 0.02 / v), -v))
    highest = 24 // nv
    heights = [r for r in (12, 8, 6, 4, 3, 2, 1) if r <= highest]
    mr = min(heights, key=lambda r: (-(-max(m, 1) // r) * max(r, 3), -r))
    in_place = not packed and problem.rhs_strides[-1] == 1 and m <= _ROWS_IN_PLACE
    kc = _KC
    if isinstance(problem.k, int) and problem.k > 0:
        pieces = max(1, round(problem.k / _KC))
        kc = round_up(-(-problem.k // pieces), 2)
    return VnniBf16Schedule(
        mr=mr,
        nv=nv,
        width=nr,
        mc=min(_MC, max(m, 1)) if isinstance(problem.m, int) else _MC,
        nc=nv * nr * max(1, _NC // (nv * nr)),
        kc=kc,
        pack_lhs=problem.lhs_strides[-1] != 1,
        pack_rhs=not (packed or in_place),
        packed=packed,
        fetch=not in_place and _is_large(problem),
    )


def _is_large(problem: MatmulProblem) -> bool:
    """Whether the rhs is one matrix, of a size that is not known to be small."""
    n, k = problem.n, problem.k
    return not problem.batch and not (isinstance(n, int) and isinstance(k, int) and 2 * n * k <= _LARGE_BYTES)


def pairs_layout(problem: MatmulProblem, schedule: VnniBf16Schedule) -> dict[str, int]:
    """Offsets of the scratch areas and their total `bytes`: the f32 sums, then bf16 copies of the lhs and the rhs."""
    mr, nr = schedule.mr, schedule.nv * schedule.width
    mc, nc, kc = round_up(schedule.mc, mr), round_up(schedule.nc, nr), round_up(schedule.kc, 2 * LANES)
    layout = {"tile_stride": nc, "mc": mc, "nc": nc, "kc": kc, "elements": round_up(mc * nc, LINE // 4)}
    top = layout["elements"] * 4
    if schedule.pack_lhs:
        # Rows a multiple of a page apart would fall into the same cache sets: one line of padding.
        layout["lhs"], layout["lhs_stride"] = top, kc + LINE // 2
        layout["lhs_elements"] = round_up(mc * layout["lhs_stride"], LINE // 2)
        top += 2 * layout["lhs_elements"]
    if schedule.pack_rhs:
        layout["rhs"], layout["rhs_pairs"] = top, nc * kc // 2
        top += 4 * layout["rhs_pairs"]
    layout["bytes"] = top
    return layout


def packed_pair_strides(schedule: VnniBf16Schedule, k: int) -> tuple[int, int]:
    """Strides along (even) k and n of a packed rhs; the second from the first column of a panel to that of another."""
    return schedule.nv * schedule.width, round_up(k, 2)


def emit_pairs(
    b: Builder,
    problem: MatmulProblem,
    schedule: VnniBf16Schedule,
    operands: Buffers,
    epilogue: Epilogue,
    ctx: KernelContext,
) -> None:
    """Emits the kernel; schedule keys: mr, nv, width (16), mc, nc, kc (even), pack_lhs, pack_rhs and packed.

    Without packing the lhs needs unit stride along k, the rhs along n.
    """
    _Pairs(b, problem, schedule, operands, epilogue, ctx).emit()


class _Pairs(PairsInScratch):
    s: VnniBf16Schedule

    def __init__(
        self,
        b: Builder,
        problem: MatmulProblem,
        s: VnniBf16Schedule,
        operands: Buffers,
        epilogue: Epilogue,
        ctx: KernelContext,
    ):
        lay = pairs_layout(problem, s)
        super().__init__(b, problem, replace(s, width=LANES), operands, epilogue, ctx, lay, b.f32)
        self.sums = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], b.f32)
        self.lhs = operands.lhs
        if s.pack_lhs:
            at = b.addi(ctx.scratch_offset, lay["lhs"])
            self.lhs = b.view(ctx.scratch, at, lay["lhs_elements"], ir.BF16Type.get())
        if s.pack_rhs:
            self.rhs = b.view(ctx.scratch, b.addi(ctx.scratch_offset, lay["rhs"]), lay["rhs_pairs"], b.i32)

    def k_piece(self, pc: Index, depth: Index, lhs: Index, rhs: Index, rows: Index, cols: Index) -> None:
        b = self.b
        lhs_row = self.lhs_row
        if self.s.pack_lhs:
            self.pack_lhs(lhs, rows, depth)
            lhs, lhs_row = 0, self.layout["lhs_stride"]
        if self.s.pack_rhs:
            self.pack_rhs(rhs, cols, depth)

        panel = (lambda j: b.muli(j, self.layout["kc"] // 2)) if self.s.pack_rhs else None

        def tile(j: Index, right: Index, masks: Masks) -> None:
            fetch = next_lines(self, j, right, cols) if self.s.fetch else None
            self.row_tiles(pc, depth, lhs, lhs_row, right, rows, j, masks, fetch)

        self.column_tiles(rhs, cols, panel, tile)

    def row_tiles(
        self,
        pc: Index,
        depth: Index,
        lhs: Index,
        lhs_row: Index,
        right: Index,
        rows: Index,
        j: Index,
        masks: Masks,
        fetch: Fetch | None,
    ) -> None:
        b, mr = self.b, self.mr

        def tile(i: Index, count: int, last: Index | None) -> None:
            row = [b.addi(i, r) if last is None else b.mini(b.addi(i, r), last) for r in range(count)]
            self.tile(pc, depth, [b.addi(lhs, b.muli(x, lhs_row)) for x in row], right, i, j, masks, fetch)

        if isinstance(rows, int):
            full = rows // mr * mr
            b.for_(0, full, mr, lambda i: tile(i, mr, None))
            if rows > full:
                tile(full, rows - full, None)
        else:  # rows past the end read the last row again; their sums land in padding rows that nothing reads
            b.for_(0, rows, mr, lambda i: tile(i, mr, b.subi(rows, 1)))

    def tile(
        self,
        pc: Index,
        depth: Index,
        starts: list[Index],
        right: Index,
        i: Index,
        j: Index,
        masks: Masks,
        fetch: Fetch | None,
    ) -> None:
        """One register tile: sums from zero over this piece of k, then added to the block."""
        b, nv = self.b, self.nv
        count = len(starts)

        def step(k: Index, acc: list[ir.Value], odd: bool) -> list[ir.Value]:
            out = list(acc)
            row = [self.right(right, k, v, masks, odd) for v in range(nv)]
            for r, start in enumerate(starts):
                load = broadcast_last if odd else broadcast_pair
                x = load(b, self.lhs, b.addi(start, k))
                for v in range(nv):
                    out[r * nv + v] = add_pairs(x, row[v], out[r * nv + v])
            return out

        acc = [b.zero(self.vector)] * (count * nv)
        even = b.round_down(depth, 2)
        if fetch is None:
            before = b.for_(0, even, 2, lambda k, a: step(k, a, False), acc)
        else:
            number, run = b.divi(i, self.mr), steps_of_line(self.operands.rhs)

            def steps(k: Index, acc: list[ir.Value]) -> list[ir.Value]:
                fetch(number, k)
                return b.for_(k, b.mini(b.addi(k, run), even), 2, lambda k, a: step(k, a, False), acc)

            before = b.for_(0, even, run, steps, acc)
        odd = b.cmpi("ne", even, depth)
        acc = b.if_(odd, lambda: step(even, before, True), lambda: before, [self.vector] * len(before))
        self.keep(pc, i, j, count, acc)

    def right(self, start: Index, k: Index, v: int, masks: Masks, odd: bool) -> ir.Value:
        """Pairs of rows k and k + 1 (zero where `odd`) of the v-th vector of columns."""
        b = self.b
        if self.s.pack_rhs:
            at = b.sum_(start, b.muli(b.divi(k, 2), self.nr), v * LANES)
            return as_pairs(b, b.vload(self.rhs, at, LANES))
        if self.s.packed:
            at = b.sum_(start, b.muli(k, self.nr), 2 * v * LANES)
            return as_pairs(b, b.vload(self.operands.rhs, at, 2 * LANES))
        at = b.sum_(start, b.muli(k, self.rhs_k), v * LANES)
        mask = masks[v] if masks else None
        x = self.load(at, mask)
        y = b.zero(x.type) if odd else self.load(b.addi(at, self.rhs_k), mask)
        return as_pairs(b, interleave(b, x, y))
