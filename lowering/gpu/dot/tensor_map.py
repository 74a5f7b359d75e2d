# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A matrix product whose operands are loaded through descriptors: hardware moves whole blocks, and clips them."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.lowering.gpu.builder import Builder, Index
from kiln.lowering.gpu.dot.operands import Epilogue, apply_in_pieces, line, load_described, tile_position


@dataclass(frozen=True)
class DescribedMatrix:
    """A descriptor of a matrix in blocks; reduction_last: whether the reduction runs along its last dim.

    lhs is [m, k] where reduction_last, else [k, m]; rhs is [n, k] or [k, n].
    """

    descriptor: ir.Value
    reduction_last: bool


@dataclass(frozen=True)
class DescribedProblem:
    """result[m, n] = sum over k of lhs[m, k] * rhs[k, n] for each rhs, f32 sums, for sizes known at compile time."""

    m: int
    n: int
    k: int
    lhs: DescribedMatrix
    rhs: tuple[DescribedMatrix, ...]
    precision: str = "ieee"


def emit_tensor_map(b: Builder, p: DescribedProblem, schedule: dict, program: Index, epilogue: Epilogue) -> None:
    """One program of the "tensor_map" kernel: one tile, or with `persistent` every `programs`-th tile.

    The persistent loop and the reduction are flattened into one by Triton (`tt.flatten`), so that the loads of the next
    tile run under the epilogue of this one. The epilogue has a counter of its own: the loop's may be a tile ahead.
    """
    down, across = -(-p.m // schedule["block_m"]), -(-p.n // schedule["block_n"])
    if not schedule["persistent"]:
        _, i, j = tile_position(b, program, down, across, schedule["group_m"])
        _finish(b, p, schedule, i, j, _sums(b, p, schedule, i, j), epilogue)
        return
    programs = schedule["programs"]

    def body(tile: Index, carried: Sequence[ir.Value]) -> list[ir.Value]:
        _, i, j = tile_position(b, tile, down, across, schedule["group_m"])
        sums = _sums(b, p, schedule, i, j)
        done = arith.addi(carried[0], b.value(programs, b.index))
        _, i, j = tile_position(b, done, down, across, schedule["group_m"])
        _finish(b, p, schedule, i, j, sums, epilogue)
        return [done]

    before = b.value(b.subi(program, programs))
    b.for_(program, down * across, programs, body, [before], {"tt.flatten": "unit"})


def _sums(b: Builder, p: DescribedProblem, schedule: dict, i: Index, j: Index) -> list[ir.Value]:
    rows, columns, step = schedule["block_m"], schedule["block_n"], schedule["block_k"]
    row, column = b.muli(i, rows), b.muli(j, columns)

    def body(number: Index, carried: Sequence[ir.Value]) -> list[ir.Value]:
        k = b.muli(number, step)
        x = load_described(b, p.lhs.descriptor, [row, k] if p.lhs.reduction_last else [k, row])
        x = x if p.lhs.reduction_last else b.trans(x)
        sums: list[ir.Value] = []
        for rhs, total in zip(p.rhs, carried, strict=True):
            y = load_described(b, rhs.descriptor, [column, k] if rhs.reduction_last else [k, column])
            sums.append(b.dot(x, b.trans(y) if rhs.reduction_last else y, total, p.precision))
        return sums

    zeros = [b.constant(0.0, tt.with_shape([rows, columns], b.f32))] * len(p.rhs)
    stages = {"tt.num_stages": f"{schedule['num_stages']} : i32"}
    return b.for_(0, -(-p.k // step), 1, body, zeros, stages)


def _finish(
    b: Builder, p: DescribedProblem, schedule: dict, i: Index, j: Index, sums: Sequence[ir.Value], epilogue: Epilogue
) -> None:
    rows, columns = schedule["block_m"], schedule["block_n"]
    row = line(b, b.muli(i, rows), rows, 0, p.m)
    apply_in_pieces(b, epilogue, [], row, (b.muli(j, columns), p.n), sums, schedule["pieces"])
