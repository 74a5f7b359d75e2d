# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Outer-product matmul: register tiles of broadcast lhs elements times rhs row vectors.

The kernel for rhs with unit stride along n, read in place, and, with packing, for every layout.
"""

from collections.abc import Callable

from typing_extensions import override

from kiln.dialects.schedules.cpu import BlockedSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Place, pack
from kiln.lowering.cpu.contraction.rows import Rows
from kiln.lowering.cpu.contraction.sizes import LINE, apart, round_up
from kiln.lowering.cpu.contraction.vectors import float_unit
from kiln.lowering.cpu.matmul.blocks import Blocks, Masks, Right
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem


def block_layout(problem: MatmulProblem, schedule: BlockedSchedule) -> dict[str, int]:
    """Element offsets and strides of the scratch areas (in the sum dtype) and their total `bytes`."""
    mr, nr = schedule.mr, schedule.nv * schedule.width
    mc, nc, kc = round_up(schedule.mc, mr), round_up(schedule.nc, nr), schedule.kc
    line = LINE // problem.sum_bytes
    layout = {"tile": 0, "tile_stride": nc, "mc": mc, "nc": nc}
    top = round_up(mc * nc, line)
    k_padded = round_up(kc, schedule.width)
    if schedule.pack_lhs:
        layout["lhs"] = top
        layout["lhs_stride"] = apart(k_padded, line)
        layout["lhs_stride_m"] = round_up(mc, schedule.width) + schedule.width
        top += round_up(max(mc * layout["lhs_stride"], k_padded * layout["lhs_stride_m"]), line)
    if schedule.pack_rhs:
        layout["rhs"] = top
        top += round_up(nc * k_padded, line)
    layout["elements"] = top
    layout["bytes"] = top * problem.sum_bytes
    return layout


def panel_strides(schedule: BlockedSchedule, k: int) -> tuple[int, int]:
    """Strides along k and n of a packed rhs; the second holds from the first column of a panel to that of another."""
    return schedule.nv * schedule.width, k


class Blocked(Blocks):
    """Fused multiply-adds of broadcast lhs elements and rhs row vectors.

    Where `packed`, the rhs lies in panels of nv * width columns, [n / nr][k][nr], as `pack_rhs` would make them (see
    `panel_strides`).
    """

    s: BlockedSchedule

    def __init__(
        self,
        b: Builder,
        problem: MatmulProblem,
        s: BlockedSchedule,
        operands: Buffers,
        epilogue: Epilogue,
        ctx: KernelContext,
    ):
        lay, self.unit = block_layout(problem, s), float_unit(problem.sum_dtype, s.width)
        sum_type = self.unit.carried(b).element_type
        super().__init__(b, problem, s, operands, epilogue, ctx, lay, sum_type)
        self.sums = self.scratch = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], sum_type)
        self.right, self.right_k = (self.scratch, self.nr) if s.pack_rhs else (operands.rhs, self.rhs_k)

    @override
    def left_rows(self, lhs: Index, rows: Index, depth: Index) -> Rows:
        if self.s.pack_lhs:
            return self.pack_lhs(lhs, rows, depth)
        return Rows(self.operands.lhs, lhs, self.lhs_row, self.lhs_k)

    @override
    def pack_right(self, rhs: Index, cols: Index, depth: Index) -> Callable[[Index], Index] | None:
        if not self.s.pack_rhs:
            return None
        self.pack_rhs(rhs, cols, depth)
        return lambda j: self.b.addi(self.layout["rhs"], self.b.muli(j, round_up(self.s.kc, self.width)))

    @override
    def right_at(self, start: Index, masks: Masks) -> Right:
        step = self.steps(start, self.right_k)

        def right(v: int, k: Index, missing: Index) -> Place:
            at = self.b.addi(step(k), v * self.width)
            return Place(self.right, at, mask=masks[v] if masks else None)

        return right

    def ahead(self, start: Index, masks: Masks) -> Callable[[Index], None] | None:
        """Prefetches rows of the rhs into the first-level cache."""
        b, size = self.b, self.p.sum_bytes
        if not self.s.prefetch or masks is not None:
            return None

        def prefetch(k: Index) -> None:
            at = b.addi(start, b.muli(k, self.right_k))
            for byte in range(0, self.nr * size, LINE):
                b.prefetch(self.right, b.sum_(at, b.muli(self.s.prefetch, self.right_k), byte // size))

        return prefetch

    def pack_lhs(self, lhs: Index, rows: Index, depth: Index) -> Rows:
        """Copies the lhs block to scratch."""
        b, lay = self.b, self.layout
        at = lay["lhs"]
        padded = b.muli(b.ceildivi(rows, self.mr), self.mr)
        if self.lhs_k == 1:
            s = lay["lhs_stride"]
            source = (self.operands.lhs, lhs, self.lhs_row)
            pack.copy_rows(b, *source, self.scratch, at, s, rows, padded, depth, self.width)
            return Rows(self.scratch, at, s, padded=True)
        s = lay["lhs_stride_m"]
        if self.lhs_row == 1:
            source = (self.operands.lhs, lhs, self.lhs_k)
            pack.copy_rows(b, *source, self.scratch, at, s, depth, depth, rows, self.width)
        else:
            source = (self.operands.lhs, lhs, (self.lhs_k, self.lhs_row))
            pack.pack_strided(b, *source, self.scratch, at, (s, 1), depth, rows, padded)
        return Rows(self.scratch, at, 1, s, padded=True)

    def pack_rhs(self, rhs: Index, cols: Index, depth: Index) -> None:
        """Packs the rhs block as [cols / nr][k][nr], zeros (or repeats) past the last column."""
        b, nr, width = self.b, self.nr, self.width
        k_padded = round_up(self.s.kc, width)

        def panel(j: Index) -> None:
            at = b.addi(self.layout["rhs"], b.muli(j, k_padded))
            here = b.mini(b.subi(cols, j), nr)
            source = b.addi(rhs, b.muli(j, self.rhs_col))
            if self.rhs_col == 1:
                whole = b.cmpi("eq", here, nr)
                for size, taken in ((nr, whole), (here, None)):
                    args = (b, self.operands.rhs, source, self.rhs_k, self.scratch, at, nr, depth, depth)
                    if taken is not None:
                        b.if_(taken, lambda a=args, z=size: pack.copy_rows(*a, z, width))
                    elif whole is not True:
                        b.if_(b.cmpi("ne", here, nr), lambda a=args, z=size: pack.copy_rows(*a, z, width))
            elif self.rhs_k == 1:

                def strip(first: Index) -> None:  # a loop: one transposition of registers is a third of the code
                    start, to = b.addi(source, b.muli(first, self.rhs_col)), b.addi(at, first)
                    args = (b, self.operands.rhs, start, self.rhs_col, self.scratch, to, nr)
                    pack.pack_transposed(*args, b.subi(here, first), depth, width)

                b.for_(0, here, width, strip)
            else:
                strides = (self.rhs_k, self.rhs_col)
                pack.pack_strided(b, self.operands.rhs, source, strides, self.scratch, at, (nr, 1), depth, here, nr)

        b.for_(0, cols, nr, panel)
