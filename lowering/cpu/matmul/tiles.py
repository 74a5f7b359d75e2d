# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul by register tiles, for all matrix units: a walk over blocks of the result, pieces of k and runs of tiles.

Operands come from where contraction/operands.py says; sums are made by `sum_products`. A block of sums lives in scratch
until the epilogue takes it. Vector units sum every piece of k from zero in registers and add it to the block: resuming
the accumulators instead makes one chain of k additions, with about 5 times the error at k = 4096, and is no faster.

A weight [n, k] is the better left operand of AMX (`transposed`): the kernel then computes the transpose, packs the rows
of the input instead of the weight, which is much larger, reads the weight once and as it is, and turns the sums in
registers.

Of f32 in three parts of bf16 the input in parts stays in the second-level cache, strips of 32 columns of the rhs are
split some steps of k at a time, meet all rows, and are forgotten. Sums of 32 steps of k are added to f32 at once, so
that the error is less than that of a chain of f32 additions. Where an operand has an infinity, no number at all, or one
below 2^-100, a block is the library's.
"""

from collections.abc import Callable
from functools import partial

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.lowering.cpu.builder import Builder, Condition, Index
from kiln.lowering.cpu.contraction import Grid, Place, load_sums, store_sums, sum_products
from kiln.lowering.cpu.contraction.integers import IntegerUnit
from kiln.lowering.cpu.contraction.operands import (
    ColumnsInPlace,
    InPanels,
    InScratch,
    Provider,
    RowsInPlace,
    Scratch,
    TilesInPlace,
    sum_rows,
)
from kiln.lowering.cpu.contraction.parts import FloatWords, Range
from kiln.lowering.cpu.contraction.sums import Operand, Runs, transpose_block
from kiln.lowering.cpu.contraction.vectors import fold
from kiln.lowering.cpu.contraction.words import Lines, Words
from kiln.lowering.cpu.matmul.partition import for_each_block, run_epilogue
from kiln.lowering.cpu.matmul.plan import TileSchedule, plan_of, tiles_layout, transposed
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, MatmulProblem
from kiln.lowering.cpu.matmul.vendor import call_gemm
from kiln.lowering.cpu.problem import KernelContext, element_type, known, offset_of
from kiln.lowering.cpu.sizes import LINE

__all__ = ["Tiles", "begin_sharing"]

_WRITTEN_OUT = 8
"""Steps of k up to which a piece of known length has no loop."""


def begin_sharing(b: Builder, problem: MatmulProblem, schedule: TileSchedule, ctx: KernelContext) -> None:
    """Emits what has to precede the blocks of products with a schedule of `share_lhs`."""
    cells = b.view(ctx.scratch, tiles_layout(problem, schedule)["cells"], 2, b.i64)
    b.store(b.int_(-1, b.i64), cells, int(plan_of(schedule, problem).transposed))


class Tiles:
    """One thread's share; the arguments are those of `emit_matmul`.

    Tiles of several rows, unless packed, come from a lhs with unit stride along k, whose steps are a known multiple of
    the unit's depth; a rhs that is read in place has unit stride along n.
    """

    def __init__(
        self, b: Builder, problem: MatmulProblem, schedule: TileSchedule, operands: Buffers, epilogue: Epilogue,
        ctx: KernelContext,
    ):  # fmt: skip
        self.b, self.problem, self.operands, self.epilogue, self.ctx = b, problem, operands, epilogue, ctx
        self.plan, self.layout = plan_of(schedule, problem), tiles_layout(problem, schedule)
        self.unit, self.high = self.plan.unit, self.plan.high * self.plan.unit.rows
        self.wide = self.plan.wide * self.unit.columns
        self.p = transposed(problem) if self.plan.transposed else problem
        self.left_at, self.right_at = operands.lhs_offset, operands.rhs_offset
        left, right = operands.lhs, operands.rhs
        if self.plan.transposed:
            left, right, self.left_at, self.right_at = right, left, self.right_at, self.left_at
        self.left_lines = Lines(left, known(self.p.lhs_strides[-2]), known(self.p.lhs_strides[-1]))
        self.right_lines = Lines(right, known(self.p.rhs_strides[-1]), known(self.p.rhs_strides[-2]))
        lay = self.layout
        element = element_type(self.unit.sums)
        self.scratch_sums = Place(self.area("sums", lay["mc"] * lay["nc"], element), 0, lay["nc"])
        if self.plan.transposed:
            self.turned = Place(self.area("turned", lay["mc"] * lay["nc"], element), 0, lay["mc"])
        self.cells = self.area("cells", 2, b.i64)
        self.left, self.right = self.provider("left"), self.provider("right")
        if self.plan.is_shifted:
            self.over = self.area("over", lay["mc"], b.i32)
            unit = self.unit
            assert isinstance(unit, IntegerUnit)
            self.left.cell = self.cell(0)
            self.left.and_then = lambda rows, depth: sum_rows(b, unit, self.left, rows, depth, self.over)

    def area(self, name: str, count: int, type_: ir.Type) -> ir.Value:
        """An area of scratch as `count` elements."""
        return self.b.view(self.ctx.scratch, self.layout[name], count, type_)

    # -- operands ----------------------------------------------------------------------------------

    def words(self, lines: Lines, side: str) -> Words:
        """How an operand is read."""
        if self.plan.parts > 1:
            return FloatWords(self.b, lines, self.unit, Range(self.b, self.ctx.scratch, self.layout[f"{side}_range"]))
        return Words(self.b, lines, self.unit, side)

    def provider(self, side: str) -> Provider:
        """Where the tiles of an operand come from."""
        plan, unit, lay, is_left = self.plan, self.unit, self.layout, side == "left"
        lines, count = (self.left_lines, plan.high) if is_left else (self.right_lines, plan.wide)
        place = plan.left if is_left else plan.right
        if place == "panels":
            panel, deep = self.wide, lines.stride
            assert isinstance(deep, int), "a constant has known sizes"
            words = Scratch(lines.buffer, lines.buffer, 0, deep // unit.group, panel)
            return InPanels(self.b, unit, lines, words, count)
        if place == "place" and not (is_left and unit.is_numbered):
            if is_left or plan.along_k:
                return RowsInPlace(self.b, unit, lines, count, exact=is_left)
            return ColumnsInPlace(self.b, unit, lines, count)
        words = self.words(lines, side)
        part = lay[f"{side}_part"]
        word, elements = words.vector.element_type, plan.parts * part
        kind = word if unit.group == 1 else element_type(f"i{unit.bits(side)}" if unit.operands == "i8" else "bf16")
        views = self.area(side, elements, word), self.area(side, elements * unit.group, kind)
        pitch = lay["left_pitch"]
        if place == "place":
            return TilesInPlace(self.b, unit, words, Scratch(*views, part, pitch), count)
        strips = plan.strips and plan.transposed == is_left
        exact = unit.is_numbered and not strips and (is_left or plan.strips)
        scratch, turned = Scratch(*views, part, pitch), not is_left
        if not is_left:
            scratch = Scratch(*views, part, lay["right_line"], unit.columns if unit.is_numbered else self.wide)
        elif lines.stride == 1 and not (unit.is_numbered or plan.is_shifted):
            # Stays as in memory; of rows that are summed, steps of k are neighbours.
            scratch, turned = Scratch(*views, part, 1, lay["left_row"]), True
        return InScratch(
            self.b, unit, words, scratch, count, side=side, turned=turned, exact=exact, strips=strips,
            cell=self.cell(int(not is_left)),
        )  # fmt: skip

    def cell(self, n: int) -> tuple[ir.Value, int] | None:
        """Where it is said what of an operand is packed, if a piece is all of k."""
        whole = isinstance(self.p.k, int) and self.p.k <= self.layout["kc"]
        return (self.cells, n) if whole else None

    # -- the walk ----------------------------------------------------------------------------------

    def emit(self) -> None:
        """Emit this thread's blocks of the result."""
        b, lay, plan = self.b, self.layout, self.plan
        self.unit.begin(b)
        for cell, side in enumerate((self.left, self.right)):
            if side.cell is not None and not (plan.shared and cell == int(plan.transposed)):
                b.store(b.int_(-1, b.i64), self.cells, cell)
        height = self.unit.rows if self.unit.is_numbered else plan.high
        for_each_block(b, self.p, self.ctx, lay["mc"], lay["nc"], self.wide, self.block, height)
        self.unit.end(b)

    @property
    def are_sums_the_result(self) -> bool:
        """Whether sums are made where the result is, not in scratch: integers, in whole tiles, with no epilogue (7 % of
        [512, 768] x [768, 768]).
        """
        p, unit = self.p, self.unit
        if unit.sums != "i32" or unit.is_numbered or self.plan.along_k or not self.epilogue.is_plain_store:
            return False
        return isinstance(p.m, int) and isinstance(p.n, int) and p.m % self.high == p.n % self.wide == 0

    def block(self, batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        """Emit one block of the result: `rows` by `cols` elements from (m0, n0) on."""
        b, k = self.b, known(self.p.k)
        left = offset_of(b, self.left_at, [*batch, m0], self.p.lhs_strides[:-1])
        right = offset_of(b, self.right_at, batch, self.p.rhs_strides[:-2])
        right = b.addi(right, b.muli(n0, self.right_lines.stride))
        to = self.epilogue.destination(b, batch) if self.are_sums_the_result else None
        self.sums = self.scratch_sums if to is None else to.block(b, m0, n0)
        self.left.begin()
        self.right.begin()

        def piece(pc: Index) -> None:
            depth = b.mini(b.subi(k, pc), self.layout["kc"])
            sides = (left, self.left_lines), (right, self.right_lines)
            starts = [b.addi(x, b.muli(pc, lines.k_stride)) for x, lines in sides]
            self.left.prepare(starts[0], rows, depth)
            self.right.prepare(starts[1], cols, depth)
            self.piece(pc, depth, starts, rows, cols)

        b.for_(0, b.maxi(k, 1), self.layout["kc"], piece)  # k = 0 still writes zeros
        if to is None:
            self.finish(batch, (m0, n0), (rows, cols))

    def piece(self, pc: Index, depth: Index, starts: list[Index], rows: Index, cols: Index) -> None:
        """Adds the products of a piece of k to the block: the operand that comes from memory is in the outer loop, so
        that it is read once.
        """
        b, plan, deep = self.b, self.plan, self.layout["kc"]
        sizes, side = (rows, cols), 0 if plan.transposed else 1
        outer, inner = (self.left, self.right) if plan.transposed else (self.right, self.left)

        def steps(at: Index, i: Index, count: int, tiles: Operand) -> None:
            here = b.mini(b.subi(depth, at), plan.ks)
            outer.chunk(i, b.subi(sizes[side], i), at, here)
            fetch = self.fetching(starts[side], pc, i, at, depth, sizes[side], count) if plan.fetch else None

            def run(j: Index, number: int, others: Operand) -> None:
                runs = [(i, count, tiles), (j, number, others)]
                if not plan.transposed:
                    runs.reverse()
                self.tile((pc, at), here, runs[0], runs[1], fetch and (fetch[0], partial(fetch[1], j)))

            inner.each(sizes[1 - side], run)

        def each_chunk(body: Callable[[Index], None]) -> None:
            if plan.ks >= deep:
                body(0)
            else:
                b.for_(0, b.maxi(depth, 1), plan.ks, body)

        if plan.strips:
            outer.each(sizes[side], lambda i, count, tiles: each_chunk(lambda at: steps(at, i, count, tiles)))
        else:
            each_chunk(lambda at: outer.each(sizes[side], partial(steps, at)))

    def tile(
        self, step: tuple[Index, Index], depth: Index, left: tuple[Index, int, Operand],
        right: tuple[Index, int, Operand], fetch: Runs | None,
    ) -> None:  # fmt: skip
        """The products of one run of tiles of each operand: first row or column, number of tiles, where they lie. step:
        the piece of k and the step in it.
        """
        b, unit, (pc, at), (i, high, lefts), (j, wide, rights) = self.b, self.unit, step, left, right

        def later(tiles: Operand) -> Operand:
            return lambda part, n, k: tiles(part, n, b.addi(at, k))

        first = b.andc(b.cmpi("eq", pc, 0), b.cmpi("eq", at, 0))
        grid, filled = Grid(high, wide), self.left.filled and self.right.filled or unit.depth == 1
        place, is_short = partial(self.place, i, j), isinstance(depth, int) and depth <= _WRITTEN_OUT
        begun = load_sums(b, unit, grid, place, first) if unit.is_numbered else None
        sums = sum_products(
            b, unit, grid, later(lefts), later(rights), depth, begun, filled=filled, runs=fetch,
            unrolled=is_short and not unit.is_numbered,
        )  # fmt: skip
        if unit.is_numbered:
            store_sums(b, unit, grid, sums, place)
        elif self.plan.along_k:  # one vector of columns for each row then
            self.add_vectors(i, j, Grid(high, 1), fold(b, sums, wide), first)
        else:
            self.add_vectors(i, j, grid, [x for x in sums if isinstance(x, ir.Value)], first)

    def place(self, i: Index, j: Index, r: int, v: int) -> Place:
        """Where the sums of tile (r, v) of a run that begins at row i and column j lie."""
        b, unit = self.b, self.unit
        return self.sums.block(b, i, j).block(b, r * unit.rows, v * unit.columns)

    def add_vectors(self, i: Index, j: Index, grid: Grid, sums: list[ir.Value], first: Condition) -> None:
        """Adds vectors of sums of a piece of k to the block, which `first` of all has none."""
        b, type_ = self.b, ir.VectorType(sums[0].type)
        lanes, places = type_.shape[0], [self.place(i, j, r, v) for r, v in grid.tiles]
        add = b.addiv if self.unit.sums == "i32" else b.addf
        if self.plan.is_shifted:
            over = [b.load(self.over, b.addi(i, r)) for r in range(grid.high)]
            sums = [add(x, b.broadcast(over[r], lanes)) for x, (r, _) in zip(sums, grid.tiles, strict=True)]
        if first is not True:
            before = b.if_(
                first,
                lambda: [b.zero(type_)] * len(sums),
                lambda: [b.vload(place.buffer, place.at, lanes) for place in places],
                [type_] * len(sums),
            )
            sums = [add(x, y) for x, y in zip(sums, before, strict=True)]
        for x, place in zip(sums, places, strict=True):
            b.vstore(x, place.buffer, place.at)

    # -- fetching ----------------------------------------------------------------------------------

    def fetching(
        self, start: Index, pc: Index, i: Index, at: Index, depth: Index, lines: Index, count: int
    ) -> tuple[int, Callable[[Index, Index], None]]:
        """What a tile fetches into the second-level cache, while it multiplies, of the operand of the outer loop, which
        begins at `start`: its share of the cache lines that are wanted next. Returns a number of steps, and fetch(j, k)
        for each run of so many: by the tiles of lines j ...

        An operand that comes from memory is read by the first run of tiles alone, faster than memory gives it; the
        tiles after it find it in a near cache. Next come: of a strip the steps of k behind it, or the lines; of rows in
        place the next rows; of panels the next panel; of what is packed at once, the next piece of k or block.
        """
        b, plan, unit = self.b, self.plan, self.unit
        source = self.left_lines if plan.transposed else self.right_lines
        per = LINE * 8 // ir.MemRefType(source.buffer.type).element_type.width  # elements of a cache line
        steps = unit.depth if unit.is_numbered else per  # of k for each call
        size = unit.rows if plan.transposed else unit.columns
        width, stride, speed, beside = count * size, source.stride, source.k_stride, 1
        here = b.addi(start, b.muli(i, stride))
        following = b.addi(here, b.muli(width, stride))
        if plan.strips:
            later = b.addi(at, plan.ks)
            begin = b.select_index(b.cmpi("slt", later, depth), b.addi(here, b.muli(later, speed)), following)
        elif plan.transposed:
            begin = b.addi(following, b.muli(at, speed))
        else:
            deep = self.layout["kc"]
            more = b.cmpi("slt", b.addi(pc, deep), known(self.p.k))
            base = b.subi(start, b.muli(pc, speed))
            begin = b.select_index(more, b.addi(start, b.muli(deep, speed)), b.addi(base, b.muli(lines, stride)))
            if plan.right == "panels":
                inside = b.cmpi("slt", b.addi(i, width), lines)
                begin = b.addi(b.select_index(inside, following, begin), b.muli(at, width))
                stride, speed = per, width
            else:
                begin = b.sum_(begin, b.muli(i, stride), b.muli(at, speed))
        if plan.right != "panels":
            beside = max(1, steps // per)
            if isinstance(stride, int) and stride == 1:
                width, stride, beside = steps, speed, -(-width // per)
        runs, inner = (self.layout["nc"], self.wide) if plan.transposed else (self.layout["mc"], self.high)
        share = -(-width // max(1, runs // inner))

        def fetch(j: Index, k: Index) -> None:
            number = b.muli(b.divi(j, inner), share)
            place = b.sum_(begin, b.muli(k, speed), b.muli(number, stride))
            for e in range(share):
                for line in range(beside):
                    b.prefetch(source.buffer, b.sum_(place, b.muli(stride, e), line * per), locality=2)

        return steps, fetch

    def finish(self, batch: list[Index], origin: tuple[Index, Index], size: tuple[Index, Index]) -> None:
        """The epilogue on the sums of a block."""
        b, sums = self.b, self.sums
        if self.plan.transposed:
            transpose_block(b, sums, self.turned, *size, self.unit.columns)
            sums, origin, size = self.turned, (origin[1], origin[0]), (size[1], size[0])

        def by_library() -> None:
            call_gemm(b, self.problem, self.operands, batch, origin, size, sums)
            self.unit.begin(b)  # what the library does with tiles is its own matter

        seen = [side.seen.is_beyond() for side in (self.left, self.right) if side.seen is not None]
        if seen:
            b.if_(arith.ori(*seen), by_library)
        run_epilogue(b, self.epilogue, batch, origin, size, sums, self.plan.width)
