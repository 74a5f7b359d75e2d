# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The walk over blocks of rows, columns and k that the kernels of register tiles share, and a register tile of vectors.

A block [rows, cols] of sums lives in scratch; k is cut in pieces of kc, and every piece is summed from zero in
registers and then added to the block. Resuming the accumulators from the block instead makes one chain of k
additions, with about 5 times the error at k = 4096; the extra addition costs nothing measurable.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects.schedules.cpu import PanelSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Grid, Place, multiply_step, sum_products
from kiln.lowering.cpu.contraction.rows import Rows
from kiln.lowering.cpu.contraction.vectors import VectorUnit
from kiln.lowering.cpu.matmul.fetch import Fetch, next_lines, steps_of_line
from kiln.lowering.cpu.matmul.partition import for_each_block, offset_of, run_epilogue
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, known

__all__ = ["Blocks", "Right"]

Right = Callable[[int, Index, Index], Place]
"""right(v, k, missing): the v-th vector of columns of the rhs at step k, where `missing` steps of its group are not
there."""

Masks = Sequence[ir.Value | None] | None


class Blocks:
    """One thread's share of a product by register tiles of `mr` rows by `nv` vectors.

    A kernel says how it packs (`left_rows`, `pack_right`), or what a piece of k does (`k_piece`). `layout` has the
    sizes mc and nc of a block and the `tile_stride` of its sums; `sums` is the scratch buffer that begins with them.
    """

    unit: VectorUnit
    sums: ir.Value
    next: Index
    """Where the rhs of the next piece of k, or of the next columns, begins; where the schedule has `fetch`."""

    @classmethod
    def emit_kernel(cls, *arguments: Any) -> None:
        """Emits the kernel; the arguments are those of `emit_matmul`."""
        cls(*arguments).emit()

    def __init__(
        self,
        b: Builder,
        problem: MatmulProblem,
        s: PanelSchedule,
        operands: Buffers,
        epilogue: Epilogue,
        ctx: KernelContext,
        layout: dict[str, int],
        sum_type: ir.Type,
    ):
        self.b, self.p, self.s, self.operands, self.epilogue, self.ctx = b, problem, s, operands, epilogue, ctx
        self.layout = layout
        self.width, self.mr, self.nv = s.width, s.mr, s.nv
        self.nr = self.nv * self.width
        self.kc = s.kc
        self.vector = b.vec(self.width, sum_type)
        self.lhs_row, self.lhs_k = known(problem.lhs_strides[-2]), known(problem.lhs_strides[-1])
        self.rhs_k, self.rhs_col = known(problem.rhs_strides[-2]), known(problem.rhs_strides[-1])

    def emit(self) -> None:
        """Emit this thread's blocks of the result."""
        lay = self.layout
        for_each_block(self.b, self.p, self.ctx, lay["mc"], lay["nc"], self.nr, self.block, self.mr)

    def block(self, batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        """Emit one block of the result: `rows` by `cols` elements from (m0, n0) on."""
        b, k = self.b, known(self.p.k)
        lhs0 = offset_of(b, self.operands.lhs_offset, batch, self.p.lhs_strides[:-2])
        rhs0 = offset_of(b, self.operands.rhs_offset, batch, self.p.rhs_strides[:-2])
        lhs0 = b.addi(lhs0, b.muli(m0, self.lhs_row))
        rhs0 = b.addi(rhs0, b.muli(n0, self.rhs_col))

        def piece(pc: Index) -> None:
            depth = b.mini(b.subi(k, pc), self.kc)
            lhs = b.addi(lhs0, b.muli(pc, self.lhs_k))
            if self.s.fetch:
                after = b.addi(pc, self.kc)
                columns = b.addi(rhs0, b.muli(cols, self.rhs_col))
                self.next = b.select_index(b.cmpi("slt", after, k), b.addi(rhs0, b.muli(after, self.rhs_k)), columns)
            self.k_piece(pc, depth, lhs, b.addi(rhs0, b.muli(pc, self.rhs_k)), rows, cols)

        b.for_(0, b.maxi(k, 1), self.kc, piece)  # K = 0 still writes zeros
        self.finish(batch, (m0, n0), (rows, cols))

    def finish(self, batch: list[Index], origin: tuple[Index, Index], size: tuple[Index, Index]) -> None:
        """The epilogue on the sums of a block."""
        stride = self.layout["tile_stride"]
        run_epilogue(self.b, self.epilogue, batch, origin, size, self.sums, 0, stride, self.width)

    def k_piece(self, pc: Index, depth: Index, lhs: Index, rhs: Index, rows: Index, cols: Index) -> None:
        """Adds the products of `depth` steps of k, the first of them `pc`, to the block."""
        left = self.left_rows(lhs, rows, depth)
        panel = self.pack_right(rhs, cols, depth)

        def tile(j: Index, start: Index, masks: Masks) -> None:
            fetch = next_lines(self, j, start, cols) if self.s.fetch else None

            def one(i: Index, starts: list[Index]) -> None:
                right, before = self.right_at(start, masks), self.ahead(start, masks)
                runs = self.runs(fetch, i) if fetch else None
                self.keep(pc, i, j, len(starts), self.products(depth, left, starts, right, i, runs, before))

            left.tiles(self.b, rows, self.mr, one)

        self.column_tiles(rhs, cols, panel, tile)

    def left_rows(self, lhs: Index, rows: Index, depth: Index) -> Rows:
        """The rows of the lhs that begin at `lhs`, in place or in scratch."""
        raise NotImplementedError

    def pack_right(self, rhs: Index, cols: Index, depth: Index) -> Callable[[Index], Index] | None:
        """Packs the block of the rhs that begins at `rhs`: where its columns lie then; None where it stays in place."""
        raise NotImplementedError

    def right_at(self, start: Index, masks: Masks) -> Right:
        """The rhs of a register tile, which begins at `start`."""
        raise NotImplementedError

    def steps(self, start: Index, stride: Index) -> Callable[[Index], Index]:
        """Of a step of k, start + k * stride: once, whatever vectors of columns ask for it."""
        b, found = self.b, dict[Index, Index]()

        def at(k: Index) -> Index:
            if k not in found:
                found[k] = b.addi(start, b.muli(k, stride))
            return found[k]

        return at

    def ahead(self, start: Index, masks: Masks) -> Callable[[Index], None] | None:
        """What to emit before each step of k of a register tile."""
        return None

    def runs(self, fetch: Fetch, i: Index) -> tuple[int, Callable[[Index], None]]:
        """For which steps of k the tile of rows i ... fetches at once, and how."""
        number = self.b.divi(i, self.mr)
        return steps_of_line(self.operands.rhs), lambda k: fetch(number, k)

    def products(
        self,
        depth: Index,
        left: Rows,
        starts: Sequence[Index],
        right: Right,
        i: Index,
        runs: tuple[int, Callable[[Index], None]] | None,
        before: Callable[[Index], None] | None,
    ) -> list[ir.Value]:
        """The sums of a register tile, whose rows begin at `starts`, over this piece of k."""
        b, unit, grid = self.b, self.unit, Grid(len(starts), self.nv)

        def lhs(r: int, k: Index, missing: Index = 0) -> Place:
            return Place(left.buffer, b.addi(starts[r], b.muli(k, left.step)), missing=missing)

        whole = depth if left.zeros else b.round_down(depth, unit.depth)
        acc = sum_products(
            b,
            unit,
            grid,
            self.begin(i, len(starts)),
            lambda _, r, k: lhs(r, k),
            lambda _, v, k: right(v, k, 0),
            whole,
            before=before,
            runs=runs,
            unroll=getattr(self.s, "unroll", 1),
        )
        rest = b.subi(depth, whole)
        missing = b.subi(unit.depth, rest)

        def last() -> list[Any]:
            return multiply_step(
                b, unit, grid, acc, lambda _, r, k: lhs(r, k, missing), lambda _, v, k: right(v, k, missing), whole
            )

        return b.if_(b.cmpi("sgt", rest, 0), last, lambda: acc, [self.vector] * len(acc))

    def begin(self, i: Index, count: int) -> list[ir.Value]:
        """What the sums of `count` rows start from."""
        return [self.b.zero(self.vector)] * (count * self.nv)

    def column_tiles(
        self,
        rhs: Index,
        cols: Index,
        panel: Callable[[Index], Index] | None,
        tile: Callable[[Index, Index, Masks], None],
    ) -> None:
        """`tile(j, start, masks)` for each register tile's columns j ... of the block, the rhs of which begins at
        `start`; panel: where the columns j lie in scratch, None for a rhs that is not packed there.
        """
        b = self.b

        def columns(j: Index) -> None:
            if panel is not None:
                tile(j, panel(j), None)
            elif self.s.packed:  # panels are padded to their whole width
                tile(j, b.addi(rhs, b.muli(j, self.rhs_col)), None)
            else:
                left = b.subi(cols, j)

                def masked() -> None:
                    masks = [b.mask_below(b.maxi(b.subi(left, v * self.width), 0), self.width) for v in range(self.nv)]
                    tile(j, b.addi(rhs, j), masks)

                b.if_(b.cmpi("sge", left, self.nr), lambda: tile(j, b.addi(rhs, j), None), masked)

        b.for_(0, cols, self.nr, columns)

    def keep(self, pc: Index, i: Index, j: Index, count: int, acc: Sequence[ir.Value]) -> None:
        """Adds the sums of a tile of `count` rows to the block; the first piece of k overwrites what was there."""
        self.save(i, j, count, self.resumed(pc, i, j, count, acc))

    def resumed(self, pc: Index, i: Index, j: Index, count: int, acc: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums of a tile, and of the pieces of k before."""
        b = self.b
        first = b.cmpi("eq", pc, 0)
        if first is True:
            return list(acc)
        zeros = [b.zero(self.vector)] * len(acc)
        types = [self.vector] * len(acc)
        places = self.places(i, j, count)
        old = b.if_(first, lambda: zeros, lambda: [b.vload(self.sums, x, self.width) for x in places], types)
        return [self.add(x, y) for x, y in zip(acc, old, strict=True)]

    def save(self, i: Index, j: Index, count: int, acc: Sequence[ir.Value]) -> None:
        """Puts the sums of a tile into the block."""
        for x, index in zip(acc, self.places(i, j, count), strict=True):
            self.b.vstore(x, self.sums, index)

    def places(self, i: Index, j: Index, count: int) -> list[Index]:
        """Where the vectors of a tile are in the block, row by row."""
        b, stride = self.b, self.layout["tile_stride"]
        corner = b.addi(b.muli(i, stride), j)
        return [b.addi(corner, r * stride + v * self.width) for r in range(count) for v in range(self.nv)]

    def add(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The sum of two vectors of sums."""
        is_int = isinstance(self.vector.element_type, ir.IntegerType)
        return arith.addi(x, y) if is_int else self.b.addf(x, y)
