# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The next schedule where a kernel does not compile or wants more than a multiprocessor has: less at a time."""

from typing import Any

__all__ = ["smaller_schedule"]

Schedule = dict[str, Any]

_LEAST_TILE = 16
"""Sides of a tile for tensor cores."""
_LEAST_BLOCK = 32
"""Elements of a program, of a row: one a thread of a warp."""


def smaller_schedule(schedule: Schedule) -> Schedule | None:
    """A schedule of the same kernel that keeps less in registers and shared memory, or None if there is none.

    Operands are loaded through pointers, in two stages, before tiles get smaller.
    """
    for key in ("parts", "nests"):
        if key in schedule:
            smaller = [smaller_schedule(part) for part in schedule[key]]
            if not any(smaller):
                return None
            return schedule | {key: [new or old for new, old in zip(smaller, schedule[key], strict=True)]}
    if "tile" in schedule:
        return _nest(schedule)
    if "num_stages" not in schedule:
        return None
    if schedule.get("kernel") == "specialized":
        plain = {"block_m": 64, "block_n": 64, "num_warps": 4, "num_stages": 3, "masks": "branch"}
        return plain | {"descriptors": True, "precision": schedule["precision"]}
    plain = {key: value for key, value in schedule.items() if key not in ("persistent", "programs", "descriptors")}
    if plain.get("kernel") == "tensor_map":
        plain["kernel"] = "tile"
    plain["num_stages"] = min(2, plain["num_stages"])
    if plain != schedule:
        return plain
    sides = [side for side in ("block_m", "block_n") if plain.get(side, 0) > _LEAST_TILE]
    if plain.get("kernel") == "gemv":
        sides = [side for side in ("block_n", "block_k") if plain[side] > (1 if side == "block_n" else _LEAST_BLOCK)]
    if plain.get("block_k", 0) > 2 * _LEAST_BLOCK and plain.get("kernel") != "gemv":
        return plain | {"block_k": plain["block_k"] // 2}
    if not sides:
        return None
    largest = max(sides, key=lambda side: plain[side])
    return plain | {largest: plain[largest] // 2, "num_warps": max(1, min(4, plain["num_warps"]))}


def _nest(nest: Schedule) -> Schedule | None:
    """Fewer rows a program, then a row in blocks, then shorter blocks; of a pointwise kernel, fewer elements."""
    tile = nest["tile"]
    if max(tile) > (1 if "row" in nest else _LEAST_BLOCK):
        at = tile.index(max(tile))
        return nest | {"tile": [n // 2 if i == at else n for i, n in enumerate(tile)]}
    if nest.get("persistent") and nest["row"] > 1024:
        return nest | {"persistent": False, "row": 1024, "num_warps": min(4, nest["num_warps"])}
    if "row" in nest and not nest.get("persistent") and nest["row"] > _LEAST_BLOCK:
        return nest | {"row": nest["row"] // 2}
    return None
