# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One row times a [k, n] matrix: streams a few rows of the matrix at a time through wide column blocks.

Column tiles that run down all of k touch another page at every step, and for strides that are a multiple of
4 KiB another line of one and the same cache set. Reading `depth` rows side by side in long runs is what
the hardware prefetchers follow; the sums stay in the first-level cache. Each group of `depth` products is
summed from zero and then added, which also keeps the chains of additions short.
"""

from torch_mlir import ir

from kiln.dialects.schedules.cpu import StreamSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.matmul.partition import for_each_block, offset_of, run_epilogue
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, element_type, known


def stream_layout(problem: MatmulProblem, schedule: StreamSchedule) -> dict[str, int]:
    """Block size and the scratch `elements` and `bytes` of its sums."""
    elements = round_up(schedule.nc, LINE // problem.sum_bytes)
    return {"nc": elements, "elements": elements, "bytes": elements * problem.sum_bytes}


def emit_stream(
    b: Builder, problem: MatmulProblem, s: StreamSchedule, operands: Buffers, epilogue: Epilogue, ctx: KernelContext
) -> None:
    """Emits the kernel; schedule keys: width, nc, depth. Needs m = 1 and unit stride along n."""
    lay, width, depth = stream_layout(problem, s), s.width, s.depth
    sum_type = element_type(problem.sum_dtype)
    zero = b.zero(b.vec(width, sum_type))
    scratch = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], sum_type)
    k, lhs_k, rhs_k = known(problem.k), known(problem.lhs_strides[-1]), known(problem.rhs_strides[-2])

    def block(batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        lhs = offset_of(b, operands.lhs_offset, [*batch, m0], problem.lhs_strides[:-1])
        rhs = b.addi(offset_of(b, operands.rhs_offset, batch, problem.rhs_strides[:-2]), n0)
        b.for_(0, cols, width, lambda j: b.vstore(zero, scratch, j))  # the last vector may end past cols
        full = b.round_down(cols, width)
        mask = b.tail_mask(b.subi(cols, full), width)

        def rows_from(k0: Index, count: int) -> None:
            scalars: list[ir.Value] = []
            starts: list[Index] = []
            for u in range(count):
                x = b.load(operands.lhs, b.addi(lhs, b.muli(b.addi(k0, u), lhs_k)))
                scalars.append(b.broadcast(b.cast_float(x, sum_type), width))
                starts.append(b.addi(rhs, b.muli(b.addi(k0, u), rhs_k)))

            def columns(j: Index, mask: ir.Value | None = None) -> None:
                acc = zero
                for x, start in zip(scalars, starts, strict=True):
                    row = b.cast_float(b.vload(operands.rhs, b.addi(start, j), width, mask), sum_type)
                    acc = b.fma(x, row, acc)
                b.vstore(b.addf(acc, b.vload(scratch, j, width)), scratch, j)

            b.for_(0, full, width, columns)
            b.if_(b.cmpi("slt", full, cols), lambda: columns(full, mask))

        groups = b.round_down(k, depth)
        b.for_(0, groups, depth, lambda k0: rows_from(k0, depth))
        b.for_(groups, k, 1, lambda k0: rows_from(k0, 1))
        run_epilogue(b, epilogue, batch, (m0, n0), (rows, cols), scratch, 0, lay["nc"], width)

    for_each_block(b, problem, ctx, 1, lay["nc"], LINE // problem.sum_bytes, block)
