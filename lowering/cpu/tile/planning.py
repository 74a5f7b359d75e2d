# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Choices about loops: which dim to vectorise, how wide, and which loops of a reduction to merge."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.builder import INTERLEAVED
from kiln.lowering.cpu.tile.lines import bent_line, lane_pattern, pieces
from kiln.lowering.cpu.tile.row_stage import ROWS, Block, staged_block
from kiln.lowering.cpu.tile.stage import stride_across
from kiln.lowering.cpu.tile.turns import takes_turns
from kiln.lowering.tile.access import Access, Accesses, Indices, Loops, lane_coefficient
from kiln.lowering.tile.body import Reduction, invert, output_map
from kiln.lowering.tile.merging import Merged, merge_groups, merged_dims

if TYPE_CHECKING:
    from kiln.lowering.cpu.tile.evaluator import Evaluator

_STAGED = 0.5
"""Cost of an element that is transposed in registers on its way to scratch memory: 7 instructions for 16."""


def vector_lanes(types: Sequence[ir.Type]) -> int:
    """Lanes of one machine vector: by the widest element that is not wider than 32 bits, if there is one."""
    bits = isa.target().vector_bytes * 8
    widths = [t.width for t in types if isinstance(t, (ir.FloatType, ir.IntegerType))]
    return bits // (64 if widths and min(widths) >= 64 else 32)


def lanes_of(e: "Evaluator") -> int:
    """Lanes of a machine vector of the elements that a kernel reads and writes."""
    return vector_lanes([ir.RankedTensorType(t.type).element_type for t in e.body.tensors])


def lane_width(e: "Evaluator", lane: int, wide: int, unknown: int = 2) -> int:
    """Lanes per step along a dim: `wide` machine vectors, fewer for a short dim (a power of two that covers it); at
    most `unknown` vectors where its size is known at run time only.
    """
    lanes = lanes_of(e)
    extent = e.loops.extents[lane]
    if not isinstance(extent, ir.AffineConstantExpr):
        return lanes * min(wide, unknown)
    n = max(1, extent.value)
    width = lanes * wide
    while width > lanes and n < width:
        width //= 2
    if n < width:
        width = 1 << (n - 1).bit_length()
    return width


def access_cost(
    offset: ir.AffineExpr,
    count: float,
    lane: int | None,
    width: int = 16,
    stored: bool = False,
    turns: bool = False,
    extent: ir.AffineExpr | None = None,
) -> float:
    """Relative cost of `count` elements loaded from `offset`, or stored there, vectorised along `lane`. turns: what
    lies between them is loaded or stored by the same block of lanes (turns.py). extent: of the lane's loop.
    """
    if lane is None or lane not in affine.dims_in(offset):
        return count
    linear = lane_coefficient(offset, lane, width)
    if linear is not None and linear[0] == ir.AffineConstantExpr.get(1):
        return count / width
    stride = affine.constant_of(linear[0]) if linear is not None else None
    if stride == 0 and not stored:
        return count / width  # one element for all lanes, as the scale of a group
    if stride is not None and turns:
        return stride * count / width  # a load or a store of each vector, and shuffles between them
    if stride is not None and 1 <= abs(stride) <= INTERLEAVED and not stored:
        # So many loads, and shuffles between them; backwards one more (`Builder.gather`).
        return (2 * abs(stride) - (stride > 0)) * count / width
    pattern = lane_pattern(offset, lane, width, width) if linear is None and not stored else None
    parts = pieces(pattern[1]) if pattern is not None else None
    if parts is not None:
        return 2 * len(parts) * count / width  # a load and a shuffle of each
    bend = bent_line(offset, lane, width, width, extent) if linear is None and not stored else None
    if bend is not None and bend.stride == ir.AffineConstantExpr.get(1):
        return 3 * count / width  # two masked loads
    # A gather costs about what its elements cost one by one, and it touches a cache line for each.
    return count * (3.0 if stored else 1.5)


@dataclass(frozen=True)
class Lanes:
    """The dim along which vectors are (None: there are none), the one that is walked in tiles inside of it (stage.py),
    and the relative cost of the accesses.
    """

    dim: int | None
    tile: int | None
    cost: float


def choose_lane(accesses: Accesses, candidates: Sequence[int], loops: Loops) -> int | None:
    """The candidate dim (None: no vectorisation here) that makes the accesses cheapest; the last one wins ties."""
    return choose_lanes(accesses, candidates, loops).dim


def choose_lanes(accesses: Accesses, candidates: Sequence[int], loops: Loops, tiles: Sequence[int] = ()) -> Lanes:
    """The same, where one of the dims `tiles` may be walked in tiles."""
    options: list[int | None] = [*reversed(candidates), None]
    found: list[Lanes] = []
    columns = {d for _, indices in accesses.reduced for x in indices for d in affine.dims_in(x)}
    for lane in options:
        total = 0.0
        # What is saved by tiles of a dim. In no order: where two dims save the same, the outer one is taken.
        saved = dict.fromkeys(_tile_dims(tiles, lane, loops), 0.0)
        blocks = [d for d in candidates if d in columns] if lane not in columns else []
        staged: set[Block] = set()
        for a in accesses.found:
            dims = affine.dims_in(a.offset)
            inner = dims & accesses.inner
            count = a.share * math.prod(map(loops.count, dims))
            if lane is not None and lane in dims:
                lanes = max(1, min(16, loops.count(lane)))
                turn = not accesses.reduced and any(takes_turns(a, lane, d, loops) for d in candidates)
                cost = access_cost(a.offset, count, lane, lanes, a.stored, turn, loops.extents[lane])
                if cost > count:
                    # A gather: other loads that come again find a vector in the cache, this one its elements each.
                    for d in a.loops - dims:
                        cost *= loops.count(d)
                    cost = _staged_cost(a, count, cost, blocks, [lane], loops, staged)
                for d in saved:
                    if stride_across(a.offset, d, lane) is not None:
                        saved[d] += a.bytes * max(0.0, cost - _STAGED * count)
                total += a.bytes * cost
            elif inner and (lane is None or lane not in a.loops):
                # Inside a reduction that is free to vectorise along one of its own dims.
                cost = min(access_cost(a.offset, count, d, max(1, min(16, loops.count(d)))) for d in inner)
                total += a.bytes * _staged_cost(a, count, cost, blocks, inner, loops, staged)
            else:
                total += a.bytes * count / (max(1, min(16, loops.count(lane))) if lane is not None else 1)
        tile = max(saved, key=lambda d: saved[d], default=None)
        gain = saved[tile] if tile is not None else 0.0
        found.append(Lanes(lane, tile if gain > 0 else None, total - gain))
    return min(found, key=lambda lanes: lanes.cost)


def _tile_dims(dims: Sequence[int], lane: int | None, loops: Loops) -> list[int]:
    """Those of `dims` that are long enough to be walked in tiles inside of a loop over the lanes."""
    least = isa.target().rules.loops.tile_lines // 4
    return [d for d in dims if lane is not None and d != lane and loops.count(d) > least]


def _staged_cost(
    access: Access,
    count: float,
    cost: float,
    blocks: Sequence[int],
    along: Iterable[int],
    loops: Loops,
    staged: set[Block],
) -> float:
    """`cost`, or less where one of the outer loops, `blocks`, can be walked in blocks of rows, whose operands are
    transposed. A block that is among those `staged` before is only loaded.
    """
    found = next((x for d in blocks for r in along if (x := staged_block(access, d, r, blocks, loops))), None)
    if found is None:
        return cost
    own = count / ROWS if found in staged else _STAGED * count
    staged.add(found)
    return min(cost, own)


def merge_reduction(e: "Evaluator", group: Sequence[Reduction], indices: Indices) -> Merged | None:
    """Merge the loops of a group of reductions where memory allows."""
    first = group[0]
    extents = e.body.loop_extents(first.op)
    fresh = [e.loops.new(extents[d]) for d in first.dims]
    accesses = Accesses(e.body, e.loops, e.layouts)
    for r in group:
        point = invert(output_map(r.op), indices)
        for d, x in zip(r.dims, fresh, strict=True):
            point[d] = x
        accesses.visit_operands(r.op, point, frozenset(x.position for x in fresh))
    dims = [x.position for x in fresh]
    groups = merge_groups(accesses, dims, e.loops, [0] * len(dims))
    if len(groups) == len(dims):
        return Merged(dims, list(fresh))
    return merged_dims(groups, e.loops)
