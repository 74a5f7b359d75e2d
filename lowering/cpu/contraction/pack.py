# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Packing of operand blocks into scratch, with conversion to the sum dtype, and register transposes."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.unit import Place

T = TypeVar("T")


def transpose_registers(b: Builder, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """The transpose of w vectors of w lanes (w a power of two), by 2-operand shuffles.

    First inside 128-bit lanes by unpacks, which are one instruction each, then of the 128-bit blocks by
    exchanges at growing distance (one vperm2f128 or vshuff32x4 each).
    """
    return shuffle_squares(b.shuffle, rows, 128 // ir.VectorType(rows[0].type).element_type.width)


def shuffle_squares(shuffle: Callable[[T, T, list[int]], T], rows: Sequence[T], lanes: int) -> list[T]:
    """The shuffles of `transpose_registers`, for `lanes` elements in 128 bits; shuffle(x, y, lanes) picks from both."""
    w = len(rows)
    group = min(w, lanes)
    out = list(rows)
    # Unpack stages: elements of 1, then 2, ... lanes interleave inside each 128-bit block.
    size = 1
    while size < group:
        mixed = list(out)
        for base in range(0, w, group):
            for i in range(group):
                if i & size:
                    continue
                x, y = out[base + i], out[base + i + size]
                low: list[int] = []
                high: list[int] = []
                for block in range(0, w, group):
                    half = group // 2
                    for picked, start in ((low, block), (high, block + half)):
                        for e in range(0, half, size):
                            picked += [start + e + q for q in range(size)]
                            picked += [w + start + e + q for q in range(size)]
                mixed[base + i], mixed[base + i + size] = shuffle(x, y, low), shuffle(x, y, high)
        out = mixed
        size *= 2
    # The stages leave column c of a group where the bits of c say in reverse.
    bits = group.bit_length() - 1
    places = [int(f"{c:0{bits}b}"[::-1], 2) if bits else 0 for c in range(group)]
    out = [out[base + places[c]] for base in range(0, w, group) for c in range(group)]
    # Exchange of 128-bit blocks: block q of group g swaps with block g of group q.
    distance = 1
    while distance * group < w:
        for g in range(w // group):
            if g & distance:
                continue
            for c in range(group):
                p, q = g * group + c, (g + distance) * group + c
                x, y = out[p], out[q]
                keep: list[int] = []
                move: list[int] = []
                for blk in range(w // group):
                    near = range(blk * group, (blk + 1) * group)
                    if blk & distance:
                        keep += [w + lane - distance * group for lane in near]
                        move += [w + lane for lane in near]
                    else:
                        keep += list(near)
                        move += [lane + distance * group for lane in near]
                out[p], out[q] = shuffle(x, y, keep), shuffle(x, y, move)
        distance *= 2
    return out


def transpose_block(b: Builder, source: Place, target: Place, rows: Index, cols: Index, width: int) -> None:
    """target[j, i] = source[i, j] for i < rows, j < cols, `width` by `width` elements at a time, in registers.

    Both buffers have room for multiples of `width` rows and columns.
    """
    (x, x_at, x_stride), (y, y_at, y_stride) = source[:3], target[:3]

    def square(i: Index, j: Index) -> None:
        start, to = b.sum_(x_at, b.muli(i, x_stride), j), b.sum_(y_at, b.muli(j, y_stride), i)
        loaded = [b.vload(x, b.addi(start, b.muli(r, x_stride)), width) for r in range(width)]
        for r, column in enumerate(transpose_registers(b, loaded)):
            b.vstore(column, y, b.addi(to, b.muli(r, y_stride)))

    b.for_(0, cols, width, lambda j: b.for_(0, rows, width, lambda i: square(i, j)) and None)


def copy_rows(
    b: Builder,
    source: ir.Value,
    source_offset: Index,
    source_stride: Index,
    target: ir.Value,
    target_offset: Index,
    target_stride: Index,
    rows: Index,
    padded_rows: Index,
    cols: Index,
    width: int,
) -> None:
    """target[i, j] = source[min(i, rows - 1), j] for i < padded_rows, j < cols rounded up to width.

    Both unit-stride along j; elements past `cols` become zero. Padding rows repeat the last one: they are
    finite whenever the data are, and what is computed from them is never read.
    """
    element = ir.MemRefType(target.type).element_type
    full = b.round_down(cols, width)
    tail = b.subi(cols, full)
    mask = b.tail_mask(tail, width)

    def row(i: Index) -> None:
        src = b.addi(source_offset, b.muli(b.mini(i, b.subi(rows, 1)), source_stride))
        dst = b.addi(target_offset, b.muli(i, target_stride))

        def columns(j: Index, mask: ir.Value | None = None) -> None:
            x = b.cast_float(b.vload(source, b.addi(src, j), width, mask), element)
            b.vstore(x, target, b.addi(dst, j))

        b.for_(0, full, width, columns)
        b.if_(b.cmpi("sgt", tail, 0), lambda: columns(full, mask))

    b.for_(0, padded_rows, 1, row)


def pack_transposed(
    b: Builder,
    source: ir.Value,
    source_offset: Index,
    source_stride: Index,
    target: ir.Value,
    target_offset: Index,
    target_stride: Index,
    rows: Index,
    cols: Index,
    width: int,
) -> None:
    """target[j, i] = source[i, j] for a strip of `width` rows i and all j < cols.

    The source has unit stride along j, the target along i. Rows past `rows` repeat the last one; the target
    must have room for cols rounded up to `width`.
    """
    element = ir.MemRefType(target.type).element_type
    last = b.subi(rows, 1)
    starts = [b.addi(source_offset, b.muli(b.mini(i, last), source_stride)) for i in range(width)]
    full = b.round_down(cols, width)
    tail = b.subi(cols, full)
    mask = b.tail_mask(tail, width)

    def columns(j: Index, mask: ir.Value | None = None) -> None:
        loaded = [b.cast_float(b.vload(source, b.addi(s, j), width, mask), element) for s in starts]
        for i, x in enumerate(transpose_registers(b, loaded)):
            b.vstore(x, target, b.sum_(target_offset, b.muli(b.addi(j, i), target_stride)))

    b.for_(0, full, width, columns)
    b.if_(b.cmpi("sgt", tail, 0), lambda: columns(full, mask))


def pack_strided(
    b: Builder,
    source: ir.Value,
    source_offset: Index,
    strides: tuple[Index, Index],
    target: ir.Value,
    target_offset: Index,
    target_strides: tuple[Index, Index],
    rows: Index,
    cols: Index,
    padded_cols: Index,
) -> None:
    """target[i, j] = source[i, min(j, cols - 1)], element by element, for any strides (rows x padded_cols)."""
    element = ir.MemRefType(target.type).element_type

    def one(i: Index, j: Index) -> None:
        near = b.mini(j, b.subi(cols, 1))
        x = b.load(source, b.sum_(source_offset, b.muli(i, strides[0]), b.muli(near, strides[1])))
        at = b.sum_(target_offset, b.muli(i, target_strides[0]), b.muli(j, target_strides[1]))
        b.store(b.cast_float(x, element), target, at)

    b.for_(0, rows, 1, lambda i: b.for_(0, padded_cols, 1, lambda j: one(i, j)))
