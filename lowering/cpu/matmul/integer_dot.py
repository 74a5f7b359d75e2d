# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Dot products of 8-bit integers for few rows: both operands have unit stride along k and are read in place."""

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects.schedules.cpu import Int8DotSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.matmul.dot import collapse, dot_layout
from kiln.lowering.cpu.matmul.integers import OFFSET, units_of
from kiln.lowering.cpu.matmul.partition import for_each_block, offset_of, run_epilogue
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, known

__all__ = ["dot_layout", "emit_integer_dot"]


def emit_integer_dot(
    b: Builder, problem: MatmulProblem, s: Int8DotSchedule, operands: Buffers, epilogue: Epilogue, ctx: KernelContext
) -> None:
    """Emits the kernel; schedule keys: mr, nr (a power of two <= width), width, mc, nc."""
    lay, width, mr, nr = dot_layout(problem, s), s.width, s.mr, s.nr
    units = units_of(width, target())
    vector, step = b.vec(width, b.i32), width * units.group
    scratch = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], b.i32)
    k, lhs_row, rhs_col = known(problem.k), known(problem.lhs_strides[-2]), known(problem.rhs_strides[-1])
    full = b.round_down(k, step)
    tail = b.subi(k, full)

    def block(batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        lhs = offset_of(b, operands.lhs_offset, batch, problem.lhs_strides[:-2])
        rhs = offset_of(b, operands.rhs_offset, batch, problem.rhs_strides[:-2])
        lhs, rhs = b.addi(lhs, b.muli(m0, lhs_row)), b.addi(rhs, b.muli(n0, rhs_col))

        def columns(j: Index) -> None:
            right = [b.addi(rhs, b.muli(b.mini(b.addi(j, q), b.subi(cols, 1)), rhs_col)) for q in range(nr)]

            def tile(i: Index, count: int, last: Index | None) -> None:
                row = [b.addi(i, r) if last is None else b.mini(b.addi(i, r), last) for r in range(count)]
                sums = products([b.addi(lhs, b.muli(x, lhs_row)) for x in row], right)
                for r, value in enumerate(sums):
                    b.vstore(value, scratch, b.sum_(b.muli(i, lay["nc"]), j, r * lay["nc"]))

            if isinstance(rows, int):
                whole = rows // mr * mr
                b.for_(0, whole, mr, lambda i: tile(i, mr, None))
                if rows > whole:
                    tile(whole, rows - whole, None)
            else:  # rows past the last one repeat it, and their sums land in padding
                b.for_(0, rows, mr, lambda i: tile(i, mr, b.subi(rows, 1)))

        b.for_(0, cols, nr, columns)
        run_epilogue(b, epilogue, batch, (m0, n0), (rows, cols), scratch, 0, lay["nc"], width)

    def products(left: list[Index], right: list[Index]) -> list[ir.Value]:
        """The sums of each row, as a vector of nr lanes."""
        ones = b.int_(1, b.vec(step, b.i8))

        def steps(at: Index, acc: list[ir.Value], mask: ir.Value | None = None) -> list[ir.Value]:
            out = list(acc)
            y = [units.right(b, b.vload(operands.rhs, b.addi(start, at), step, mask)) for start in right]
            for r, start in enumerate(left):
                # Lanes past the end are zero here, whatever they are there.
                x = units.left(b, b.vload(operands.lhs, b.addi(start, at), step, mask))
                for q in range(nr):
                    out[r * nr + q] = units.add(b, out[r * nr + q], y[q], x)
                if units.shifted:
                    out[len(left) * nr + r] = units.add(b, out[len(left) * nr + r], ones, x)
            return out

        count = len(left) * (nr + units.shifted)
        before = b.for_(0, full, step, steps, [b.zero(vector)] * count)
        some = b.cmpi("sgt", tail, 0)
        mask = b.tail_mask(tail, step)
        acc = b.if_(some, lambda: steps(full, before, mask), lambda: before, [vector] * count)
        sums = []
        for r in range(len(left)):
            value = collapse(b, acc[r * nr : (r + 1) * nr], width)
            if units.shifted:
                extra = arith.muli(b.reduce("add", acc[len(left) * nr + r]), b.int_(OFFSET, b.i32))
                value = arith.subi(value, b.broadcast(extra, nr))
            sums.append(value)
        return sums

    for_each_block(b, problem, ctx, lay["mc"], lay["nc"], max(nr, 1), block, mr)
