# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Dot-product matmul for few rows: both operands have unit stride along k and are read in place.

Accumulators hold lanes of k; each is summed across its lanes at the end. Every rhs row is streamed from
memory once and no time goes into packing, which few rows could not repay. Also matrix-vector products:
one row (m = 1) or one column (n = 1). The lanes cut the chain of additions, so one piece of k may be long.
bf16 is multiplied in pairs where the CPU can (AVX512-BF16), which takes subnormal numbers as zero, as oneDNN does.
"""

from torch_mlir import ir

from kiln.dialects.schedules.cpu import DotSchedule, DotTileSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.bf16 import add_pairs, as_pairs, from_memory, has_pairs
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.matmul.partition import for_each_block, offset_of, run_epilogue
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, element_type, known


def dot_layout(problem: MatmulProblem, schedule: DotTileSchedule) -> dict[str, int]:
    """Block size and the scratch `elements` and `bytes` of its sums."""
    mc, nc = round_up(schedule.mc, schedule.mr), round_up(schedule.nc, max(schedule.nr, schedule.width))
    elements = round_up(mc * nc, LINE // problem.sum_bytes)
    return {"mc": mc, "nc": nc, "elements": elements, "bytes": elements * problem.sum_bytes}


def collapse(b: Builder, vectors: list[ir.Value], width: int) -> ir.Value:
    """Sums of the lanes of each of the vectors (a power of two of them, at most `width`), as one vector."""
    count = len(vectors)
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_fold(b, x, y, range(2 * width)) for x, y in pairs]
    result, lanes = vectors[0], width
    while lanes > count:
        result = _fold(b, result, result, range(lanes))
        lanes //= 2
    return result


def _fold(b: Builder, x: ir.Value, y: ir.Value, lanes: range) -> ir.Value:
    """Adds neighbouring lanes of the concatenation of x and y."""
    left, right = b.shuffle(x, y, lanes[::2]), b.shuffle(x, y, lanes[1::2])
    is_int = isinstance(ir.VectorType(x.type).element_type, ir.IntegerType)
    return b.addiv(left, right) if is_int else b.addf(left, right)


def emit_dot(
    b: Builder, problem: MatmulProblem, s: DotSchedule, operands: Buffers, epilogue: Epilogue, ctx: KernelContext
) -> None:
    """Emits the kernel; schedule keys: mr, nr (a power of two <= width), width, mc, nc, kc, unroll.

    Both operands need unit stride along k.
    """
    lay, width = dot_layout(problem, s), s.width
    sum_type = element_type(problem.sum_dtype)
    vector = b.vec(width, sum_type)
    scratch = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], sum_type)
    k, kc, nr, unroll = known(problem.k), s.kc, s.nr, s.unroll
    paired = has_pairs(problem.dtype, width, target())
    lanes = 2 * width if paired else width  # elements of k in a step
    lhs_row, rhs_col = known(problem.lhs_strides[-2]), known(problem.rhs_strides[-1])

    def block(batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        lhs0 = offset_of(b, operands.lhs_offset, batch, problem.lhs_strides[:-2])
        rhs0 = offset_of(b, operands.rhs_offset, batch, problem.rhs_strides[:-2])
        lhs0, rhs0 = b.addi(lhs0, b.muli(m0, lhs_row)), b.addi(rhs0, b.muli(n0, rhs_col))

        def piece(pc: Index) -> None:
            depth = b.mini(b.subi(k, pc), kc)
            lhs, rhs = b.addi(lhs0, pc), b.addi(rhs0, pc)

            def columns(j: Index) -> None:
                b_at = [b.addi(rhs, b.muli(b.mini(b.addi(j, q), b.subi(cols, 1)), rhs_col)) for q in range(nr)]
                if isinstance(rows, int):
                    full = rows // s.mr * s.mr
                    b.for_(0, full, s.mr, lambda i: tile(pc, depth, lhs, b_at, i, j, s.mr, None))
                    if rows > full:
                        tile(pc, depth, lhs, b_at, full, j, rows - full, None)
                else:
                    b.for_(0, rows, s.mr, lambda i: tile(pc, depth, lhs, b_at, i, j, s.mr, b.subi(rows, 1)))

            b.for_(0, cols, nr, columns)

        b.for_(0, b.maxi(k, 1), kc, piece)  # K = 0 still writes zeros
        run_epilogue(b, epilogue, batch, (m0, n0), (rows, cols), scratch, 0, lay["nc"], width)

    def tile(
        pc: Index, depth: Index, lhs: Index, b_at: list[Index], i: Index, j: Index, mr: int, last: Index | None
    ) -> None:
        """mr x nr sums; rows past `last` repeat it, their sums land in padding."""
        row = [b.addi(i, r) if last is None else b.mini(b.addi(i, r), last) for r in range(mr)]
        a_at = [b.addi(lhs, b.muli(x, lhs_row)) for x in row]

        def load(buffer: ir.Value, at: Index, mask: ir.Value | None) -> ir.Value:
            x = b.vload(buffer, at, lanes, mask)
            return as_pairs(b, from_memory(b, x)) if paired else b.cast_float(x, sum_type)

        def steps(kk: Index, acc: list[ir.Value], count: int, mask: ir.Value | None = None) -> list[ir.Value]:
            acc = list(acc)
            for u in range(count):
                ku = b.addi(kk, u * lanes)
                right = [load(operands.rhs, b.addi(x, ku), mask) for x in b_at]
                for r in range(mr):
                    left = load(operands.lhs, b.addi(a_at[r], ku), mask)
                    for q in range(nr):
                        add = add_pairs if paired else b.fma
                        acc[r * nr + q] = add(left, right[q], acc[r * nr + q])
            return acc

        acc = [b.zero(vector)] * (mr * nr)
        big = b.round_down(depth, lanes * unroll)
        acc = b.for_(0, big, lanes * unroll, lambda kk, a: steps(kk, a, unroll), acc)
        full = b.round_down(depth, lanes)
        if unroll > 1:
            acc = b.for_(big, full, lanes, lambda kk, a: steps(kk, a, 1), acc)
        left = b.subi(depth, full)
        mask = b.tail_mask(left, lanes)
        before = list(acc)
        acc = b.if_(b.cmpi("sgt", left, 0), lambda: steps(full, before, 1, mask), lambda: before, [vector] * len(acc))
        sums = [collapse(b, acc[r * nr : (r + 1) * nr], width) for r in range(mr)]
        at = [b.sum_(b.muli(i, lay["nc"]), j, r * lay["nc"]) for r in range(mr)]
        first = b.cmpi("eq", pc, 0)
        if first is not True:
            small = b.vec(nr, sum_type)
            old = b.if_(
                first,
                lambda: [b.zero(small)] * mr,
                lambda: [b.vload(scratch, x, nr) for x in at],
                [small] * mr,
            )
            sums = [b.addf(x, y) for x, y in zip(sums, old, strict=True)]
        for x, index in zip(sums, at, strict=True):
            b.vstore(x, scratch, index)

    for_each_block(b, problem, ctx, lay["mc"], lay["nc"], max(nr, 1), block, s.mr)
