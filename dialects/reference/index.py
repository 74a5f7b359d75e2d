# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads and writes at positions given by tensors."""

from collections.abc import Callable
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine, scalar
from kiln.dialects.builder import Builder, dim, dims, extract, here
from kiln.dialects.kiln.index import broadcast_dims, index_position
from kiln.dialects.reference.attention import broadcast_index


def _as_index(value: ir.Value) -> ir.Value:
    return scalar.cast(value, ir.IndexType.get())


def gather(op: Any, b: Builder) -> ir.Value:
    """The table is read in the body, at the loops' positions but for `dim`."""
    x, at = op.x, op.dim.value
    sizes = b.sizes(op.index)
    rank = len(sizes)

    def body(i: ir.Value) -> ir.Value:
        return extract(x, [_as_index(i) if k == at else here(k) for k in range(rank)])

    return b.map([(op.index, dims(rank))], sizes, x.type.element_type, body)


def index_select(op: Any, b: Builder) -> ir.Value:
    """As gather, with one index per slice."""
    x, at = op.x, op.dim.value
    sizes = b.sizes(op.result)

    def body(i: ir.Value) -> ir.Value:
        return extract(x, [_as_index(i) if k == at else here(k) for k in range(len(sizes))])

    return b.map([(op.index, [dim(at)])], sizes, x.type.element_type, body)


def embedding(op: Any, b: Builder) -> ir.Value:
    """The row is read in the body; the last loop runs along it."""
    sizes = b.sizes(op.result)
    last = len(sizes) - 1

    def body(i: ir.Value) -> ir.Value:
        return extract(op.weight, [_as_index(i), here(last)])

    return b.map([(op.index, dims(last))], sizes, op.weight.type.element_type, body)


def index(op: Any, b: Builder) -> ir.Value:
    """Index tensors broadcast over a block of loops; the other loops run along the dims that are not indexed."""
    x, *indices = list(op.operation.operands)
    positions: list[int] = list(op.attributes["dims"])
    sizes = b.sizes(op.operation.results[0])
    lengths = [b.size_value(b.sizes(x)[d]) for d in positions]
    block = len(broadcast_dims([b.sizes(i) for i in indices]))
    start = index_position(positions)
    point = [dim(start + k) for k in range(block)]
    loops = [k for k in range(len(sizes)) if not start <= k < start + block]

    def body(*values: ir.Value) -> ir.Value:
        zero = scalar.constant(ir.IndexType.get(), 0)
        at: list[ir.Value] = []
        rest = iter(loops)
        for d in range(x.type.rank):
            if d not in positions:
                at.append(here(next(rest)))
                continue
            k = positions.index(d)
            i = _as_index(values[k])
            at.append(scalar.select(scalar.compare("lt", i, zero), scalar.add(i, lengths[k]), i))
        return extract(x, at)

    inputs = [(i, broadcast_index(b.sizes(i), point)) for i in indices]
    return b.map(inputs, sizes, x.type.element_type, body)


_COMBINE: dict[str, Callable[[ir.Value, ir.Value], ir.Value]] = {
    "none": lambda _, v: v,
    "sum": scalar.add,
    "prod": scalar.mul,
    "amax": scalar.maximum,
    "amin": scalar.minimum,
}


def scatter(op: Any, b: Builder) -> ir.Value:
    """For each position of `x`, a reduction over the updates along `dim` that name it."""
    x, at = op.x, op.dim.value
    element = x.type.element_type
    sizes, updates = b.sizes(x), b.sizes(op.index)
    rank = len(sizes)
    # Outside of `index`, which may be smaller than `x`, no update: position -1.
    high = [0 if k == at else affine.simplify(n - m) for k, (n, m) in enumerate(zip(sizes, updates, strict=True))]
    low = [0] * rank
    index = b.pad(op.index, -1, low, high)
    source = b.pad(op.src, 0, low, high)
    point = [dim(rank) if k == at else dim(k) for k in range(rank)]
    combine = _COMBINE[op.reduce.value]
    index_type = ir.IndexType.get()

    def body(i: ir.Value, v: ir.Value, total: ir.Value) -> ir.Value:
        named = scalar.compare("eq", scalar.cast(i, index_type), here(at))
        return scalar.select(named, combine(total, v), total)

    start = b.map([(x, dims(rank))], sizes, element, lambda v: v)
    return b.generic([index, source], [point, point], [start], [dims(rank)], "p" * rank + "r", body)[0]


def scatter_nd(op: Any, b: Builder) -> ir.Value:
    """For each position of `x`, a reduction over all updates, of which those count that name it."""
    x, src, *indices = list(op.operation.operands)
    element = x.type.element_type
    sizes, updates = b.sizes(x), b.sizes(src)
    rank, inner = len(sizes), len(updates)
    dims_, loops = list(op.attributes["dims"]), list(op.attributes["loops"])
    rest = [d for d in range(rank) if d not in dims_]
    point = [dim(rank + k) for k in range(inner)]
    combine = _COMBINE[op.attributes["reduce"].value]
    index_type = ir.IndexType.get()

    def body(v: ir.Value, *others: ir.Value) -> ir.Value:
        *named, total = others
        here_ = [scalar.compare("eq", scalar.cast(i, index_type), here(d)) for i, d in zip(named, dims_, strict=True)]
        here_ += [scalar.compare("eq", here(rank + k), here(d)) for d, k in zip(rest, loops, strict=True)]
        mine = here_[0]
        for condition in here_[1:]:
            mine = scalar.both(mine, condition)
        return scalar.select(mine, combine(total, v), total)

    if op.attributes["from_zero"].value:
        start = b.fill(element, sizes, 0)
    else:
        start = b.map([(x, dims(rank))], sizes, element, lambda v: v)
    maps = [point] * (1 + len(indices))
    return b.generic([src, *indices], maps, [start], [dims(rank)], "p" * rank + "r" * inner, body)[0]
