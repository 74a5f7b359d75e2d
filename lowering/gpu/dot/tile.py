# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A matrix product by tiles: one tile of the result a program, operands loaded through pointers."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import tt
from kiln.dialects.schedules.gpu import TileSchedule
from kiln.lowering.gpu.builder import Builder, Condition, Index
from kiln.lowering.gpu.dot.operands import (
    Epilogue,
    Line,
    Matrix,
    apply_in_pieces,
    dot_offset,
    line,
    split_batch,
    tile_position,
)


@dataclass(frozen=True)
class DotProblem:
    """result[*batch, m, n] = sum over k of lhs[*batch, m, k] * rhs[*batch, k, n], for each rhs.

    lhs and rhs are those of the first batch; the batch strides are in elements. sums: the element type of the sums.
    precision: how tensor cores take f32 operands ("ieee", "tf32").
    """

    batch: tuple[Index, ...]
    m: Index
    n: Index
    k: Index
    lhs: Matrix
    rhs: tuple[Matrix, ...]
    lhs_batch: tuple[Index, ...]
    rhs_batch: tuple[tuple[Index, ...], ...]
    sums: ir.Type
    precision: str = "ieee"

    def at(self, b: Builder, batch: Sequence[Index]) -> tuple[Matrix, list[Matrix]]:
        """The matrices of one batch."""
        lhs = self.lhs.moved(b, dot_offset(b, batch, self.lhs_batch))
        pairs = zip(self.rhs, self.rhs_batch, strict=True)
        return lhs, [rhs.moved(b, dot_offset(b, batch, strides)) for rhs, strides in pairs]


def emit_tile(b: Builder, p: DotProblem, schedule: TileSchedule, program: Index, epilogue: Epilogue) -> None:
    """One program of the "tile" kernel.

    Rows and columns past the end read the last ones again, where that does not cost them their vector loads: what
    they give is not stored. Of the reduction, only the last step is masked.
    """
    rows, columns = schedule.block_m, schedule.block_n
    across, down = b.ceildivi(p.n, columns), b.ceildivi(p.m, rows)
    batch_position, i, j = tile_position(b, program, down, across, schedule.group_m)
    batch = split_batch(b, batch_position, p.batch)
    lhs, rhs = p.at(b, batch)
    m = line(b, b.muli(i, rows), rows, 0, p.m)
    n = line(b, b.muli(j, columns), columns, 1, p.n)
    sums = sum_tile(b, p, lhs, rhs, m, n, schedule)
    apply_in_pieces(b, epilogue, batch, m, (n.start, p.n), sums, schedule.epilogue_pieces)


def sum_tile(
    b: Builder, p: DotProblem, lhs: Matrix, rhs: Sequence[Matrix], m: Line, n: Line, schedule: TileSchedule
) -> list[ir.Value]:
    """The sums of a tile [R, C] for each rhs: zeros where the reduction is empty."""
    rows, columns, step = schedule.block_m, schedule.block_n, schedule.block_k
    along, down = b.lanes(step, 1, 2), b.lanes(step, 0, 2)
    m_index, m_mask = _along(b, m, lhs.row_stride, p.m)
    pointers = [b.broadcast(lhs.pointers(b, m_index, along), (rows, step))]
    advance, masks = [b.muli(step, lhs.column_stride)], [m_mask]
    for matrix in rhs:
        n_index, n_mask = _along(b, n, matrix.column_stride, p.n)
        pointers.append(b.broadcast(matrix.pointers(b, down, n_index), (step, columns)))
        advance.append(b.muli(step, matrix.row_stride))
        masks.append(n_mask)
    whole = b.divi(p.k, step)

    def multiply(at: Sequence[ir.Value], sums: Sequence[ir.Value], rest: Index | None) -> list[ir.Value]:
        kept = masks
        if rest is not None:
            terms = [along, *[down] * len(rhs)]
            kept = [b.andc(mask, b.cmpi("slt", x, rest)) for mask, x in zip(masks, terms, strict=True)]
        x, *others = (b.load(pointer, mask, other=0) for pointer, mask in zip(at, kept, strict=True))
        return [b.dot(x, y, total, p.precision) for y, total in zip(others, sums, strict=True)]

    def body(_: Index, carried: Sequence[ir.Value]) -> list[ir.Value]:
        at, sums = carried[: len(pointers)], carried[len(pointers) :]
        sums = multiply(at, sums, None)
        return [*(b.addptr(x, moved) for x, moved in zip(at, advance, strict=True)), *sums]

    zeros = [b.constant(0, tt.with_shape([rows, columns], p.sums))] * len(rhs)
    stages = {"tt.num_stages": f"{schedule.num_stages} : i32"}
    carried = b.for_(0, whole, 1, body, [*pointers, *zeros], stages)
    at, sums = carried[: len(pointers)], carried[len(pointers) :]
    rest = b.subi(p.k, b.muli(whole, step))
    if isinstance(rest, int) and rest == 0:
        return sums
    return multiply(at, sums, rest)


def _along(b: Builder, axis: Line, stride: Index, size: Index) -> tuple[Index, Condition]:
    """Index and mask to load an axis with: masked along memory, where neighbours make one load; else clamped."""
    if isinstance(stride, int) and stride == 1:
        return axis.index, axis.mask
    return axis.clamped(b, size), True
