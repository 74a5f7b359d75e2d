# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A short dim in which the lanes' elements take turns in memory: x, y and z of points, channels of pixels.

Lanes that are n elements apart, with a dim of n elements between them, would scatter what they store, and load as many
vectors again for each of these elements. Instead the dim is written out inside of a block of lanes: its n vectors are
interleaved by shuffles and stored as n vectors in a row, and loads of the same memory are one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering import paths
from kiln.lowering.cpu.builder import INTERLEAVED, Builder
from kiln.lowering.tile.access import Access, Accesses, Indices, Loops, compose_one

if TYPE_CHECKING:
    from kiln.lowering.cpu.tile.memory import Memory

__all__ = ["interleave", "store_in_turns", "takes_turns", "turning_dim"]

_TAKEN = paths.group("cpu stores", "interleaved", "one after another")


def takes_turns(access: Access, lane: int, dim: int, loops: Loops) -> bool:
    """Whether lanes lie apart in memory by just the elements of `dim`."""
    linear = affine.linear_coefficients(access.offset)
    extent = affine.constant_of(loops.extents[dim])
    if linear is None or extent is None or not 2 <= extent <= INTERLEAVED:
        return False
    zero = ir.AffineConstantExpr.get(0)
    steps = [affine.constant_of(linear[1].get(d, zero)) for d in (dim, lane)]
    return steps == [1, extent]


def turning_dim(accesses: Accesses, lane: int, dims: Sequence[int], loops: Loops) -> int | None:
    """The one of `dims` that is written out in a loop over `lane`, if any."""
    for dim in dims:
        if dim != lane and any(takes_turns(a, lane, dim, loops) for a in accesses.found):
            return dim
    return None


def store_in_turns(e: "Memory", position: int, indices: Indices, dim: int, values: Sequence[ir.Value]) -> None:
    """Write `values`, the lanes' elements of result number `position` for each value of `dim`."""
    b, lane = e.b, e.lane
    points = [
        tuple(affine.substitute(x, {dim: ir.AffineConstantExpr.get(k)}) for x in indices) for k in range(len(values))
    ]
    layout = e.layouts[position]
    line = lane.line(compose_one(layout, points[0], e.loops))
    step = e.loops.simplify(compose_one(layout, points[1], e.loops) - compose_one(layout, points[0], e.loops))
    count = len(values)
    if line is None or affine.constant_of(line[0]) != count or affine.constant_of(step) != 1:
        _TAKEN("one after another")
        for point, value in zip(points, values, strict=True):
            e.store(position, point, value)
        return
    _TAKEN("interleaved")
    lanes = interleave(b, [e.splat(e.stored(value)) for value in values])
    width = lane.width
    start = e.index(line[1])
    for k, vector in enumerate(lanes):
        mask = None
        if lane.mask is not None:
            mask = b.shuffle(lane.mask, lane.mask, [(k * width + i) // count for i in range(width)])
        b.vstore(vector, e.buffers[position], b.addi(start, k * width), mask)


def interleave(b: Builder, vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """Vectors that hold, one behind the other, the first elements of all `vectors`, then the second ones, ..."""
    count, width = len(vectors), ir.VectorType(vectors[0].type).shape[0]
    if count == 1:
        return list(vectors)
    if count % 2 == 0:
        pairs = zip(interleave(b, vectors[::2]), interleave(b, vectors[1::2]), strict=True)
        order = [i // 2 + width * (i % 2) for i in range(2 * width)]
        return [b.shuffle(x, y, half) for x, y in pairs for half in (order[:width], order[width:])]
    found: list[ir.Value] = []
    for k in range(count):
        places = [divmod(k * width + i, count) for i in range(width)]
        result = b.shuffle(vectors[0], vectors[1], [place + width * (of == 1) for place, of in places])
        for of, vector in enumerate(vectors[2:], 2):
            keep = [width + place if of == at else i for i, (place, at) in enumerate(places)]
            result = b.shuffle(result, vector, keep)
        found.append(result)
    return found
