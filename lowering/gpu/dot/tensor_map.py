# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A matrix product whose operands are loaded through descriptors: hardware moves whole blocks, and clips them."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.dialects.schedules.gpu import TmaSchedule
from kiln.lowering.gpu.builder import Builder, Index
from kiln.lowering.gpu.dot.operands import (
    Described,
    DescribedMatrix,
    Epilogue,
    apply_in_pieces,
    line,
    split_batch,
    tile_position,
)


@dataclass(frozen=True)
class DescribedOperand:
    """Matrices in blocks; reduction_last: whether the reduction runs along their last dim.

    lhs is [m, k] where reduction_last, else [k, m]; rhs is [n, k] or [k, n].
    """

    matrices: Described
    reduction_last: bool


@dataclass(frozen=True)
class DescribedProblem:
    """result[*batch, m, n] = sum over k of lhs[*batch, m, k] * rhs[*batch, k, n] for each rhs; sums are f32."""

    m: Index
    n: Index
    k: Index
    lhs: DescribedOperand
    rhs: tuple[DescribedOperand, ...]
    precision: str = "ieee"
    batch: tuple[Index, ...] = ()

    def tiles(self, b: Builder, schedule: TmaSchedule) -> tuple[Index, Index]:
        """Rows and columns of tiles."""
        return b.ceildivi(self.m, schedule.block_m), b.ceildivi(self.n, schedule.block_n)


def emit_tensor_map(b: Builder, p: DescribedProblem, schedule: TmaSchedule, program: Index, epilogue: Epilogue) -> None:
    """One program of the "gpu.gemm.tma" kernel: one tile, or with `persistent` every `programs`-th tile.

    The persistent loop and the reduction are flattened into one by Triton (`tt.flatten`), so that the loads of the next
    tile run under the epilogue of this one. The epilogue has a counter of its own: the loop's may be a tile ahead.
    """
    if not schedule.persistent:
        tile = _Tile.of(b, p, schedule, program)
        tile.finish(tile.sums(), epilogue)
        return
    programs = schedule.programs
    total: Index = 1
    for count in (*p.tiles(b, schedule), *p.batch):
        total = b.muli(total, count)

    def body(tile: Index, carried: Sequence[ir.Value]) -> list[ir.Value]:
        sums = _Tile.of(b, p, schedule, tile).sums()
        done = arith.addi(carried[0], b.value(programs, b.index))
        _Tile.of(b, p, schedule, done).finish(sums, epilogue)
        return [done]

    before = b.value(b.subi(program, programs))
    b.for_(program, total, programs, body, [before], {"tt.flatten": "unit"})


@dataclass(frozen=True)
class _Tile:
    """One tile of the result: of which batch, which row and column of tiles."""

    b: Builder
    p: DescribedProblem
    schedule: TmaSchedule
    batch: list[Index]
    i: Index
    j: Index

    @classmethod
    def of(cls, b: Builder, p: DescribedProblem, schedule: TmaSchedule, number: Index) -> "_Tile":
        down, across = p.tiles(b, schedule)
        position, i, j = tile_position(b, number, down, across, schedule.group_m)
        return cls(b, p, schedule, split_batch(b, position, p.batch), i, j)

    def sums(self) -> list[ir.Value]:
        b, p, step = self.b, self.p, self.schedule.block_k
        rows, columns = self.schedule.block_m, self.schedule.block_n
        row, column = b.muli(self.i, rows), b.muli(self.j, columns)
        lhs, *others = (x.matrices.at(self.batch) for x in (p.lhs, *p.rhs))

        def body(number: Index, carried: Sequence[ir.Value]) -> list[ir.Value]:
            k = b.muli(number, step)
            x = _load(b, lhs, row, k, p.lhs.reduction_last)
            sums: list[ir.Value] = []
            for rhs, matrix, total in zip(p.rhs, others, carried, strict=True):
                y = _load(b, matrix, k, column, not rhs.reduction_last)
                sums.append(b.dot(x, y, total, p.precision))
            return sums

        zeros = [b.constant(0.0, tt.with_shape([rows, columns], b.f32))] * len(p.rhs)
        stages = {"tt.num_stages": f"{self.schedule.num_stages} : i32"}
        return b.for_(0, b.ceildivi(p.k, step), 1, body, zeros, stages)

    def finish(self, sums: Sequence[ir.Value], epilogue: Epilogue) -> None:
        b, p, pieces = self.b, self.p, self.schedule.epilogue_pieces
        rows, columns = self.schedule.block_m, self.schedule.block_n
        row = line(b, b.muli(self.i, rows), rows, 0, p.m)
        apply_in_pieces(b, epilogue, self.batch, row, (b.muli(self.j, columns), p.n), sums, pieces)


def _load(b: Builder, matrix: DescribedMatrix, row: Index, column: Index, is_straight: bool) -> ir.Value:
    """The block [R, C] at (row, column) of a matrix that memory has as it is, or transposed."""
    return matrix.load(b, row, column) if is_straight else b.trans(matrix.load(b, column, row))
