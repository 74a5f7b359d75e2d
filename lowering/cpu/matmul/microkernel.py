# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The register-tile loop that matmul and attention share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.sizes import LINE


@dataclass(frozen=True)
class Left:
    """Rows of the left operand: element [r, k] of the tile at starts[r] + k * k_stride."""

    buffer: ir.Value
    starts: Sequence[Index]
    k_stride: Index


@dataclass(frozen=True)
class Right:
    """Row vectors of the right operand: element [k, j] at start + k * k_stride + j; `masks` per vector, or None."""

    buffer: ir.Value
    start: Index
    k_stride: Index
    masks: Sequence[ir.Value | None] | None = None


def outer_products(
    b: Builder,
    left: Left,
    right: Right,
    depth: Index,
    acc: list[ir.Value],
    vectors: int,
    unroll: int = 1,
    prefetch: int = 0,
    between: tuple[int, Callable[[Index], None]] | None = None,
) -> list[ir.Value]:
    """acc[r * vectors + v] += sum over k < depth of left[r, k] * right[k, v-th vector].

    The accumulators (vectors of the sum type, one per row and column vector) stay in registers over the
    loop. `prefetch`: fetch the right operand that many steps of k ahead. `between`: a number of steps (a multiple of
    `unroll`) and what is to be done, given the first of them, before each run of so many.
    """
    vector_type = ir.VectorType(acc[0].type)
    width, sum_type = vector_type.shape[0], vector_type.element_type
    bytes_ = 8 if isinstance(sum_type, ir.F64Type) else 4

    def steps(k: Index, acc: list[ir.Value], count: int) -> list[ir.Value]:
        acc = list(acc)
        for u in range(count):
            ku = b.addi(k, u)
            at = b.addi(right.start, b.muli(ku, right.k_stride))
            row = []
            for v in range(vectors):
                mask = right.masks[v] if right.masks else None
                row.append(b.cast_float(b.vload(right.buffer, b.addi(at, v * width), width, mask), sum_type))
            if prefetch and right.masks is None:
                for byte in range(0, vectors * width * bytes_, LINE):
                    b.prefetch(right.buffer, b.sum_(at, b.muli(prefetch, right.k_stride), byte // bytes_))
            for r, start in enumerate(left.starts):
                x = b.load(left.buffer, b.addi(start, b.muli(ku, left.k_stride)))
                x = b.broadcast(b.cast_float(x, sum_type), width)
                for v in range(vectors):
                    acc[r * vectors + v] = b.fma(x, row[v], acc[r * vectors + v])
        return acc

    def run(low: Index, high: Index, acc: list[ir.Value]) -> list[ir.Value]:
        full = b.addi(low, b.round_down(b.subi(high, low), unroll))
        acc = b.for_(low, full, unroll, lambda k, a: steps(k, a, unroll), acc)
        return b.for_(full, high, 1, lambda k, a: steps(k, a, 1), acc) if unroll > 1 else acc

    if between is None:
        return run(0, depth, acc)
    count, first = between

    def begun(k: Index, acc: list[ir.Value]) -> list[ir.Value]:
        first(k)
        return run(k, b.mini(b.addi(k, count), depth), acc)

    return b.for_(0, depth, count, begun, acc)
