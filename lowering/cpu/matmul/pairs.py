# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul of bf16 by pairs along k: register tiles of broadcast pairs of the lhs times vectors of pairs of the rhs.

The kernel of register tiles (blocked.py) with twice the products an instruction and half the bytes. A vector of the rhs
holds 16 columns of rows k and k + 1, next to each other ("VNNI order"): packed so in scratch, in panels
[k / 2][nr][2], or by the compiler for a constant (`packed`); for few rows two rows of the rhs are interleaved in
registers. An odd k ends in a pair with a zero on both sides.
"""

from collections.abc import Callable
from dataclasses import replace

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.schedules.cpu import VnniBf16Schedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.contraction.bf16 import LANES
from kiln.lowering.cpu.contraction.rows import Rows
from kiln.lowering.cpu.contraction.sizes import LINE, apart, round_up
from kiln.lowering.cpu.contraction.vectors import float_unit
from kiln.lowering.cpu.contraction.words import Lines, Words, pack
from kiln.lowering.cpu.matmul.blocks import Masks, Right
from kiln.lowering.cpu.matmul.panels import Panels
from kiln.lowering.cpu.matmul.panels_schedule import panel_vectors
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
    nv = panel_vectors(n, nr) if isinstance(n, int) else 4
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
        layout["lhs"], layout["lhs_stride"] = top, apart(kc, LINE // 2)
        layout["lhs_elements"] = round_up(mc, LANES) * layout["lhs_stride"]
        top += 2 * layout["lhs_elements"]
    if schedule.pack_rhs:
        layout["rhs"], layout["rhs_pairs"] = top, nc * kc // 2
        top += 4 * layout["rhs_pairs"]
    layout["bytes"] = top
    return layout


def packed_pair_strides(schedule: VnniBf16Schedule, k: int) -> tuple[int, int]:
    """Strides along (even) k and n of a packed rhs; the second from the first column of a panel to that of another."""
    return schedule.nv * schedule.width, round_up(k, 2)


class Pairs(Panels):
    """Without packing the lhs needs unit stride along k, the rhs along n."""

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
        lay, in_rows = pairs_layout(problem, s), not (s.pack_rhs or s.packed)
        self.unit = float_unit("f32", LANES, pairs=True, in_rows=in_rows)
        super().__init__(b, problem, replace(s, width=LANES), operands, epilogue, ctx, lay, b.f32)
        self.sums = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], b.f32)
        self.lhs, self.right = operands.lhs, operands.rhs
        if s.pack_lhs:
            at = b.addi(ctx.scratch_offset, lay["lhs"])
            self.lhs = b.view(ctx.scratch, at, lay["lhs_elements"], ir.BF16Type.get())
            self.lhs_words = b.view(ctx.scratch, at, lay["lhs_elements"] // 2, b.i32)
        if s.pack_rhs:
            at = b.addi(ctx.scratch_offset, lay["rhs"])
            self.rhs_words = b.view(ctx.scratch, at, lay["rhs_pairs"], b.i32)
            self.right = b.view(ctx.scratch, at, 2 * lay["rhs_pairs"], ir.BF16Type.get())

    @override
    def left_rows(self, lhs: Index, rows: Index, depth: Index) -> Rows:
        if not self.s.pack_lhs:
            return Rows(self.lhs, lhs, self.lhs_row)
        b, stride = self.b, self.layout["lhs_stride"]
        words = Words(b, Lines(self.operands.lhs, self.lhs_row, self.lhs_k), self.unit)

        def place(_: int, i: Index) -> tuple[ir.Value, Index]:
            return self.lhs_words, b.muli(i, stride // 2)

        pack(words, lhs, rows, depth, place, stride // 2, turned=False)
        return Rows(self.lhs, 0, stride)

    @override
    def pack_right(self, rhs: Index, cols: Index, depth: Index) -> Callable[[Index], Index] | None:
        if not self.s.pack_rhs:
            return None
        self.pack_panels(rhs, cols, depth, self.layout["kc"] // 2)
        return lambda j: self.b.muli(j, self.layout["kc"])

    @override
    def right_at(self, start: Index, masks: Masks) -> Right:
        in_rows = not (self.s.pack_rhs or self.s.packed)
        step = self.steps(start, self.rhs_k if in_rows else self.nr)
        lanes = LANES if in_rows else 2 * LANES

        def right(v: int, k: Index, missing: Index) -> Place:
            at = self.b.addi(step(k), v * lanes)
            return Place(self.right, at, self.rhs_k, masks[v] if masks else None, missing)

        return right
