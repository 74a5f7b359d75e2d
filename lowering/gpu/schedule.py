# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Block sizes and warps of pointwise and reduction kernels, by the limits of `choices/loops.toml` (docs/gpu.md)."""

from dataclasses import dataclass

from kiln.dialects.schedules.gpu import NestSchedule
from kiln.lowering.gpu.dot.machine import Machine, machine
from kiln.lowering.gpu.rules import LoopRules, rules_for

__all__ = [
    "RowShape",
    "choose_pointwise",
    "choose_row",
    "choose_transpose",
    "is_held",
    "pow2",
    "reduction_parts",
    "warps_for",
]


@dataclass(frozen=True)
class RowShape:
    """The reductions of a kernel.

    rows, length: sizes (None: known at run time only). likely: the length, or what it was about when the graph was
    traced; None where that is not known. contiguous: neighbours in memory are neighbours in the row,
    not in the next row. inputs: distinct places that loads read for an element of the row: tensors of one layout count
    once. reread: the row is needed after it is reduced.
    """

    rows: int | None
    length: int | None
    contiguous: bool = True
    inputs: int = 1
    reread: bool = False
    likely: int | None = None


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

    As many as make `part_programs` on each multiprocessor.
    """
    rules = rules_for(LoopRules)
    wanted = rules.part_programs * sms
    if not results:
        return 1
    if neighbours == 1:
        # A row that a program holds, or as many programs as multiprocessors, are not worth a second kernel.
        is_whole = results >= sms or is_held(length)
        return 1 if is_whole else min(wanted // results, length // rules.loop_block)
    # Strips of few neighbours go on with those of the next part or row.
    is_long = neighbours >= rules.least_strip
    columns = min(rules.strip, pow2(neighbours)) if is_long else rules.strip
    strips = results // neighbours * -(-neighbours // columns) if is_long else results / rules.strip
    steps = length * columns // rules.strip_elements
    return 1 if steps < rules.few_steps else min(int(wanted / strips), steps)


def is_held(length: int) -> bool:
    """Whether a program has a row of so many elements in registers, and reads it once."""
    return length <= rules_for(LoopRules).longest_rows[0]


def warps_for(elements: int) -> int:
    """Warps for a tile in registers: 1024 elements 2, 4096 8, 8192 16, 32768 32."""
    return max(1, min(32, elements // rules_for(LoopRules).warp_elements))


def choose_pointwise(
    elements: int | None, gathers: bool = False, chip: Machine | None = None, each: int | None = None
) -> NestSchedule:
    """The tile of a kernel without reductions, over its elements in a row.

    gathers: it loads from where loaded indices say. each: elements for a thread (`kiln.lowering.gpu.tile.spread`).
    """
    rules = rules_for(LoopRules)
    most = rules.gather_block if gathers else rules.block
    vector, warps = rules.vector_block, rules.pointwise_warps
    if each is not None:
        vector, most = 32 * each, min(rules.gather_block, 32 * each * rules.spread_warps)
        warps = most // vector
    block = most
    if elements is not None:
        # Few elements are spread over all multiprocessors, as long as each thread has a vector of four.
        spread = pow2(elements // (rules.busy_programs * _sms(chip)))
        block = min(most, pow2(elements), max(vector, spread))
    return NestSchedule(tile=(block,), num_warps=max(1, min(warps, block // vector)))


def choose_transpose(sizes: tuple[int | None, int | None]) -> NestSchedule:
    """The tile of a kernel that reads along one dim and writes along another one."""
    rules = rules_for(LoopRules)
    side = rules.transposed_side
    rows, columns = (side if n is None else min(side, pow2(n)) for n in sizes)
    return NestSchedule(tile=(rows, columns), num_warps=min(rules.tile_warps, warps_for(rows * columns)))


def choose_row(shape: RowShape, chip: Machine | None = None) -> NestSchedule:
    """Rows per program, elements of a row per step, whether that is the whole row, and warps."""
    rules = rules_for(LoopRules)
    longest = rules.longest_rows[0 if shape.inputs <= 2 else 1 if shape.inputs <= 4 else 2]
    if not shape.contiguous:
        return _columns(shape, _sms(chip))
    # Of an empty row there is nothing to load: its loop runs zero times.
    length = shape.likely if shape.length is None else shape.length
    whole = bool(length) and length is not None and length <= longest
    step = rules.loop_block
    if whole and length is not None:
        step = pow2(length)
    if whole and not shape.reread and step > rules.unread_row:
        whole, step = False, rules.loop_block  # Nothing is gained by keeping what is not read again.
    if shape.length is None:
        least, unknown = rules.unknown_block
        step = unknown if length is None else max(step, least)
        # Where it turns out to be longer it is walked in blocks: what is read once is so in any case.
        whole = whole and shape.reread
    rows = max(1, rules.block // step)
    if shape.rows is not None:
        rows = min(rows, pow2(shape.rows))
        while rows > 1 and shape.rows // rows < rules.busy_programs * _sms(chip):
            rows //= 2
    return NestSchedule(tile=(rows,), row=step, persistent=whole, num_warps=warps_for(rows * step))


def _columns(shape: RowShape, sms: int) -> NestSchedule:
    """Neighbours in memory are neighbouring results: a program takes a strip of these."""
    rules = rules_for(LoopRules)
    is_wide = shape.rows is None or shape.rows >= rules.busy_programs * rules.strip * sms
    columns = 2 * rules.strip if is_wide else rules.strip
    if shape.rows is not None:
        columns = min(columns, pow2(shape.rows))
    step = max(1, rules.strip_elements // columns)
    whole = (
        bool(shape.length) and shape.length is not None and pow2(shape.length) <= (2 * step if shape.reread else step)
    )
    if whole and shape.length is not None:
        step = pow2(shape.length)
    warps = min(rules.tile_warps, warps_for(columns * step))
    return NestSchedule(tile=(columns,), row=step, persistent=whole, num_warps=warps)
