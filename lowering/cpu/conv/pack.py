# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Copies of weights with lanes along output channels, for kernels that multiply them by one element of the input."""

from collections.abc import Callable, Sequence

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.pack import transpose_registers
from kiln.lowering.cpu.matmul.problem import Size, known

Place = Callable[[Sequence[Index]], Index]


def pack_strip(
    b: Builder,
    source: ir.Value,
    start: Index,
    channel_stride: Size,
    channels: Index,
    sizes: Sequence[int],
    strides: Sequence[Size],
    target: ir.Value,
    place: Place,
    width: int,
    spare: Index | None = None,
) -> None:
    """target[place(index) + lane] = source[start + lane * channel_stride + index . strides] for all indices.

    `index` runs over `sizes` (input channel, window row and column). Lanes from `channels` on repeat the last channel:
    finite whenever the data are, and nothing reads what is computed from them. Weights whose sizes lie densely in
    memory in any order are read a vector at a time and transposed in registers.

    spare: where width * width elements of the target are free. Transposed vectors go through there, so that the
    divisions that tell their places are written once in a loop, not once a vector: a fifth of a 3x3 kernel's code.
    """
    last = b.subi(channels, 1)
    lanes = [b.addi(start, b.muli(b.mini(i, last), known(channel_stride))) for i in range(width)]
    order = dense_order(sizes, strides)
    element = ir.MemRefType(target.type).element_type
    if order is None:
        _pack_elements(b, source, lanes, sizes, strides, target, place)
        return
    total = 1
    for n in sizes:
        total *= n

    def columns(q: Index, mask: ir.Value | None = None, count: int = width) -> None:
        loaded = [b.cast_float(b.vload(source, b.addi(at, q), width, mask), element) for at in lanes]
        turned = transpose_registers(b, loaded)[:count]
        if spare is None or len(order) < 2:
            for i, x in enumerate(turned):
                b.vstore(x, target, place(_unflatten(b, b.addi(q, i), sizes, order)))
            return
        for i, x in enumerate(turned):
            b.vstore(x, target, b.addi(spare, i * width))

        def move(i: Index, free: Index = spare) -> None:
            x = b.vload(target, b.addi(free, b.muli(i, width)), width)
            b.vstore(x, target, place(_unflatten(b, b.addi(q, i), sizes, order)))

        b.for_(0, count, 1, move)

    full = total // width * width
    b.for_(0, full, width, columns)
    if total > full:
        columns(full, b.mask_below(total - full, width), total - full)


def dense_order(sizes: Sequence[int], strides: Sequence[Size]) -> list[int] | None:
    """The dims from the outermost to the innermost if they lie in memory without gaps; None if not."""
    order = [i for i in range(len(sizes)) if sizes[i] > 1]
    if not all(isinstance(strides[i], int) for i in order):
        return None
    order.sort(key=lambda i: -known(strides[i]))  # type: ignore[operator] - strides of weights are numbers
    step = 1
    for i in reversed(order):
        if strides[i] != step:
            return None
        step *= sizes[i]
    return order


def _unflatten(b: Builder, q: Index, sizes: Sequence[int], order: Sequence[int]) -> list[Index]:
    index: list[Index] = [0] * len(sizes)
    for i in reversed(order[1:]):
        index[i], q = b.remi(q, sizes[i]), b.divi(q, sizes[i])
    if order:
        index[order[0]] = q
    return index


def _pack_elements(
    b: Builder,
    source: ir.Value,
    lanes: Sequence[Index],
    sizes: Sequence[int],
    strides: Sequence[Size],
    target: ir.Value,
    place: Place,
) -> None:
    element = ir.MemRefType(target.type).element_type

    def loop(index: list[Index]) -> None:
        if len(index) < len(sizes):
            b.for_(0, sizes[len(index)], 1, lambda i: loop([*index, i]))
            return
        offset = b.sum_(*(b.muli(i, known(s)) for i, s in zip(index, strides, strict=True)))
        at = place(index)
        for lane, start in enumerate(lanes):
            x = b.load(source, b.addi(start, offset))
            b.store(b.cast_float(x, element), target, b.addi(at, lane))

    loop([])
