# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One row against all columns: sums in registers, as wide as memory delivers the matrix."""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.dialects.schedules.gpu import GemvSchedule
from kiln.lowering.gpu.builder import Builder, Condition, Index, is_float
from kiln.lowering.gpu.dot.operands import Epilogue, Line, line, split_batch
from kiln.lowering.gpu.dot.tile import DotProblem


def emit_gemv(b: Builder, p: DotProblem, schedule: GemvSchedule, program: Index, epilogue: Epilogue) -> None:
    """One program of the "gemv" kernel: `block_n` columns of a problem with m = 1, or where `transposed` rows of one
    with n = 1.

    Partial sums lie beside each other along the reduction, [block_n, block_k], and are added up once at the end.
    """
    transposed, columns, step = schedule.transposed, schedule.block_n, schedule.block_k
    size = p.m if transposed else p.n
    across = b.ceildivi(size, columns)
    batch = split_batch(b, b.divi(program, across), p.batch)
    lhs, rhs = p.at(b, batch)
    # One vector against rows of [columns, k]; of a transposed problem, the matrix is the lhs.
    pairs = [(y.transposed, lhs) if transposed else (lhs, y.transposed) for y in rhs]
    start = b.muli(b.remi(program, across), columns)
    n, k = line(b, start, columns, 0, size), b.lanes(step, 1, 2)
    pointers: list[ir.Value] = []
    advance: list[Index] = []
    for vector, matrix in pairs:
        pointers.append(b.broadcast(vector.pointers(b, 0, k), (1, step)))
        pointers.append(b.broadcast(matrix.pointers(b, n.clamped(b, size), k), (columns, step)))
        advance += [b.muli(step, vector.column_stride), b.muli(step, matrix.column_stride)]
    whole = b.divi(p.k, step)

    def multiply(at: Sequence[ir.Value], sums: Sequence[ir.Value], rest: Index | None) -> list[ir.Value]:
        mask: Condition = True if rest is None else b.cmpi("slt", k, rest)
        loaded = [_widen(b, b.load(pointer, mask, other=0), p.sums) for pointer in at]
        return [_add_product(b, total, *loaded[2 * i : 2 * i + 2]) for i, total in enumerate(sums)]

    def body(_: Index, carried: Sequence[ir.Value]) -> list[ir.Value]:
        at, sums = carried[: len(pointers)], carried[len(pointers) :]
        moved = [b.addptr(x, by) for x, by in zip(at, advance, strict=True)]
        return [*moved, *multiply(at, sums, None)]

    zeros = [b.constant(0, tt.with_shape([columns, step], p.sums))] * len(rhs)
    stages = {"tt.num_stages": f"{schedule.num_stages} : i32"}
    carried = b.for_(0, whole, 1, body, [*pointers, *zeros], stages)
    at, sums = carried[: len(pointers)], carried[len(pointers) :]
    rest = b.subi(p.k, b.muli(whole, step))
    if not isinstance(rest, int) or rest:
        sums = multiply(at, sums, rest)
    add = arith.addf if is_float(p.sums) else arith.addi
    totals = [b.reduce([s], 1, lambda u, v: add(u, v))[0] for s in sums]
    # The epilogue's tile is [1, columns], or [rows, 1].
    only = Line(0, b.constant(0, tt.with_shape([1, 1], b.index)), True)
    if transposed:
        epilogue.apply(b, batch, line(b, start, columns, 0, size), only, [b.expand_dims(t, 1) for t in totals])
    else:
        epilogue.apply(b, batch, only, line(b, start, columns, 1, size), [b.expand_dims(t, 0) for t in totals])


def _add_product(b: Builder, total: ir.Value, vector: ir.Value, matrix: ir.Value) -> ir.Value:
    if is_float(total.type):
        return b.addf(total, b.mulf(matrix, vector))
    return arith.addi(total, arith.muli(*b.together(matrix, vector)))


def _widen(b: Builder, value: ir.Value, element: ir.Type) -> ir.Value:
    return b.cast_float(value, element) if is_float(element) else b.cast_int(value, element)
