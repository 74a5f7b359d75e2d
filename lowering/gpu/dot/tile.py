# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A matrix product by tiles: one tile of the result a program, operands loaded through pointers."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import tt
from kiln.lowering.gpu.builder import Builder, Condition, Index
from kiln.lowering.gpu.dot.operands import Epilogue, Line, Matrix, dot_offset, line, split_batch, tile_position


@dataclass(frozen=True)
class DotProblem:
    """result[*batch, m, n] = sum over k of lhs[*batch, m, k] * rhs[*batch, k, n].

    lhs and rhs are those of the first batch; the batch strides are in elements. sums: the element type of the sums.
    precision: how tensor cores take f32 operands ("ieee", "tf32").
    """

    batch: tuple[Index, ...]
    m: Index
    n: Index
    k: Index
    lhs: Matrix
    rhs: Matrix
    lhs_batch: tuple[Index, ...]
    rhs_batch: tuple[Index, ...]
    sums: ir.Type
    precision: str = "ieee"

    def at(self, b: Builder, batch: Sequence[Index]) -> tuple[Matrix, Matrix]:
        """The two matrices of one batch."""
        lhs = self.lhs.moved(b, dot_offset(b, batch, self.lhs_batch))
        return lhs, self.rhs.moved(b, dot_offset(b, batch, self.rhs_batch))


def emit_tile(b: Builder, p: DotProblem, schedule: dict, program: Index, epilogue: Epilogue) -> None:
    """One program of the "tile" kernel.

    Rows and columns past the end read the last ones again, where that does not cost them their vector loads: what
    they give is not stored. Of the reduction, only the last step is masked.
    """
    rows, columns = schedule["block_m"], schedule["block_n"]
    across, down = b.ceildivi(p.n, columns), b.ceildivi(p.m, rows)
    batch_position, i, j = tile_position(b, program, down, across, schedule["group_m"])
    batch = split_batch(b, batch_position, p.batch)
    lhs, rhs = p.at(b, batch)
    m = line(b, b.muli(i, rows), rows, 0, p.m)
    n = line(b, b.muli(j, columns), columns, 1, p.n)
    epilogue.apply(b, batch, m, n, sum_tile(b, p, lhs, rhs, m, n, schedule))


def sum_tile(b: Builder, p: DotProblem, lhs: Matrix, rhs: Matrix, m: Line, n: Line, schedule: dict) -> ir.Value:
    """The sums of a tile [R, C]: zeros where the reduction is empty."""
    step = schedule["block_k"]
    lines = b.lanes(step, 1, 2), b.lanes(step, 0, 2)
    m_index, m_mask = _along(b, m, lhs.row_stride, p.m)
    n_index, n_mask = _along(b, n, rhs.column_stride, p.n)
    a = b.addptr(lhs.pointer, b.addi(b.muli(m_index, lhs.row_stride), b.muli(lines[0], lhs.column_stride)))
    c = b.addptr(rhs.pointer, b.addi(b.muli(lines[1], rhs.row_stride), b.muli(n_index, rhs.column_stride)))
    shape_a, shape_c = (schedule["block_m"], step), (step, schedule["block_n"])
    a, c = b.broadcast(a, shape_a), b.broadcast(c, shape_c)
    advance = b.muli(step, lhs.column_stride), b.muli(step, rhs.row_stride)
    whole = b.divi(p.k, step)

    def multiply(pointers: Sequence[ir.Value], sums: ir.Value, rest: Index | None) -> ir.Value:
        masks = m_mask, n_mask
        if rest is not None:
            masks = tuple(b.andc(mask, b.cmpi("slt", x, rest)) for mask, x in zip(masks, lines, strict=True))
        x, y = (b.load(pointer, mask, other=0) for pointer, mask in zip(pointers, masks, strict=True))
        return b.dot(x, y, sums, p.precision)

    def body(_: Index, carried: Sequence[ir.Value]) -> list[ir.Value]:
        x, y, sums = carried
        sums = multiply((x, y), sums, None)
        return [b.addptr(x, advance[0]), b.addptr(y, advance[1]), sums]

    zeros = b.constant(0, tt.with_shape([shape_a[0], shape_c[1]], p.sums))
    stages = {"tt.num_stages": f"{schedule['num_stages']} : i32"}
    a, c, sums = b.for_(0, whole, 1, body, [a, c, zeros], stages)
    rest = b.subi(p.k, b.muli(whole, step))
    if isinstance(rest, int) and rest == 0:
        return sums
    return multiply((a, c), sums, rest)


def _along(b: Builder, axis: Line, stride: Index, size: Index) -> tuple[Index, Condition]:
    """Index and mask to load an axis with: masked along memory, where neighbours make one load; else clamped."""
    if isinstance(stride, int) and stride == 1:
        return axis.index, axis.mask
    return axis.clamped(b, size), True
