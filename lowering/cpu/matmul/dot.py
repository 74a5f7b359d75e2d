# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Dot-product matmul for few rows: both operands have unit stride along k and are read in place.

Accumulators hold lanes of k; each is summed across its lanes at the end. Every rhs row is streamed from
memory once and no time goes into packing, which few rows could not repay. Also matrix-vector products:
one row (m = 1) or one column (n = 1). The lanes cut the chain of additions, so one piece of k may be long.
"""

from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects.schedules.cpu import DotSchedule, DotTileSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Grid, Operand, Place, multiply_step, sum_products
from kiln.lowering.cpu.contraction.bf16 import has_pairs
from kiln.lowering.cpu.contraction.integers import OFFSET, IntegerUnit, integer_unit
from kiln.lowering.cpu.contraction.rows import row_tiles
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.contraction.vectors import VectorUnit, float_unit, sum_lanes
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.matmul.partition import for_each_block, offset_of, run_epilogue
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, known

__all__ = ["dot_layout", "emit_dot"]


def dot_layout(problem: MatmulProblem, schedule: DotTileSchedule) -> dict[str, int]:
    """Block size and the scratch `elements` and `bytes` of its sums."""
    mc, nc = round_up(schedule.mc, schedule.mr), round_up(schedule.nc, max(schedule.nr, schedule.width))
    elements = round_up(mc * nc, LINE // problem.sum_bytes)
    return {"mc": mc, "nc": nc, "elements": elements, "bytes": elements * problem.sum_bytes}


def emit_dot(
    b: Builder, problem: MatmulProblem, s: DotTileSchedule, operands: Buffers, epilogue: Epilogue, ctx: KernelContext
) -> None:
    """Emits the kernel; schedule keys: mr, nr (a power of two <= width), width, mc, nc; of floats kc and unroll.

    Both operands need unit stride along k.
    """
    lay, width, nr = dot_layout(problem, s), s.width, s.nr
    unit = _unit(problem, width)
    scratch = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], unit.carried(b).element_type)
    k, lhs_row, rhs_col = known(problem.k), known(problem.lhs_strides[-2]), known(problem.rhs_strides[-1])

    def block(batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        lhs0 = offset_of(b, operands.lhs_offset, batch, problem.lhs_strides[:-2])
        rhs0 = offset_of(b, operands.rhs_offset, batch, problem.rhs_strides[:-2])
        lhs0, rhs0 = b.addi(lhs0, b.muli(m0, lhs_row)), b.addi(rhs0, b.muli(n0, rhs_col))

        def piece(pc: Index, depth: Index) -> None:
            left, rhs = b.addi(lhs0, pc), b.addi(rhs0, pc)

            def columns(j: Index) -> None:
                right = [b.addi(rhs, b.muli(b.mini(b.addi(j, q), b.subi(cols, 1)), rhs_col)) for q in range(nr)]
                row_tiles(b, left, lhs_row, rows, s.mr, lambda i, starts: tile(pc, depth, starts, right, i, j))

            b.for_(0, cols, nr, columns)

        if isinstance(s, DotSchedule):
            kc = s.kc
            b.for_(0, b.maxi(k, 1), kc, lambda pc: piece(pc, b.mini(b.subi(k, pc), kc)))  # K = 0 still writes zeros
        else:
            piece(0, k)
        run_epilogue(b, epilogue, batch, (m0, n0), (rows, cols), scratch, 0, lay["nc"], width)

    def tile(pc: Index, depth: Index, left: list[Index], right: list[Index], i: Index, j: Index) -> None:
        """The sums of one register tile, added to those of the pieces of k before."""
        unroll = s.unroll if isinstance(s, DotSchedule) else 1
        sums = _sums(b, unit, operands, left, right, depth, unroll)
        at = [b.sum_(b.muli(i, lay["nc"]), j, r * lay["nc"]) for r in range(len(left))]
        first = b.cmpi("eq", pc, 0)
        if first is not True:
            small = b.vec(nr, unit.carried(b).element_type)
            old = b.if_(
                first,
                lambda: [b.zero(small)] * len(at),
                lambda: [b.vload(scratch, x, nr) for x in at],
                [small] * len(at),
            )
            sums = [unit.add(b, x, y) for x, y in zip(sums, old, strict=True)]
        for x, index in zip(sums, at, strict=True):
            b.vstore(x, scratch, index)

    for_each_block(b, problem, ctx, lay["mc"], lay["nc"], max(nr, 1), block, s.mr)


def _unit(problem: MatmulProblem, width: int) -> VectorUnit:
    """What multiplies vectors along k on the CPU that code is made for."""
    if problem.dtype == "i8":
        return integer_unit(width, target(), along_k=True)
    return float_unit(problem.sum_dtype, width, pairs=has_pairs(problem.dtype, width, target()), along_k=True)


def _sums(
    b: Builder,
    unit: VectorUnit,
    operands: Buffers,
    left: list[Index],
    right: list[Index],
    depth: Index,
    unroll: int,
) -> list[ir.Value]:
    """The products of rows at `left` and columns at `right`, summed: a vector of columns for each row."""
    # A shifted rhs needs the sums of the rows of the lhs: a column of ones gives them.
    ones = [unit.ones(b)] if isinstance(unit, IntegerUnit) and unit.shifted else []
    nr, wide = len(right), len(right) + len(ones)
    grid = Grid(len(left), wide)
    full = b.round_down(depth, unit.depth)
    rest = b.subi(depth, full)
    mask = b.tail_mask(rest, unit.depth)

    def tiles(buffer: ir.Value, starts: list[Index], mask: ir.Value | None = None) -> Operand:
        return lambda _, n, k: Place(buffer, b.addi(starts[n], k), mask=mask) if n < len(starts) else ones[0]

    def last() -> list[Any]:  # lanes past the end are zero in both operands
        x, y = tiles(operands.lhs, left, mask), tiles(operands.rhs, right, mask)
        return multiply_step(b, unit, grid, acc, x, y, full)

    zeros = [unit.zero(b)] * (len(left) * wide)
    acc = sum_products(b, unit, grid, zeros, tiles(operands.lhs, left), tiles(operands.rhs, right), full, unroll=unroll)
    acc = b.if_(b.cmpi("sgt", rest, 0), last, lambda: acc, [unit.carried(b)] * len(acc))
    sums: list[ir.Value] = []
    for r in range(len(left)):
        row = acc[r * wide : (r + 1) * wide]
        value = sum_lanes(b, row[:nr])
        if ones:
            extra = arith.muli(b.reduce("add", row[nr]), b.int_(OFFSET, b.i32))
            value = arith.subi(value, b.broadcast(extra, nr))
        sums.append(value)
    return sums
