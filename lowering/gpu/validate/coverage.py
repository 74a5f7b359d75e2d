# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whether every element of a result is written: where no element is written twice and all lie in the result, as many
have to be written as there are.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from kiln.lowering.gpu.validate.buffers import Buffer
from kiln.lowering.gpu.validate.concrete import Array, Numbers
from kiln.lowering.gpu.validate.poly import Atom, Cond, Poly
from kiln.lowering.gpu.validate.substitution import variables
from kiln.lowering.gpu.validate.values import Access

__all__ = ["covers", "written"]

_MOST = 1 << 24
"""Points that are counted one by one."""


def covers(buffer: Buffer, stores: Sequence[Access], apart: bool) -> tuple[str, str, str]:
    """(status, buffer, detail) of the property that all of the buffer's elements are written.

    apart: whether it is proved that all stores are to elements of the buffer, and no two to one.
    """
    count = buffer.count.known
    if count is None:
        return "unknown", buffer.name, "sizes that are known at run time only"
    if not stores:
        return ("refuted" if count else "proved"), buffer.name, f"none of {count} elements are written" if count else ""
    try:
        total = sum(written(store) for store in stores)
    except (KeyError, ValueError, OverflowError) as error:
        return "unknown", buffer.name, f"what is written is not counted: {error.args[0]}"
    if total < count:
        return "refuted", buffer.name, f"{total} of {count} elements are written at most"
    if not apart or total > count:
        return "unknown", buffer.name, f"{total} writes to {count} elements, maybe some to the same"
    return "proved", buffer.name, ""


def written(store: Access) -> int:
    """How many elements a store writes, over all programs, trips and lanes.

    Raises KeyError where that depends on data or sizes that are not known, ValueError where there are too many.
    """
    free = sorted(variables(store.conditions))
    unknown = [a for a in variables([store.offset, *store.conditions]) if a.kind not in ("program", "trip", "lane")]
    if unknown:
        raise KeyError(f"it depends on {unknown[0].kind} values")
    outer = [a for a in free if a.kind != "lane"]
    for atom in variables([store.offset]):
        if atom.kind in ("program", "trip") and atom not in outer:
            outer.append(atom)
    sizes = [int(a.bounds[1]) + 1 for a in outer]
    if prod(sizes) > _MOST:
        raise ValueError(f"{prod(sizes)} programs and trips")
    rank = len(outer)
    grid = {
        a: np.arange(n, dtype=np.int64).reshape([-1 if i == k else 1 for i in range(rank)])
        for k, (a, n) in enumerate(zip(outer, sizes, strict=True))
    }
    numbers = Numbers(grid)
    total: Array = np.ones(sizes, dtype=np.int64)
    by_lanes: dict[tuple[Atom, ...], list[Cond]] = {}
    for condition in _conjuncts(store.conditions):
        key = tuple(sorted(a for a in variables([condition]) if a.kind == "lane"))
        by_lanes.setdefault(key, []).append(condition)
    for condition in by_lanes.pop((), []):
        total = total * numbers.cond(condition)
    for lanes in store.lanes:
        given = by_lanes.pop((lanes,), [])
        total = total * _count(lanes, given, numbers, sizes)
    if by_lanes:
        raise ValueError("masks across two axes")
    return int(total.sum())


def _count(lanes: Atom, conditions: Sequence[Cond], numbers: Numbers, sizes: Sequence[int]) -> Array:
    """How many lanes of an axis fulfil all conditions, per program and trip."""
    size = lanes.args[1]
    low: Array = np.int64(0)
    high: Array = np.int64(size - 1)
    rest: list[Cond] = []
    for condition in conditions:
        poly = condition.args[0] if condition.kind == "ge" else None
        if poly is None or any(lanes in m and len(m) > 1 for m in poly.terms) or _is_inside(poly, lanes):
            rest.append(condition)
            continue
        c = poly.terms[(lanes,)]
        base = numbers.poly(poly - Poly({(lanes,): c}))
        if c > 0:  # base + c lane >= 0
            low = np.maximum(low, -(base // c))
        else:
            high = np.minimum(high, base // -c)
    if not rest:
        return np.maximum(high - low + 1, 0)
    if prod(sizes) * size > _MOST:
        raise ValueError(f"a mask that is no interval of {size} lanes")
    along = np.arange(size, dtype=np.int64).reshape([-1] + [1] * len(sizes))
    points = Numbers({**{a: v for a, v in numbers.table.items() if a.kind in ("program", "trip")}, lanes: along})
    keep: Array = (along >= low) & (along <= high)
    for condition in rest:
        keep = keep & points.cond(condition)
    return np.broadcast_to(keep, [size, *sizes]).sum(axis=0)


def _is_inside(poly: Poly, lanes: Atom) -> bool:
    """Whether the lane is part of a quotient or the like."""
    return any(a != lanes and lanes in variables([Poly.of(a)]) for a in poly.atoms())


def _conjuncts(conditions: Sequence[Cond]) -> list[Cond]:
    found: list[Cond] = []
    for c in conditions:
        found += _conjuncts(c.args) if c.kind == "and" else [c]
    return found
