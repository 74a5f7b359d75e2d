# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One row against all columns: sums in registers, as wide as memory delivers the matrix."""

from collections.abc import Sequence
from dataclasses import replace

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.lowering.gpu.builder import Builder, Condition, Index, is_float
from kiln.lowering.gpu.dot.operands import Epilogue, Line, line, split_batch
from kiln.lowering.gpu.dot.tile import DotProblem


def emit_gemv(b: Builder, p: DotProblem, schedule: dict, program: Index, epilogue: Epilogue) -> None:
    """One program of the "gemv" kernel: `block_n` columns of a problem with m = 1, or with `turned` rows of one with
    n = 1.

    Partial sums lie beside each other along the reduction, [block_n, block_k], and are added up once at the end.
    """
    turned = schedule["turned"]
    p = turn(p) if turned else p
    columns, step = schedule["block_n"], schedule["block_k"]
    across = b.ceildivi(p.n, columns)
    batch = split_batch(b, b.divi(program, across), p.batch)
    lhs, rhs = p.at(b, batch)
    start = b.muli(b.remi(program, across), columns)
    n = line(b, start, columns, 0, p.n)
    k = b.lanes(step, 1, 2)
    x = b.broadcast(b.addptr(lhs.pointer, b.muli(k, lhs.column_stride)), (1, step))
    w = b.broadcast(rhs.transposed.pointers(b, n.clamped(b, p.n), k), (columns, step))
    whole = b.divi(p.k, step)

    def multiply(pointers: Sequence[ir.Value], sums: ir.Value, rest: Index | None) -> ir.Value:
        mask: Condition = True if rest is None else b.cmpi("slt", k, rest)
        loaded = [b.load(pointer, mask, other=0) for pointer in pointers]
        vector, matrix = (_widen(b, v, p.sums) for v in loaded)
        if is_float(p.sums):
            return b.addf(sums, b.mulf(matrix, vector))
        return arith.addi(sums, arith.muli(*b.together(matrix, vector)))

    def body(_: Index, carried: Sequence[ir.Value]) -> list[ir.Value]:
        first, second, sums = carried
        sums = multiply((first, second), sums, None)
        moved = b.addptr(first, b.muli(step, lhs.column_stride)), b.addptr(second, b.muli(step, rhs.row_stride))
        return [*moved, sums]

    zeros = b.constant(0, tt.with_shape([columns, step], p.sums))
    stages = {"tt.num_stages": f"{schedule['num_stages']} : i32"}
    x, w, sums = b.for_(0, whole, 1, body, [x, w, zeros], stages)
    rest = b.subi(p.k, b.muli(whole, step))
    if not isinstance(rest, int) or rest:
        sums = multiply((x, w), sums, rest)
    add = arith.addf if is_float(p.sums) else arith.addi
    total = b.reduce([sums], 1, lambda u, v: add(u, v))[0]
    # The epilogue's tile is [1, columns], or [rows, 1].
    only = Line(0, b.constant(0, tt.with_shape([1, 1], b.index)), True)
    if turned:
        epilogue.apply(b, batch, line(b, start, columns, 0, p.n), only, b.expand_dims(total, 1))
    else:
        epilogue.apply(b, batch, only, line(b, start, columns, 1, p.n), b.expand_dims(total, 0))


def turn(p: DotProblem) -> DotProblem:
    """The problem of the transposed result."""
    return replace(
        p, m=p.n, n=p.m, lhs=p.rhs.transposed, rhs=p.lhs.transposed, lhs_batch=p.rhs_batch, rhs_batch=p.lhs_batch
    )


def _widen(b: Builder, value: ir.Value, element: ir.Type) -> ir.Value:
    return b.cast_float(value, element) if is_float(element) else b.cast_int(value, element)
