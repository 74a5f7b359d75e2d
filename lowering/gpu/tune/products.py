# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules worth a try for a product on a GPU: the next tiles by the model, and changes of the rule's choice."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

from kiln.lowering.gpu.dot.machine import Machine
from kiln.lowering.gpu.dot.schedule import ProductShape, schedule_of_tile, takes_descriptors, tiles_by_time

__all__ = ["in_turn", "product_schedules"]

Schedule = dict[str, Any]
T = TypeVar("T")

_TILES = 6
"""Tiles of the model's order that are tried."""
_MOST_STAGES = 8
_LARGE = 128 * 256


def in_turn(lists: Sequence[Iterable[T]]) -> Iterator[T]:
    """The first of each list, then the second of each: the first few are of all kinds."""
    nothing = object()
    for found in zip_longest(*lists, fillvalue=nothing):
        yield from (x for x in found if x is not nothing)  # pyright: ignore[reportReturnType]


def product_schedules(shape: ProductShape, machine: Machine, default: Schedule, descriptors: bool) -> list[Schedule]:
    """Candidates for a product, the most promising first.

    Args:
        default: the rule's choice, with "precision"; it is not among the result.
        descriptors: whether operands may be loaded through tensor maps.
    """
    given = {"precision": default["precision"]}
    if default["kernel"] == "gemv":
        families = [list(_gemv(default))]
    else:
        through = [False, True] if descriptors and machine.tensor_maps and takes_descriptors(shape) else [False]
        mapped = default["kernel"] == "tensor_map"
        tiles = tiles_by_time(shape, machine)[:_TILES]
        own = (default["block_m"], default["block_n"])
        families = [
            list(_changes(default, machine)),
            [schedule_of_tile(shape, machine, tile, mapped and True in through) | given for tile in tiles],
            [schedule_of_tile(shape, machine, tile, not mapped) | given for tile in [own, *tiles]]
            if (not mapped) in through
            else [],
        ]
    found: list[Schedule] = []
    for schedule in in_turn(families):
        if schedule != default and schedule not in found:
            found.append(schedule)
    return found


def _changes(default: Schedule, machine: Machine) -> Iterator[Schedule]:
    rows, columns, stages = default["block_m"], default["block_n"], default["num_stages"]
    yield default | {"num_stages": stages - 1 if stages > 2 else stages + 1}
    if default.get("persistent"):
        yield default | {"persistent": False}
    elif default["kernel"] == "tensor_map":
        yield default | {"persistent": True, "programs": machine.sms}
    if rows * columns <= _LARGE:
        yield default | {"num_warps": 4 if default["num_warps"] == 8 else 8}
    if default["block_k"] > 32:
        yield default | {"block_k": default["block_k"] // 2, "num_stages": min(2 * stages, _MOST_STAGES)}
    if default["pieces"] < 4 and columns >= 64:
        yield default | {"pieces": 2 * default["pieces"]}
    if stages + 1 <= _MOST_STAGES:
        yield default | {"num_stages": stages + 1}


def _gemv(default: Schedule) -> Iterator[Schedule]:
    columns, step, warps = default["block_n"], default["block_k"], default["num_warps"]
    sizes = (
        (2 * columns, step, warps),
        (columns, step, 2 * warps),
        (columns, step // 2, warps),
        (4 * columns, step // 2, warps),
        (columns, step // 2, max(1, warps // 2)),
        (2 * columns, step // 2, warps),
        (columns, step, max(1, warps // 2)),
    )
    for n, k, count in sizes:
        if k >= 16 and 32 * count <= n * k <= 1 << 14:
            yield default | {"block_n": n, "block_k": k, "num_warps": count}
