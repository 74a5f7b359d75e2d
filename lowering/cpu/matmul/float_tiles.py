# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul of f32 by AMX: each operand is the sum of three parts in bf16 (float_parts.py), and six of the nine products
of parts make theirs. The sums of 32 steps of k are added to f32 at once, so that the error is less than that of a chain
of f32 additions, and AMX has 16 times the multiplications of AVX-512 in f32.

The lhs in parts is kept in the second-level cache for all columns. Strips of 32 columns of the rhs are split, 128 steps
of k at a time, meet all rows of the lhs, and are forgotten. A rhs [n, k] (`turned`) is split along its rows, as the
left operand of the instruction, whose sums are then the transpose.

Where an operand has an infinity, no number at all, or one below 2^-100, a block is the library's.
"""

from collections.abc import Callable

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects.schedules.cpu import AmxBf16x3Schedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Grid, Place, add_products
from kiln.lowering.cpu.contraction.amx import AMX_BF16X3
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.matmul.float_parts import LANES, PARTS, Range, pack_pairs, pack_rows, pack_turned
from kiln.lowering.cpu.matmul.float_tiles_schedule import DEPTH, ROWS
from kiln.lowering.cpu.matmul.partition import for_each_block, offset_of, run_epilogue
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, known
from kiln.lowering.cpu.matmul.turned_sums import turn_sums
from kiln.lowering.cpu.matmul.vendor import ARGUMENT_BYTES, Gemm

__all__ = ["emit_float_tiles", "float_tiles_layout"]

_STRIP = 2 * LANES
_PAIRS = DEPTH // 2  # i32 in a row of a tile
_LINES = LINE // 4  # f32


def float_tiles_layout(problem: MatmulProblem, s: AmxBf16x3Schedule) -> dict[str, int]:
    """Offsets of the scratch areas and their total `bytes`."""
    mc, nc, kc, ks = round_up(s.mc, _STRIP), round_up(s.nc, _STRIP), round_up(s.kc, DEPTH), s.ks
    # Rows a multiple of a page apart would fall into the same cache sets: one line of padding.
    layout = {"mc": mc, "nc": nc, "kc": kc, "kept_pitch": kc // 2 + _PAIRS, "strip_pitch": ks // 2 + _PAIRS}
    columns, rows = (mc, _STRIP) if s.transposed else (_STRIP, mc)
    depths = (kc, ks) if s.transposed else (ks, kc)
    pitch = layout["strip_pitch" if s.transposed else "kept_pitch"]
    of_columns, of_rows = columns * depths[0] // 2, rows * pitch
    kept, strip = (of_columns, of_rows) if s.transposed else (of_rows, of_columns)
    top = 0
    for name, count in (
        ("sums", mc * nc), ("turned", mc * nc if s.transposed else 0), ("kept", PARTS * kept), ("strip", PARTS * strip),
        ("square", PARTS * LANES * LANES),
    ):  # fmt: skip
        layout[name], layout[f"{name}_count"] = top, count
        top += round_up(4 * count, LINE)
    layout |= {"kept_part": kept, "strip_part": strip}
    for name, count in (("cell", LINE), ("kept_range", 2 * LINE), ("strip_range", 2 * LINE), ("call", ARGUMENT_BYTES)):
        layout[name] = top
        top += count
    layout["bytes"] = top
    return layout


def emit_float_tiles(
    b: Builder,
    problem: MatmulProblem,
    schedule: AmxBf16x3Schedule,
    operands: Buffers,
    epilogue: Epilogue,
    ctx: KernelContext,
) -> None:
    """Emits the kernel; schedule keys: mc, nc, kc (steps of k of the lhs that are kept in parts), ks (of which the rhs
    is split at once, a multiple of 32), transposed (the rhs has unit stride along k, not along n), shared."""
    _FloatTiles(b, problem, schedule, operands, epilogue, ctx).emit()


class _FloatTiles:
    def __init__(
        self,
        b: Builder,
        problem: MatmulProblem,
        s: AmxBf16x3Schedule,
        operands: Buffers,
        epilogue: Epilogue,
        ctx: KernelContext,
    ):
        self.b, self.p, self.s, self.operands, self.epilogue, self.ctx = b, problem, s, operands, epilogue, ctx
        self.layout = lay = float_tiles_layout(problem, s)
        self.transposed = s.transposed
        self.kc, self.ks = lay["kc"], s.ks
        self.whole = isinstance(problem.k, int) and problem.k <= self.kc
        self.lhs_row = known(problem.lhs_strides[-2])
        self.rhs_k, self.rhs_col = known(problem.rhs_strides[-2]), known(problem.rhs_strides[-1])

        def area(name: str, type_: ir.Type) -> ir.Value:
            return b.view(ctx.scratch, self.at(name), lay[f"{name}_count"], type_)

        self.sums, self.turned_sums = area("sums", b.f32), area("turned", b.f32)
        self.kept, self.strip, self.square = (area(name, b.i32) for name in ("kept", "strip", "square"))
        self.cell = b.view(ctx.scratch, self.at("cell"), 1, b.i64)
        self.kept_range = Range(b, ctx.scratch, self.at("kept_range"))
        self.strip_range = Range(b, ctx.scratch, self.at("strip_range"))
        self.gemm = Gemm(b, problem, operands, ctx.scratch, self.at("call"))

    def at(self, name: str) -> Index:
        return self.b.addi(self.ctx.scratch_offset, self.layout[name])

    def emit(self) -> None:
        b, lay = self.b, self.layout
        AMX_BF16X3.begin(b)
        if not self.s.shared:
            b.store(b.int_(-1, b.i64), self.cell, 0)
        for_each_block(b, self.p, self.ctx, lay["mc"], lay["nc"], _STRIP, self.block, ROWS)
        AMX_BF16X3.end(b)

    def block(self, batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        b, k = self.b, known(self.p.k)
        lhs = offset_of(b, self.operands.lhs_offset, batch, self.p.lhs_strides[:-2])
        rhs = offset_of(b, self.operands.rhs_offset, batch, self.p.rhs_strides[:-2])
        lhs, rhs = b.addi(lhs, b.muli(m0, self.lhs_row)), b.addi(rhs, b.muli(n0, self.rhs_col))
        self.strip_range.reset()
        if not self.whole:
            self.kept_range.reset()

        def piece(pc: Index) -> None:
            depth = b.mini(b.subi(k, pc), self.kc)
            self.keep(b.addi(lhs, pc), rows, depth)
            self.strips(b.cmpi("eq", pc, 0), b.addi(rhs, b.muli(pc, self.rhs_k)), rows, cols, depth)

        b.for_(0, k, self.kc, piece)
        sums, stride = self.sums, self.layout["nc"]
        if self.transposed:
            sums = self.turned_sums
            turn_sums(b, self.sums, self.layout["mc"], sums, stride, cols, rows)

        def by_library() -> None:
            self.gemm.call(batch, (m0, n0), (rows, cols), sums, 0, stride)
            AMX_BF16X3.begin(b)  # what the library does with tiles is its own matter

        b.if_(arith.ori(self.kept_range.is_beyond(), self.strip_range.is_beyond()), by_library)
        run_epilogue(b, self.epilogue, batch, (m0, n0), (rows, cols), sums, 0, stride, LANES)

    def keep(self, lhs: Index, rows: Index, depth: Index) -> None:
        """Splits a piece of the lhs, unless the block before has left it there."""
        b, lay = self.b, self.layout

        def columns(i: Index) -> None:
            size = (b.mini(b.subi(rows, i), LANES), depth)
            start = b.addi(lhs, b.muli(i, self.lhs_row))

            def place(part: int) -> tuple[ir.Value, Index]:
                return self.kept, b.addi(b.muli(i, lay["kc"] // 2), part * lay["kept_part"])

            pack_turned(b, self.operands.lhs, start, self.lhs_row, size, place, self.square, self.kept_range)

        def split() -> None:
            if self.transposed:
                b.for_(0, rows, LANES, columns)
                return
            padded = b.muli(b.ceildivi(rows, ROWS), ROWS)
            place, pitch = (lambda p: (self.kept, p * lay["kept_part"])), lay["kept_pitch"]
            pack_rows(
                b, self.operands.lhs, lhs, self.lhs_row, (rows, depth), padded, place, pitch, self.kept_range
            )  # fmt: skip

        if not self.whole:
            split()
            return
        key = arith.index_cast(b.i64, b.value(lhs))

        def again() -> None:
            self.kept_range.reset()
            split()
            b.store(key, self.cell, 0)

        b.if_(arith.cmpi(arith.CmpIPredicate.ne, b.load(self.cell, 0), key), again)

    def strips(self, first: bool | ir.Value, rhs: Index, rows: Index, cols: Index, depth: Index) -> None:
        """Adds the products of a piece of k to the block."""
        b = self.b
        complete = b.muli(b.ceildivi(rows, ROWS), ROWS)
        full = b.round_down(complete, 2 * ROWS)

        def chunk(j: Index, at: Index) -> None:
            count = b.mini(b.subi(depth, at), self.ks)
            self.split_strip(rhs, j, at, cols, count)
            start = b.andc(first, b.cmpi("eq", at, 0))
            fetch = self.fetching(rhs, j, at, depth)
            steps = b.muli(b.ceildivi(count, DEPTH), DEPTH)
            b.for_(0, full, 2 * ROWS, lambda i: self.tile(start, i, j, at, steps, 2, fetch))
            b.for_(full, complete, 2 * ROWS, lambda i: self.tile(start, i, j, at, steps, 1, fetch))

        b.for_(0, cols, _STRIP, lambda j: b.for_(0, depth, self.ks, lambda at: chunk(j, at)))

    def split_strip(self, rhs: Index, j: Index, at: Index, cols: Index, count: Index) -> None:
        """Splits `count` steps of k of 32 columns of the rhs."""
        b, lay = self.b, self.layout
        start = b.sum_(rhs, b.muli(j, self.rhs_col), b.muli(at, self.rhs_k))
        left = b.subi(cols, j)
        if self.transposed:
            rows, pitch = (lambda part: (self.strip, part * lay["strip_part"])), lay["strip_pitch"]
            size = (b.mini(left, _STRIP), count)
            pack_rows(b, self.operands.rhs, start, self.rhs_col, size, _STRIP, rows, pitch, self.strip_range)
            return
        for v in range(2):
            some = b.mini(b.maxi(b.subi(left, v * LANES), 0), LANES)

            def place(part: int, v: int = v) -> tuple[ir.Value, Index]:
                return self.strip, part * lay["strip_part"] + v * LANES * self.ks // 2

            here = b.addi(start, v * LANES)
            pack_pairs(b, self.operands.rhs, here, self.rhs_k, (count, some), place, self.strip_range)

    def tile(
        self,
        first: bool | ir.Value,
        i: Index,
        j: Index,
        at: Index,
        steps: Index,
        height: int,
        fetch: Callable[[Index, Index], None],
    ) -> None:
        """The sums of 16 or 32 (`height` 1 or 2) rows of the lhs from i on and the strip of columns j ...; the steps of
        k of the strip begin at `at` of the lhs."""
        b, lay = self.b, self.layout

        def kept(part: int, g: int, k: Index) -> Place:
            deep = b.divi(b.addi(at, k), 2)
            if self.transposed:
                start = b.sum_(b.muli(i, lay["kc"] // 2), b.muli(deep, LANES))
                return self.kept, b.addi(start, part * lay["kept_part"] + g * LANES * (lay["kc"] // 2)), LANES
            start = b.addi(b.muli(i, lay["kept_pitch"]), deep)
            return self.kept, b.addi(start, part * lay["kept_part"] + g * ROWS * lay["kept_pitch"]), lay["kept_pitch"]

        def strip(part: int, g: int, k: Index) -> Place:
            deep = b.divi(k, 2)
            if self.transposed:
                pitch = lay["strip_pitch"]
                return self.strip, b.addi(deep, part * lay["strip_part"] + g * ROWS * pitch), pitch
            return self.strip, b.addi(b.muli(deep, LANES), part * lay["strip_part"] + g * LANES * self.ks // 2), LANES

        (left, high), (right, wide) = ((strip, 2), (kept, height)) if self.transposed else ((kept, height), (strip, 2))
        row, column, stride = (j, i, lay["mc"]) if self.transposed else (i, j, lay["nc"])
        add_products(
            b,
            AMX_BF16X3,
            Grid(high, wide),
            lambda r, v: (self.sums, b.sum_(b.muli(row, stride), column, r * ROWS * stride + v * LANES), stride),
            left,
            right,
            steps,
            first=first,
            before=lambda k: fetch(i, k),
        )

    def fetching(self, rhs: Index, j: Index, at: Index, depth: Index) -> Callable[[Index, Index], None]:
        """What fetches, while tiles are multiplied, what of the rhs will be split next: a call's share for the rows
        i ... of the lhs and the step k."""
        b = self.b
        later = b.addi(at, self.ks)
        more = b.cmpi("slt", later, depth)
        here = b.sum_(rhs, b.muli(j, self.rhs_col))
        following = b.addi(here, b.muli(later, self.rhs_k))
        start = b.select_index(more, following, b.addi(here, b.muli(_STRIP, self.rhs_col)))
        lines = _STRIP * self.ks // _LINES
        calls = max(1, self.layout["mc"] // (2 * ROWS)) * (self.ks // DEPTH)
        share = -(-lines // calls)

        def fetch(i: Index, k: Index) -> None:
            number = b.addi(b.muli(b.divi(i, 2 * ROWS), self.ks // DEPTH), b.divi(k, DEPTH))
            for e in range(share):
                line = b.addi(b.muli(number, share), e)
                if self.transposed:  # rows of the rhs along k
                    row, beside = b.remi(line, _STRIP), b.muli(b.divi(line, _STRIP), _LINES)
                    place = b.addi(b.muli(row, self.rhs_col), beside)
                else:
                    row, beside = b.divi(line, 2), b.muli(b.remi(line, 2), _LINES)
                    place = b.addi(b.muli(row, self.rhs_k), beside)
                b.prefetch(self.operands.rhs, b.addi(start, place), locality=2)

        return fetch
