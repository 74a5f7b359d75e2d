# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Block sizes and warps of pointwise and reduction kernels, by rules that were measured (docs/gpu.md)."""

from dataclasses import dataclass

from kiln.dialects.schedules.gpu import NestSchedule
from kiln.lowering.gpu.dot.machine import Machine, machine

__all__ = ["RowShape", "choose_pointwise", "choose_row", "choose_transpose", "reduction_parts", "warps_for"]

BLOCK = 1024
"""Elements of a pointwise program: more, or a loop, was never faster."""
LONGEST_ROW = 32768
"""Elements of a row that a program keeps in registers; a longer one is read again by each pass over it."""
LOOP_BLOCK = 4096
"""Elements of a row that is walked in blocks."""
UNKNOWN_BLOCK = 1024
"""The same where the row's length is not known: it may be short."""
LEAST_STRIP = 16
"""Elements of a dim from which on a program's columns are all along it."""
_STRIP = 32
"""Neighbouring columns that a program walks, unless there are very many."""
_STRIP_ELEMENTS = 2048
"""Elements of such a strip that are loaded at a time."""
_FEW_STEPS = 8
"""Loads, one after the other, that take less time than a second kernel would. In ResNet-50's gradient at batch 4, sums
of 784 rows of 256 channels, 12 steps, take 13.4 us in one kernel, and those of 3,136 rows of 128, in parts, 3.5 and
2.6; 196 rows of 512, 3 steps, take 6.3 us (H100, h100-experiments.json). Kernels with this limit were not timed.
"""


@dataclass(frozen=True)
class RowShape:
    """The reductions of a kernel.

    rows, length: sizes (None: known at run time only). contiguous: neighbours in memory are neighbours in the row,
    not in the next row. inputs: distinct places that loads read for an element of the row: tensors of one layout count
    once. reread: the row is needed after it is reduced.
    """

    rows: int | None
    length: int | None
    contiguous: bool = True
    inputs: int = 1
    reread: bool = False


def pow2(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


def _sms(chip: Machine | None) -> int:
    """Multiprocessors to keep busy: of `chip`, or of the GPU that the rules were measured on."""
    return (chip or machine()).sms


def reduction_parts(results: int, length: int, neighbours: int, sms: int) -> int:
    """In how many parts `length` elements are reduced to each of `results`, so that all multiprocessors are busy; 1: in
    one kernel.

    neighbours: results that lie next to each other in memory, which a program takes in strips; 1: it takes a row.

    As many as make 8 programs on each multiprocessor. Sums of 16,384 rows of 3,072 bf16 take 148 us in 96 programs on
    an H200, 31 us in 1,536; of 768, 15 us in 384.
    """
    wanted = 8 * sms
    if not results:
        return 1
    if neighbours == 1:
        # A row that a program holds, or as many programs as multiprocessors, are not worth a second kernel.
        return 1 if results >= sms or length <= LONGEST_ROW else min(wanted // results, length // LOOP_BLOCK)
    # Strips of few neighbours go on with those of the next part or row.
    columns = min(_STRIP, pow2(neighbours)) if neighbours >= LEAST_STRIP else _STRIP
    strips = results // neighbours * -(-neighbours // columns) if neighbours >= LEAST_STRIP else results / _STRIP
    steps = length * columns // _STRIP_ELEMENTS
    return 1 if steps < _FEW_STEPS else min(int(wanted / strips), steps)


def warps_for(elements: int) -> int:
    """Warps for a tile in registers: 1024 elements 2, 4096 8, 8192 16, 32768 32."""
    return max(1, min(32, elements // 512))


def choose_pointwise(elements: int | None, gathers: bool = False, chip: Machine | None = None) -> NestSchedule:
    """The tile of a kernel without reductions, over its elements in a row.

    gathers: it loads from where loaded indices say. Each thread then has more of these loads under way: an embedding of
    8192 rows of 1024 bf16 takes 5.4 us, and 6.9 with half the elements.
    """
    most = 2 * BLOCK if gathers else BLOCK
    block = most
    if elements is not None:
        # Few elements are spread over all multiprocessors, as long as each thread has a vector of four.
        block = min(most, pow2(elements), max(128, pow2(elements // (2 * _sms(chip)))))
    return NestSchedule(tile=(block,), num_warps=max(1, min(4, block // 128)))


def choose_transpose(sizes: tuple[int | None, int | None]) -> NestSchedule:
    """The tile of a kernel that reads along one dim and writes along another one."""
    rows, columns = (64 if n is None else min(64, pow2(n)) for n in sizes)
    return NestSchedule(tile=(rows, columns), num_warps=max(1, min(8, rows * columns // 512)))


def choose_row(shape: RowShape, chip: Machine | None = None) -> NestSchedule:
    """Rows per program, elements of a row per step, whether that is the whole row, and warps."""
    longest = LONGEST_ROW if shape.inputs <= 2 else LONGEST_ROW // 2 if shape.inputs <= 4 else LONGEST_ROW // 4
    if not shape.contiguous:
        return _columns(shape, _sms(chip))
    # Of an empty row there is nothing to load: its loop runs zero times.
    whole = bool(shape.length) and shape.length is not None and shape.length <= longest
    if whole and shape.length is not None:
        step = pow2(shape.length)
    else:
        step = UNKNOWN_BLOCK if shape.length is None else LOOP_BLOCK
    if whole and not shape.reread and step > LOOP_BLOCK * 2:
        whole, step = False, LOOP_BLOCK  # Nothing is gained by keeping what is not read again.
    rows = 1 if step >= BLOCK else max(1, BLOCK // step)
    if shape.rows is not None:
        rows = min(rows, pow2(shape.rows))
        while rows > 1 and shape.rows // rows < 2 * _sms(chip):
            rows //= 2
    return NestSchedule(tile=(rows,), row=step, persistent=whole, num_warps=warps_for(rows * step))


def _columns(shape: RowShape, sms: int) -> NestSchedule:
    """Neighbours in memory are neighbouring results: a program takes a strip of these."""
    columns = 2 * _STRIP if shape.rows is None or shape.rows >= 2 * _STRIP * sms else _STRIP
    if shape.rows is not None:
        columns = min(columns, pow2(shape.rows))
    step = max(1, _STRIP_ELEMENTS // columns)
    whole = (
        bool(shape.length) and shape.length is not None and pow2(shape.length) <= (2 * step if shape.reread else step)
    )
    if whole and shape.length is not None:
        step = pow2(shape.length)
    warps = max(1, min(8, columns * step // 512))
    return NestSchedule(tile=(columns,), row=step, persistent=whole, num_warps=warps)
