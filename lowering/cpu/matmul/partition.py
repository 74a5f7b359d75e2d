# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Blocks of the output over threads, and the epilogue over a finished block."""

from collections.abc import Callable

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.matmul.problem import Epilogue, MatmulProblem
from kiln.lowering.cpu.problem import KernelContext, in_vectors, known, volume

BlockBody = Callable[[list[Index], Index, Index, Index, Index], None]


def for_each_block(
    b: Builder, problem: MatmulProblem, ctx: KernelContext, mc: int, nc: int, nr: int, body: BlockBody, mr: int = 1
) -> None:
    """`body(batch, m0, n0, rows, cols)` for each block of this thread's share; rows <= mc, 0 < cols <= nc.

    Blocks are mc x nc, cut finer, in units of mr and nr, where they would not occupy all threads evenly: a
    share of one or two blocks a thread must not leave a thread idle. Columns are cut first; rows only where
    they take more than one block or are not known anyway, so that a kernel for few known rows keeps its
    exact tiles.
    """
    m, n, rules = known(problem.m), known(problem.n), target().rules.loops
    batches, row_blocks, height = volume(b, problem.batch), b.ceildivi(m, mc), mc
    col_blocks = b.ceildivi(n, nc)
    blocks = b.muli(batches, b.muli(row_blocks, col_blocks))
    few = b.andc(b.cmpi("slt", blocks, b.muli(ctx.nt, 4)), b.cmpi("ne", b.remi(blocks, ctx.nt), 0))
    more = b.muli(b.ceildivi(col_blocks, ctx.nt), ctx.nt)
    more = b.maxi(b.mini(more, b.divi(n, rules.least_columns)), col_blocks)
    col_blocks = b.select_index(few, more, col_blocks)
    width = b.muli(b.ceildivi(b.ceildivi(n, b.maxi(col_blocks, 1)), nr), nr)
    width = b.maxi(width, nr)
    col_blocks = b.ceildivi(n, width)
    if not isinstance(m, int) or m > rules.whole_rows:
        blocks = b.maxi(b.muli(batches, b.muli(row_blocks, col_blocks)), 1)
        finest = b.maxi(b.divi(m, rules.least_rows), row_blocks)
        more = b.mini(b.muli(row_blocks, b.ceildivi(ctx.nt, blocks)), finest)
        height = b.muli(b.ceildivi(b.ceildivi(m, b.maxi(more, 1)), mr), mr)
        height = b.mini(b.maxi(height, mr), mc)
        row_blocks = b.ceildivi(m, height)

    def block(*index: Index) -> None:
        *batch, column, row = index
        m0, n0 = b.muli(row, height), b.muli(column, width)
        body(batch, m0, n0, b.mini(b.subi(m, m0), height), b.mini(b.subi(n, n0), width))

    # Column blocks vary slowest inside a batch: consecutive tasks of a thread share the rhs block.
    ctx.share(b, (*problem.batch, col_blocks, row_blocks), block)


def run_epilogue(
    b: Builder,
    epilogue: Epilogue,
    batch: list[Index],
    origin: tuple[Index, Index],
    extent: tuple[Index, Index],
    sums: Place,
    width: int,
) -> None:
    """Applies the epilogue to a block of sums [rows, cols]."""
    (m0, n0), (rows, cols) = origin, extent

    def row(i: Index) -> None:
        start = b.addi(sums.at, b.muli(i, sums.stride))
        index = [*batch, b.addi(m0, i)]

        def columns(j: Index, mask: ir.Value | None) -> None:
            acc = b.vload(sums.buffer, b.addi(start, j), width, mask)
            epilogue.apply(b, index, b.addi(n0, j), width, acc, mask)

        in_vectors(b, 0, cols, width, columns)

    b.for_(0, rows, 1, row)
