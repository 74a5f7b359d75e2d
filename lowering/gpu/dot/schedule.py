# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which kernel and tiles for a matrix product on a GPU: the rule, with the limits of `choices/product_tiles.toml`.

One model of time picks the tile: rounds of tiles over the multiprocessors, each round as long as the slower of the
tensor cores and the loads. It picks each winner of the sweep that the shares of its tiles were fitted to ("tiles of
products" in benchmarks/results/performance/h200-experiments.json).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from kiln.dialects.schedules.gpu import GemmSchedule, GemvSchedule, TileSchedule, TmaSchedule
from kiln.lowering.considered import cheapest
from kiln.lowering.gpu.dot.machine import Machine
from kiln.lowering.gpu.rules import ProductRules, rules_for

Known = int | None
"""A size or stride; None where it is known at run time only."""

TILES = {(int(rows), int(columns)): share for rows, columns, share in rules_for(ProductRules).tiles}
"""(rows, columns) -> share of the tensor cores' peak that a tile of this shape reaches."""
_REGISTER_FILE = 65536
"""Registers of a multiprocessor, of 32 bits."""
_GRAIN = 8
"""Elements of 16 bits in 16 bytes, which hardware stores at once."""

FLOAT8 = ("f8E4M3FN", "f8E5M2")
"""8-bit floats that tensor cores take."""
BYTES: dict[str, int] = {"f64": 8, "f32": 4, "tf32": 4, "bf16": 2, "f16": 2, "i8": 1, "i16": 2, "i32": 4, "i64": 8}
BYTES |= dict.fromkeys(FLOAT8, 1)
"""Of an element."""
_PLAIN = ("f32", "f64", "i16", "i32", "i64")
"""Sums that are no work for tensor cores."""


@dataclass(frozen=True)
class ProductShape:
    """result[batch, m, n] = sum over k, for `dtype` among f64, f32, tf32 (f32 operands rounded in the tensor core),
    bf16, f16, f8E4M3FN, f8E5M2, i8, i16, i32, i64.
    products: how many such products of one lhs a program sums side by side (a gate and what it is multiplied with).

    lhs_strides [m, k] and rhs_strides [k, n] are in elements.
    """

    batch: Known
    m: Known
    n: Known
    k: Known
    lhs_strides: tuple[Known, Known]
    rhs_strides: tuple[Known, Known]
    dtype: str
    products: int = 1


def choose_product(shape: ProductShape, machine: Machine, descriptors: bool = False) -> GemmSchedule:
    """The schedule of a product, which depends on nothing but the arguments; through tensor maps only with
    `descriptors`: the launcher encodes them.
    """
    if 1 in (shape.m, shape.n):
        return gemv(shape)
    through_maps = descriptors and machine.tensor_maps and takes_descriptors(shape)
    return schedule_of_tile(shape, machine, best_tile(shape, machine), through_maps)


def schedule_of_tile(shape: ProductShape, machine: Machine, tile: tuple[int, int], through_maps: bool) -> TileSchedule:
    """The schedule with this tile; `through_maps` only for what `takes_descriptors`."""
    return _tensor_map(shape, machine, tile) if through_maps else _pointers(shape, machine, tile)


def best_tile(shape: ProductShape, machine: Machine) -> tuple[int, int]:
    """The (rows, columns) with the least modelled time; the earlier in the table among equals."""
    return cheapest("tile", "ns", _candidates(shape), lambda tile: tile_time(shape, machine, tile))


def tiles_by_time(shape: ProductShape, machine: Machine) -> list[tuple[int, int]]:
    """All tiles for a product, the one with the least modelled time first."""
    return sorted(_candidates(shape), key=lambda tile: tile_time(shape, machine, tile))


def _candidates(shape: ProductShape) -> list[tuple[int, int]]:
    rules = rules_for(ProductRules)
    is_integer = shape.dtype.startswith("i")
    limit = 256 if shape.dtype not in _PLAIN else rules.integer_side if is_integer else rules.plain_side
    area = limit * min(limit, 128)
    return [t for t in TILES if max(t) <= limit and t[0] * t[1] * shape.products <= area]


def tile_time(shape: ProductShape, machine: Machine, tile: tuple[int, int]) -> float:
    """Nanoseconds that the product takes with this tile, if loads and sums overlap perfectly."""
    rules = rules_for(ProductRules)
    m, n, k = (rules.dynamic_size if x is None else max(x, 1) for x in (shape.m, shape.n, shape.k))
    batch = rules.dynamic_batch if shape.batch is None else max(shape.batch, 1)
    rows, columns = tile
    tiles = batch * _ceil(m, rows) * _ceil(n, columns)
    efficiency = TILES[tile]
    if rows > columns and shape.n is not None and shape.n % _GRAIN:
        efficiency *= rules.narrow_stores
    sums = shape.products * rows * columns / (machine.rate_of(shape.dtype) * efficiency)
    loads = (rows + shape.products * columns) * BYTES[shape.dtype] / machine.load_rate
    return _ceil(tiles, machine.sms) * (max(sums, loads) * k + machine.round_time)


def gemv(shape: ProductShape) -> GemvSchedule:
    """Where the reduction runs along memory, a program takes one column and reads it in long pieces; otherwise many
    columns, a few steps of the reduction at a time.
    """
    rules = rules_for(ProductRules)
    transposed = shape.m != 1
    along = shape.lhs_strides[1] if transposed else shape.rhs_strides[0]
    if along == 1:
        block_k = min(rules.row_step, pow2(shape.k or rules.row_step))
        block_n = max(1, rules.row_elements // block_k)
    else:
        block_n, block_k = rules.across
    return GemvSchedule(transposed=transposed, block_n=block_n, block_k=block_k, num_warps=4, num_stages=3)


def takes_descriptors(shape: ProductShape) -> bool:
    """Whether both operands are matrices that a descriptor describes: float elements for tensor cores, one unit
    stride, the other a multiple of 16 bytes (one that is known at run time only is taken to be: `find_places` looks at
    it). Rows that are no whole lines of 128 bytes cost (0.85 of cuBLAS), but less than through pointers (0.65).
    """
    if shape.dtype not in ("bf16", "f16", "tf32", *FLOAT8):
        return False
    grain = 16 // BYTES[shape.dtype]
    for strides in (shape.lhs_strides, shape.rhs_strides):
        if 1 not in strides or max(s or 0 for s in strides) % grain:
            return False
    # Tensor cores take operands of other sizes than 16 bits only with the reduction along memory.
    return shape.dtype in ("bf16", "f16") or (shape.lhs_strides[1] == 1 and shape.rhs_strides[0] == 1)


def _tensor_map(shape: ProductShape, machine: Machine, tile: tuple[int, int]) -> TileSchedule:
    rules = rules_for(ProductRules)
    rows, columns = tile
    m, n = (rules.dynamic_size if x is None else x for x in (shape.m, shape.n))
    batch = rules.dynamic_batch if shape.batch is None else max(shape.batch, 1)
    tiles = batch * _ceil(m, rows) * _ceil(n, columns)
    least = rules.persistent_sums[0 if shape.batch == 1 else 1]
    persistent = shape.products * rows * columns >= least and tiles > machine.sms
    if rows < 64:
        # A box that is mostly out of bounds is slow, and small boxes gain nothing over pointers.
        return _pointers(shape, machine, tile)
    schedule = _pointers(shape, machine, tile)
    pieces = schedule.epilogue_pieces
    if shape.dtype == "tf32" and pieces == 2:
        pieces = 4
    # The epilogue's stage through shared memory takes place beside the operands'.
    room = machine.shared_bytes - rows * columns // pieces * max(2, BYTES[shape.dtype]) - 1024
    # A persistent program's loop goes on with the next tile: short sums need as many stages (1.5 times as fast).
    terms = replace(shape, k=None) if persistent else shape
    most = rules.persistent_stages if persistent else rules.map_stages
    stages = _stages(terms, rows, columns, schedule.block_k, room, limit=most)
    return TmaSchedule(
        block_m=rows,
        block_n=columns,
        block_k=schedule.block_k,
        group_m=schedule.group_m,
        num_warps=schedule.num_warps,
        num_stages=stages,
        epilogue_pieces=pieces,
        persistent=persistent,
        programs=machine.sms,
    )


def _pointers(shape: ProductShape, machine: Machine, tile: tuple[int, int]) -> TileSchedule:
    rules = rules_for(ProductRules)
    rows, columns = tile
    size = BYTES[shape.dtype]
    if shape.dtype in _PLAIN:
        block_k = rules.plain_step
    else:
        large, small, of_64x32 = rules.steps
        is_large = rows + columns > rules.large_sides
        block_k = (large if is_large else of_64x32 if (rows, columns) == (64, 32) else small) * 2 // size
        block_k = min(block_k, 128 if size == 1 else block_k)
    least = 32 if size == 1 else 16
    if shape.k is not None:
        block_k = max(least, min(block_k, pow2(shape.k)))
    most = 0 if rows < 64 else 1 if rows + columns <= 128 else 2 if rows + columns <= 256 else 3
    stages = _stages(shape, rows, columns, block_k, machine.shared_bytes - 1024, rules.stages[most])
    # Sums of 128 x 256 are what the registers of 8 warps hold, those of 128 x 128 what 4 hold.
    warps = 8 if shape.products * rows * columns > 128 * 128 else 4
    return TileSchedule(
        block_m=rows,
        block_n=columns,
        block_k=block_k,
        group_m=rules.group_rows,
        num_warps=warps,
        num_stages=stages,
        # With 128 sums a thread an epilogue spills, unless it has half of them at a time.
        epilogue_pieces=2 if shape.products * rows * columns >= 128 * 32 * warps else 1,
    )


def _stages(shape: ProductShape, rows: int, columns: int, block_k: int, room: int, limit: int) -> int:
    """As many blocks in flight as shared memory holds and the reduction has."""
    stages = min(limit, room // ((rows + shape.products * columns) * block_k * BYTES[shape.dtype]))
    if shape.k is not None:
        stages = min(stages, _ceil(max(shape.k, 1), block_k) + 1)
    return max(stages, 1)


def resident_stages(shape: ProductShape, machine: Machine, schedule: TileSchedule) -> int:
    """Stages (at least two) with which as many programs share a multiprocessor as the grid has for it and its
    registers hold: where loads and stores take the time, these hide them better than a deep pipeline.
    """
    rules = rules_for(ProductRules)
    rows, columns, block_k = schedule.block_m, schedule.block_n, schedule.block_k
    batch, m, n = (rules.dynamic_size if x is None else max(x, 1) for x in (shape.batch or 1, shape.m, shape.n))
    waiting = _ceil(batch * _ceil(m, rows) * _ceil(n, columns), machine.sms)
    threads = 32 * schedule.num_warps
    sums = shape.products * rows * columns // threads
    programs = max(1, min(waiting, _REGISTER_FILE // (threads * (sums + rules.other_registers))))
    if isinstance(schedule, TmaSchedule) and waiting <= _REGISTER_FILE // (threads * (sums + rules.fewest_registers)):
        programs = waiting
    stage = (rows + shape.products * columns) * block_k * BYTES[shape.dtype]
    return max(2, machine.shared_bytes // programs // stage)


def pow2(x: int) -> int:
    """The least power of two that is at least x (and at least 1)."""
    return 1 << max(0, x - 1).bit_length()


def _ceil(x: int, y: int) -> int:
    return -(-x // y)


def known_product(sizes: Sequence[Known]) -> Known:
    """The product of the sizes; None if one of them is."""
    found = [x for x in sizes if x is not None]
    return prod(found) if len(found) == len(sizes) else None
