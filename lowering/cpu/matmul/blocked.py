# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Outer-product matmul: register tiles of broadcast lhs elements times rhs row vectors.

The kernel for rhs with unit stride along n, read in place, and, with packing, for every layout.
"""

from torch_mlir import ir

from kiln.dialects.schedules.cpu import BlockedSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import pack
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.matmul.blocks import Blocks, Masks
from kiln.lowering.cpu.matmul.fetch import Fetch, next_lines, steps_of_line
from kiln.lowering.cpu.matmul.microkernel import Left, Right, outer_products
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, element_type


def block_layout(problem: MatmulProblem, schedule: BlockedSchedule) -> dict[str, int]:
    """Element offsets and strides of the scratch areas (in the sum dtype) and their total `bytes`."""
    mr, nr = schedule.mr, schedule.nv * schedule.width
    mc, nc, kc = round_up(schedule.mc, mr), round_up(schedule.nc, nr), schedule.kc
    line = LINE // problem.sum_bytes
    layout = {"tile": 0, "tile_stride": nc, "mc": mc, "nc": nc}
    top = round_up(mc * nc, line)
    k_padded = round_up(kc, schedule.width)
    if schedule.pack_lhs:
        # Rows a multiple of a page apart would fall into the same cache sets: one line of padding.
        layout["lhs"] = top
        layout["lhs_stride"] = k_padded + line
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


def emit_blocked(
    b: Builder,
    problem: MatmulProblem,
    schedule: BlockedSchedule,
    operands: Buffers,
    epilogue: Epilogue,
    ctx: KernelContext,
) -> None:
    """Emits the kernel; schedule keys: mr, nv, width, mc, nc, kc, pack_lhs, pack_rhs, unroll, prefetch, fetch.

    Where `packed`, the rhs lies in panels of nv * width columns, [n / nr][k][nr], as `pack_rhs` would make them (see
    `panel_strides`).
    """
    _Blocked(b, problem, schedule, operands, epilogue, ctx).emit()


class _Blocked(Blocks):
    s: BlockedSchedule

    fetch: Fetch | None = None
    """Of the tiles of the columns in work."""

    def __init__(
        self,
        b: Builder,
        problem: MatmulProblem,
        s: BlockedSchedule,
        operands: Buffers,
        epilogue: Epilogue,
        ctx: KernelContext,
    ):
        lay, sum_type = block_layout(problem, s), element_type(problem.sum_dtype)
        super().__init__(b, problem, s, operands, epilogue, ctx, lay, sum_type)
        self.sums = self.scratch = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], sum_type)

    def k_piece(self, pc: Index, depth: Index, lhs: Index, rhs: Index, rows: Index, cols: Index) -> None:
        b = self.b
        a_buffer, a_base, a_row, a_k = self.operands.lhs, lhs, self.lhs_row, self.lhs_k
        if self.s.pack_lhs:
            a_buffer, a_base, a_row, a_k = self.pack_lhs(lhs, rows, depth)
        if self.s.pack_rhs:
            self.pack_rhs(rhs, cols, depth)

        panel, buffer, r_k = None, self.operands.rhs, self.rhs_k
        if self.s.pack_rhs:
            step = round_up(self.s.kc, self.width)
            panel, buffer, r_k = (lambda j: b.addi(self.layout["rhs"], b.muli(j, step))), self.scratch, self.nr

        def tile(j: Index, right: Index, masks: Masks) -> None:
            self.fetch = next_lines(self, j, right, cols) if self.s.fetch else None
            self.row_tiles(pc, depth, (a_buffer, a_base, a_row, a_k), (buffer, right, r_k), rows, j, masks)

        self.column_tiles(rhs, cols, panel, tile)

    def row_tiles(
        self, pc: Index, depth: Index, left: tuple, right: tuple, rows: Index, j: Index, masks: Masks
    ) -> None:
        b, mr = self.b, self.mr
        packed = bool(self.s.pack_lhs)
        if isinstance(rows, int) and not packed:  # exact tail tile: no work on rows that do not exist
            full = rows // mr * mr
            b.for_(0, full, mr, lambda i: self.tile(pc, depth, left, right, rows, i, j, masks, mr, exact=True))
            if rows > full:
                self.tile(pc, depth, left, right, rows, full, j, masks, rows - full, exact=True)
        else:
            b.for_(0, rows, mr, lambda i: self.tile(pc, depth, left, right, rows, i, j, masks, mr, exact=packed))

    def tile(
        self,
        pc: Index,
        depth: Index,
        left: tuple,
        right: tuple,
        rows: Index,
        i: Index,
        j: Index,
        masks: Masks,
        mr: int,
        exact: bool,
    ) -> None:
        """One mr x nr register tile: sums from zero over this piece of k, then added to the block."""
        b, nv = self.b, self.nv
        a_buffer, a_base, a_row, a_k = left
        r_buffer, r_base, r_k = right
        # Rows past the end read the last row again; their sums land in padding rows that nothing reads.
        row = [b.addi(i, r) if exact else b.mini(b.addi(i, r), b.subi(rows, 1)) for r in range(mr)]
        starts = [b.addi(a_base, b.muli(x, a_row)) for x in row]
        if exact:  # one base and known distances make cheaper addresses
            start = b.addi(a_base, b.muli(i, a_row))
            starts = [b.addi(start, b.muli(r, a_row)) for r in range(mr)]
        fetch = self.fetch
        number = b.divi(i, self.mr) if fetch else 0
        acc = outer_products(
            b,
            Left(a_buffer, starts, a_k),
            Right(r_buffer, r_base, r_k, masks),
            depth,
            [b.zero(self.vector)] * (mr * nv),
            nv,
            self.s.unroll,
            self.s.prefetch,
            fetch and (steps_of_line(self.operands.rhs), lambda k: fetch(number, k)),
        )
        self.keep(pc, i, j, mr, acc)

    def pack_lhs(self, lhs: Index, rows: Index, depth: Index) -> tuple[ir.Value, Index, Index, Index]:
        """Copies the lhs block to scratch; returns (buffer, offset, row stride, k stride)."""
        b, lay = self.b, self.layout
        at = lay["lhs"]
        padded = b.muli(b.ceildivi(rows, self.mr), self.mr)
        if self.lhs_k == 1:
            s = lay["lhs_stride"]
            source = (self.operands.lhs, lhs, self.lhs_row)
            pack.copy_rows(b, *source, self.scratch, at, s, rows, padded, depth, self.width)
            return self.scratch, at, s, 1
        s = lay["lhs_stride_m"]
        if self.lhs_row == 1:
            source = (self.operands.lhs, lhs, self.lhs_k)
            pack.copy_rows(b, *source, self.scratch, at, s, depth, depth, rows, self.width)
        else:
            source = (self.operands.lhs, lhs, (self.lhs_k, self.lhs_row))
            pack.pack_strided(b, *source, self.scratch, at, (s, 1), depth, rows, padded)
        return self.scratch, at, 1, s

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
