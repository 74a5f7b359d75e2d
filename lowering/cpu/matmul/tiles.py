# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul by matrix units: bf16, 8-bit integers, and f32 in three parts of bf16.

The units differ in what a tile is. The kernel walks over blocks of the result, pieces of k and runs of tiles, packs
what units want otherwise than it lies in memory (contraction/operands.py), and leaves the sums to `add_products`.

A weight [n, k] is better the left operand (`transposed`): the kernel then computes the transpose, packs the rows of the
input instead of the weight, which is much larger, reads the weight once and as it is, and turns the sums in registers.

f32 in parts: the input in parts stays in the second-level cache, strips of 32 columns of the rhs are split some steps
of k at a time, meet all rows, and are forgotten. Sums of 32 steps of k are added to f32 at once, so that the error is
less than that of a chain of f32 additions. Where an operand has an infinity, no number at all, or one below 2^-100, a
block is the library's.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects.schedules.cpu import AmxBf16Schedule, AmxBf16x3Schedule, AmxInt8Schedule
from kiln.lowering.cpu.builder import Builder, Condition, Index
from kiln.lowering.cpu.contraction import Grid, MatrixUnit, Place, add_products
from kiln.lowering.cpu.contraction.amx import AMX_BF16, AMX_BF16X3, AMX_INT8
from kiln.lowering.cpu.contraction.operands import InPanels, InPlace, InScratch, Provider, Scratch
from kiln.lowering.cpu.contraction.pack import transpose_block
from kiln.lowering.cpu.contraction.parts import RANGE_BYTES, FloatWords, Range
from kiln.lowering.cpu.contraction.sizes import LINE, apart, round_up
from kiln.lowering.cpu.contraction.sums import Operand
from kiln.lowering.cpu.contraction.words import LANES, Lines, Words
from kiln.lowering.cpu.matmul.partition import for_each_block, offset_of, run_epilogue
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, known
from kiln.lowering.cpu.matmul.vendor import ARGUMENT_BYTES, Gemm

__all__ = ["TileSchedule", "begin_sharing", "emit_tiles", "tiles_layout"]

TileSchedule = AmxBf16Schedule | AmxBf16x3Schedule | AmxInt8Schedule


@dataclass(frozen=True)
class _Plan:
    """What schedules of all units say, of the problem that the kernel works on (`transposed`: the transposed one).

    high, wide: tiles of a run of rows and of columns. strips: the operand of the outer loop is packed run by run.
    """

    unit: MatrixUnit
    high: int
    wide: int
    mc: int
    nc: int
    kc: int
    ks: int
    transposed: bool = False
    shared: bool = False
    packed: bool = False
    in_place: bool = False
    strips: bool = False
    fetch: bool = False


def _plan(s: TileSchedule) -> _Plan:
    high, wide = s.mr // LANES, s.nv
    if isinstance(s, AmxInt8Schedule):
        return _Plan(AMX_INT8, high, wide, s.mc, s.nc, s.kc, s.kc, packed=s.packed)
    mc, nc, transposed, shared = s.mc, s.nc, s.transposed, s.shared
    if transposed:
        high, wide, mc, nc = wide, high, nc, mc
    if isinstance(s, AmxBf16x3Schedule):
        return _Plan(AMX_BF16X3, high, wide, mc, nc, s.kc, s.ks, transposed, shared, strips=True, fetch=True)
    return _Plan(AMX_BF16, high, wide, mc, nc, s.kc, s.ks, transposed, shared, s.packed, not s.pack_lhs, fetch=s.fetch)


def tiles_layout(problem: MatmulProblem, schedule: TileSchedule) -> dict[str, int]:
    """Sizes of a block, offsets of the scratch areas, and their total `bytes`."""
    plan = _plan(schedule)
    unit, parts = plan.unit, 1 + max(p for p, _ in plan.unit.terms)
    mc, nc = round_up(plan.mc, plan.high * LANES), round_up(plan.nc, plan.wide * LANES)
    kc = round_up(plan.kc, unit.depth)
    layout = {"mc": mc, "nc": nc, "kc": kc}
    lines, depths = {"left": mc, "right": nc}, {"left": kc, "right": kc}
    if plan.in_place:
        lines["left"] = LANES
    if plan.strips:
        outer, count = ("left", plan.high) if plan.transposed else ("right", plan.wide)
        lines[outer], depths[outer] = count * LANES, plan.ks
    layout["left_pitch"] = apart(depths["left"] // unit.group, LINE // 4)
    layout["right_line"] = depths["right"] // unit.group
    layout["left_part"] = lines["left"] * layout["left_pitch"]
    layout["right_part"] = lines["right"] * layout["right_line"]
    areas = {"sums": 4 * mc * nc, "turned": 4 * mc * nc * plan.transposed}
    areas |= {"left": 4 * parts * layout["left_part"]}
    areas |= {"right": 0 if plan.packed else 4 * parts * layout["right_part"]}
    areas |= {"cells": LINE}
    if plan.strips:
        areas |= {"left_range": RANGE_BYTES, "right_range": RANGE_BYTES, "call": ARGUMENT_BYTES}
    top = 0
    for name, size in areas.items():
        layout[name] = top
        top += round_up(size, LINE)
    layout["bytes"] = top
    return layout


def emit_tiles(
    b: Builder, problem: MatmulProblem, schedule: TileSchedule, operands: Buffers, epilogue: Epilogue,
    ctx: KernelContext,
) -> None:  # fmt: skip
    """Emits the kernel. Without `pack_lhs` the lhs of bf16 has unit stride along k, a known multiple of 32."""
    kind = _FloatTiles if isinstance(schedule, AmxBf16x3Schedule) else _Tiles
    kind(b, problem, schedule, operands, epilogue, ctx).emit()


def begin_sharing(b: Builder, problem: MatmulProblem, schedule: TileSchedule, ctx: KernelContext) -> None:
    """Emits what has to precede the blocks of products with a schedule of `share_lhs`."""
    at = b.addi(ctx.scratch_offset, tiles_layout(problem, schedule)["cells"])
    b.store(b.int_(-1, b.i64), b.view(ctx.scratch, at, 2, b.i64), int(_plan(schedule).transposed))


def _transposed(problem: MatmulProblem) -> MatmulProblem:
    """The problem whose result is the transpose: operands exchanged, each with its last two strides."""

    def turn(strides: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*strides[:-2], strides[-1], strides[-2])

    return replace(
        problem, m=problem.n, n=problem.m, lhs_strides=turn(problem.rhs_strides), rhs_strides=turn(problem.lhs_strides)
    )


class _Tiles:
    """One thread's share."""

    def __init__(
        self, b: Builder, problem: MatmulProblem, schedule: TileSchedule, operands: Buffers, epilogue: Epilogue,
        ctx: KernelContext,
    ):  # fmt: skip
        self.b, self.epilogue, self.ctx = b, epilogue, ctx
        self.plan, self.layout = _plan(schedule), tiles_layout(problem, schedule)
        self.unit = self.plan.unit
        self.p = _transposed(problem) if self.plan.transposed else problem
        self.left_at, self.right_at = operands.lhs_offset, operands.rhs_offset
        left, right = operands.lhs, operands.rhs
        if self.plan.transposed:
            left, right, self.left_at, self.right_at = right, left, self.right_at, self.left_at
        self.left_lines = Lines(left, known(self.p.lhs_strides[-2]), known(self.p.lhs_strides[-1]))
        self.right_lines = Lines(right, known(self.p.rhs_strides[-1]), known(self.p.rhs_strides[-2]))
        lay = self.layout
        element = b.i32 if self.unit.sums == "i32" else b.f32
        self.sums = self.area("sums", lay["mc"] * lay["nc"], element)
        if self.plan.transposed:
            self.turned = self.area("turned", lay["mc"] * lay["nc"], element)
        self.cells = self.area("cells", 2, b.i64)
        self.left, self.right = self.left_provider(), self.right_provider()

    def at(self, name: str) -> Index:
        return self.b.addi(self.ctx.scratch_offset, self.layout[name])

    def area(self, name: str, count: int, type_: ir.Type) -> ir.Value:
        return self.b.view(self.ctx.scratch, self.at(name), count, type_)

    # -- operands ----------------------------------------------------------------------------------

    def words(self, lines: Lines, name: str) -> tuple[Words, Range | None]:
        """How an operand is read, and what is seen of its numbers."""
        return Words(self.b, lines, self.unit), None

    def left_provider(self) -> Provider:
        lay, plan = self.layout, self.plan
        words, seen = self.words(self.left_lines, "left_range")
        parts = 1 + max(p for p, _ in self.unit.terms)
        buffer = self.area("left", parts * lay["left_part"], self.b.i32)
        scratch = Scratch(buffer, lay["left_part"], lay["left_pitch"], 1, lay["left_pitch"])
        if plan.in_place:
            return InPlace(self.b, self.unit, words, scratch, plan.high)
        strips = plan.strips and plan.transposed
        cell = None if strips else self.cell(0)
        return InScratch(
            self.b, self.unit, words, scratch, plan.high, turned=False, exact=not strips, strips=strips, cell=cell,
            seen=seen,
        )  # fmt: skip

    def right_provider(self) -> Provider:
        lay, plan = self.layout, self.plan
        if plan.packed:
            return InPanels(self.b, self.unit, self.right_lines.buffer, self.right_lines.stride, plan.wide)
        words, seen = self.words(self.right_lines, "right_range")
        parts = 1 + max(p for p, _ in self.unit.terms)
        buffer = self.area("right", parts * lay["right_part"], self.b.i32)
        scratch = Scratch(buffer, lay["right_part"], lay["right_line"], LANES, LANES)
        strips = plan.strips and not plan.transposed
        cell = None if strips else self.cell(1)
        return InScratch(
            self.b, self.unit, words, scratch, plan.wide, turned=True, exact=plan.strips and not strips, strips=strips,
            cell=cell, seen=seen,
        )  # fmt: skip

    def cell(self, n: int) -> tuple[ir.Value, int] | None:
        """Where it is said what of an operand is packed, if a piece is all of k."""
        whole = isinstance(self.p.k, int) and self.p.k <= self.layout["kc"]
        return (self.cells, n) if whole else None

    # -- the walk ----------------------------------------------------------------------------------

    def emit(self) -> None:
        b, lay, plan = self.b, self.layout, self.plan
        self.unit.begin(b)
        for cell in range(2):
            if not (plan.shared and cell == int(plan.transposed)):
                b.store(b.int_(-1, b.i64), self.cells, cell)
        for_each_block(b, self.p, self.ctx, lay["mc"], lay["nc"], plan.wide * LANES, self.block, LANES)
        self.unit.end(b)

    def block(self, batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        b, k = self.b, known(self.p.k)
        left = offset_of(b, self.left_at, [*batch, m0], self.p.lhs_strides[:-1])
        right = offset_of(b, self.right_at, batch, self.p.rhs_strides[:-2])
        right = b.addi(right, b.muli(n0, self.right_lines.stride))
        self.left.begin()
        self.right.begin()

        def piece(pc: Index) -> None:
            depth = b.mini(b.subi(k, pc), self.layout["kc"])
            starts = [b.addi(x, b.muli(pc, lines.k_stride)) for x, lines in self.sides(left, right)]
            self.left.prepare(starts[0], rows, depth)
            self.right.prepare(starts[1], cols, depth)
            self.piece(pc, depth, starts, rows, cols)

        b.for_(0, b.maxi(k, 1), self.layout["kc"], piece)  # k = 0 still writes zeros
        self.finish(batch, (m0, n0), (rows, cols))

    def sides(self, left: Index, right: Index) -> list[tuple[Index, Lines]]:
        return [(left, self.left_lines), (right, self.right_lines)]

    def piece(self, pc: Index, depth: Index, starts: list[Index], rows: Index, cols: Index) -> None:
        """Adds the products of a piece of k to the block: the operand that comes from memory is in the outer loop, so
        that it is read once.
        """
        b, plan = self.b, self.plan
        sizes, side = (rows, cols), 0 if plan.transposed else 1
        outer, inner = (self.left, self.right) if plan.transposed else (self.right, self.left)

        def steps(at: Index, i: Index, count: int, tiles: Callable[[Index], Operand]) -> None:
            here = b.mini(b.subi(depth, at), plan.ks)
            outer.chunk(i, b.subi(sizes[side], i), at, here)
            first = b.andc(b.cmpi("eq", pc, 0), b.cmpi("eq", at, 0))
            deep = b.muli(b.ceildivi(here, self.unit.depth), self.unit.depth)
            fetch = self.fetching(starts[side], i, at, depth, sizes[side], count) if plan.fetch else None

            def run(j: Index, number: int, others: Callable[[Index], Operand]) -> None:
                runs = [(i, count, tiles(at)), (j, number, others(at))]
                if not plan.transposed:
                    runs.reverse()
                before = None if fetch is None else partial(fetch, j)
                self.tile(first, deep, runs[0], runs[1], before)

            inner.each(sizes[1 - side], run)

        def chunks(i: Index, count: int, tiles: Callable[[Index], Operand]) -> None:
            b.for_(0, depth, plan.ks, lambda at: steps(at, i, count, tiles))

        if plan.strips:
            outer.each(sizes[side], chunks)
        else:
            b.for_(0, b.maxi(depth, 1), plan.ks, lambda at: outer.each(sizes[side], partial(steps, at)))

    def tile(
        self, first: Condition, steps: Index, left: tuple[Index, int, Operand], right: tuple[Index, int, Operand],
        before: Callable[[Index], None] | None,
    ) -> None:  # fmt: skip
        """The products of one run of tiles of each operand: first row or column, number of tiles, where they lie."""
        b, stride = self.b, self.layout["nc"]
        (i, high, lefts), (j, wide, rights) = left, right
        corner = b.addi(b.muli(i, stride), j)
        add_products(
            b,
            self.unit,
            Grid(high, wide),
            lambda r, v: Place(self.sums, b.addi(corner, (r * stride + v) * LANES), stride),
            lefts,
            rights,
            steps,
            first=first,
            before=before,
        )

    def fetching(
        self, start: Index, i: Index, at: Index, depth: Index, lines: Index, count: int
    ) -> Callable[[Index, Index], None]:
        """What a tile fetches, while it multiplies, of the operand of the outer loop, from `start` on: its share of the
        cache lines that the tiles of the next run want at the same k. fetch(j, k): by the tiles of lines j ...

        A strip is followed by the next steps of k, or by the next lines; a rhs packed at once by its next block.
        """
        b, plan = self.b, self.plan
        source = self.left_lines if plan.transposed else self.right_lines
        per = LINE * 8 // ir.MemRefType(source.buffer.type).element_type.width  # elements of a cache line
        width, stride, speed, beside = count * LANES, source.stride, source.k_stride, 1
        if plan.packed:
            start = b.sum_(start, b.muli(b.addi(i, width), stride), b.muli(at, width))
            stride, speed = per, width
        else:
            here = b.addi(start, b.muli(i, stride))
            later, following = b.addi(at, plan.ks), b.addi(here, b.muli(width, stride))
            if plan.strips:
                more = b.cmpi("slt", later, depth)
                start = b.select_index(more, b.addi(here, b.muli(later, speed)), following)
            elif plan.transposed:
                start = b.addi(following, b.muli(at, speed))
            else:
                start = b.sum_(here, b.muli(lines, stride), b.muli(at, speed))
            beside = max(1, self.unit.depth // per)
            if isinstance(stride, int) and stride == 1:
                width, stride, beside = self.unit.depth, speed, -(-width // per)
        (runs, inner) = (self.layout["nc"], plan.wide) if plan.transposed else (self.layout["mc"], plan.high)
        share = -(-width // max(1, runs // (inner * LANES)))

        def fetch(j: Index, k: Index) -> None:
            number = b.muli(b.divi(j, inner * LANES), share)
            place = b.sum_(start, b.muli(k, speed), b.muli(number, stride))
            for e in range(share):
                for line in range(beside):
                    b.prefetch(source.buffer, b.sum_(place, b.muli(stride, e), line * per), locality=2)

        return fetch

    def finish(self, batch: list[Index], origin: tuple[Index, Index], size: tuple[Index, Index]) -> None:
        """The epilogue on the sums of a block."""
        b, sums, stride = self.b, self.sums, self.layout["nc"]
        if self.plan.transposed:
            sums, stride = self.turned, self.layout["mc"]
            source = Place(self.sums, 0, self.layout["nc"])
            transpose_block(b, source, Place(sums, 0, stride), *size, LANES)
            origin, size = (origin[1], origin[0]), (size[1], size[0])
        self.mend(batch, origin, size, sums, stride)
        run_epilogue(b, self.epilogue, batch, origin, size, sums, 0, stride, LANES)

    def mend(
        self, batch: list[Index], origin: tuple[Index, Index], size: tuple[Index, Index], sums: ir.Value, stride: int
    ) -> None:
        """Emitted before the epilogue, of the problem as it was given."""


class _FloatTiles(_Tiles):
    """The kernel for f32 in parts, which watches what it splits."""

    def __init__(
        self, b: Builder, problem: MatmulProblem, schedule: TileSchedule, operands: Buffers, epilogue: Epilogue,
        ctx: KernelContext,
    ):  # fmt: skip
        self.ranges: list[Range] = []
        super().__init__(b, problem, schedule, operands, epilogue, ctx)
        self.gemm = Gemm(b, problem, operands, ctx.scratch, self.at("call"))

    def words(self, lines: Lines, name: str) -> tuple[Words, Range | None]:
        seen = Range(self.b, self.ctx.scratch, self.at(name))
        self.ranges.append(seen)
        return FloatWords(self.b, lines, self.unit, seen), seen

    def mend(
        self, batch: list[Index], origin: tuple[Index, Index], size: tuple[Index, Index], sums: ir.Value, stride: int
    ) -> None:
        b = self.b

        def by_library() -> None:
            self.gemm.call(batch, origin, size, sums, 0, stride)
            self.unit.begin(b)  # what the library does with tiles is its own matter

        b.if_(arith.ori(*(seen.is_beyond() for seen in self.ranges)), by_library)
