# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scans and sorts, as reductions that compare positions: quadratic, but their meaning in full."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects import scalar
from kiln.dialects.builder import Builder, dim, dims, here
from kiln.dialects.kiln.family import name_of


def scan(op: Any, b: Builder) -> Any:
    """`result[i] = combine of x[j] for j <= i`, in order of j."""
    x, at, kind = op.x, int(op.dim.value), op.kind.value
    element = x.type.element_type
    compute = scalar.compute_type(element)
    sizes = b.sizes(x)
    rank = len(sizes)
    point = [dim(rank) if k == at else dim(k) for k in range(rank)]
    extents = (b.empty(element, [sizes[at]]), [dim(rank)])

    def in_reach() -> ir.Value:
        return scalar.compare("le", here(rank), here(at))

    if kind == "logsumexp":
        return _log_sum(op, b, point, extents, in_reach)
    if op.indices is not None or kind in ("max", "min"):
        results = _extremum(op, b, point, extents, in_reach)
        return results if op.indices is not None else results[:1]
    combine, init = {"sum": (scalar.add, 0), "prod": (scalar.mul, 1)}[kind]

    def body(v: ir.Value, _: ir.Value, total: ir.Value) -> ir.Value:
        # The operand is chosen, not the result: so kernels know how to combine, and sum in lanes and trees.
        return combine(total, scalar.select(in_reach(), scalar.cast(v, compute), scalar.constant(compute, init)))

    out = b.reduce([(x, point), extents], dims(rank), sizes, "p" * rank + "r", compute, init, body)
    return b.cast(out, element)


def recurrence(op: Any, b: Builder) -> list[ir.Value]:
    """`result[i] = combine(result[i - 1], x[i])`, in order."""
    xs, at = list(op.operands), int(ir.IntegerAttr(op.attributes["dim"]).value)
    elements = [x.type.element_type for x in xs]
    carried = [a.type for a in op.combine.arguments][: len(xs)]
    sizes = b.sizes(xs[0])
    rank = len(sizes)
    point = [dim(rank) if k == at else dim(k) for k in range(rank)]
    inputs = [b.cast(x, type_) for x, type_ in zip(xs, carried, strict=True)]
    outs = [b.fill(type_, sizes, 0) for type_ in carried]

    def body(*values: ir.Value) -> list[ir.Value]:
        new, totals = values[: len(xs)], values[len(xs) + 1 :]
        is_first = scalar.compare("eq", here(rank), scalar.constant(ir.IndexType.get(), 0))
        in_reach = scalar.compare("le", here(rank), here(at))
        return [
            scalar.select(is_first, x, scalar.select(in_reach, combined, total))
            for x, combined, total in zip(new, combine(op, [*totals, *new]), totals, strict=True)
        ]

    maps = [*([point] * len(xs)), [dim(rank)]]
    tensors = [*inputs, b.empty(elements[0], [sizes[at]])]
    found = b.generic(tensors, maps, outs, [dims(rank)] * len(xs), "p" * rank + "r", body)
    return [b.cast(value, element) for value, element in zip(found, elements, strict=True)]


def combine(op: Any, arguments: Sequence[ir.Value]) -> list[ir.Value]:
    """A copy of what the region of a `kiln.recurrence` computes, at the insertion point."""
    env: dict[ir.Value, ir.Value] = dict(zip(op.combine.arguments, arguments, strict=True))
    for inner in op.combine.operations:
        if name_of(inner) == "kiln.yield":
            return [env[v] if v in env else v for v in inner.operands]
        clone = inner.clone()
        for i, v in enumerate(list(inner.operands)):
            clone.operation.operands[i] = env[v] if v in env else v
        env.update(zip(inner.results, clone.operation.results, strict=True))
    raise ValueError("a region without kiln.yield")


def _extremum(op: Any, b: Builder, point: list[Any], extents: Any, in_reach: Any) -> list[ir.Value]:
    """Running maximum or minimum and its position; of equals the last, and NaN stays."""
    x, kind = op.x, op.kind.value
    element = x.type.element_type
    index_type = ir.IntegerType.get_signless(64)
    sizes = b.sizes(x)
    rank = len(sizes)
    init = scalar.lowest(element) if kind == "max" else scalar.highest(element)
    outs = [b.fill(element, sizes, init), b.fill(index_type, sizes, 0)]
    order = "ge" if kind == "max" else "le"

    def body(v: ir.Value, _: ir.Value, best: ir.Value, at: ir.Value) -> list[ir.Value]:
        better = scalar.either(scalar.compare(order, v, best), scalar.is_nan(v))
        take = scalar.both(in_reach(), better)
        position = scalar.cast(here(rank), index_type)
        return [scalar.select(take, v, best), scalar.select(take, position, at)]

    out_maps = [dims(rank), dims(rank)]
    return b.generic([x, extents[0]], [point, extents[1]], outs, out_maps, "p" * rank + "r", body)


def _log_sum(op: Any, b: Builder, point: list[Any], extents: Any, in_reach: Any) -> ir.Value:
    """Running maximum, then the logarithm of the sum of exponentials below it."""
    x = op.x
    element = x.type.element_type
    compute = scalar.compute_type(element)
    sizes = b.sizes(x)
    rank = len(sizes)
    iterators = "p" * rank + "r"
    low = scalar.lowest(compute)
    wide = b.cast(x, compute)

    def largest(v: ir.Value, _: ir.Value, m: ir.Value) -> ir.Value:
        return scalar.maximum(m, scalar.select(in_reach(), v, scalar.constant(compute, low)))

    top = b.reduce([(wide, point), extents], dims(rank), sizes, iterators, compute, low, largest)

    def safe(m: ir.Value) -> ir.Value:
        # inf - inf and -inf + inf are NaN: leave infinite maxima out of the difference.
        zero = scalar.constant(compute, 0)
        infinite = scalar.either(
            scalar.compare("eq", m, scalar.constant(compute, low)),
            scalar.compare("eq", m, scalar.constant(compute, scalar.highest(compute))),
        )
        return scalar.select(infinite, zero, m)

    def body(v: ir.Value, _: ir.Value, m: ir.Value, total: ir.Value) -> ir.Value:
        term = scalar.exp(scalar.sub(v, safe(m)))
        return scalar.add(total, scalar.select(in_reach(), term, scalar.constant(compute, 0)))

    inputs = [(wide, point), extents, (top, dims(rank))]
    total = b.reduce(inputs, dims(rank), sizes, iterators, compute, 0, body)
    return b.map(
        [(total, dims(rank)), (top, dims(rank))],
        sizes,
        element,
        lambda t, m: scalar.cast(scalar.add(scalar.log(t), safe(m)), element),
    )


def sort(op: Any, b: Builder) -> list[ir.Value]:
    """Each element's rank, then for each place the element of that rank."""
    return _sorted(op, b, op.descending.value, b.sizes(op.x)[int(op.dim.value)])


def topk(op: Any, b: Builder) -> list[ir.Value]:
    """The first `k` places of a stable sort."""
    return _sorted(op, b, op.largest.value, ir.AffineExpr.get_constant(op.k.value))


def _sorted(op: Any, b: Builder, descending: bool, places: ir.AffineExpr) -> list[ir.Value]:
    x, at = op.x, op.dim.value
    element = x.type.element_type
    index_type = ir.IntegerType.get_signless(64)
    sizes = b.sizes(x)
    rank = len(sizes)
    iterators = "p" * rank + "r"
    along = [dim(rank) if k == at else dim(k) for k in range(rank)]
    one, zero = 1, 0

    def count(own: ir.Value, other: ir.Value, total: ir.Value) -> ir.Value:
        before = _before(other, own, descending)
        tie = scalar.both(_equal(other, own), scalar.compare("lt", here(rank), here(at)))
        step = scalar.select(
            scalar.either(before, tie), scalar.constant(index_type, one), scalar.constant(index_type, zero)
        )
        return scalar.add(total, step)

    inputs = [(x, dims(rank)), (x, along)]
    ranks = b.reduce(inputs, dims(rank), sizes, iterators, index_type, 0, count)

    out_sizes = [places if k == at else n for k, n in enumerate(sizes)]
    outs = [b.fill(element, out_sizes, 0), b.fill(index_type, out_sizes, 0)]

    def place(v: ir.Value, r: ir.Value, value: ir.Value, position: ir.Value) -> list[ir.Value]:
        mine = scalar.compare("eq", r, scalar.cast(here(at), index_type))
        own = scalar.cast(here(rank), index_type)
        return [scalar.select(mine, v, value), scalar.select(mine, own, position)]

    return b.generic([x, ranks], [along, along], outs, [dims(rank), dims(rank)], iterators, place)


def _before(a: ir.Value, b: ir.Value, descending: bool) -> ir.Value:
    """Whether `a` comes before `b`; NaN is the largest value."""
    if descending:
        a, b = b, a
    less = scalar.compare("lt", a, b)
    if not scalar.is_float(a.type):
        return less
    number = scalar.compare("eq", a, a)
    return scalar.either(less, scalar.both(number, scalar.is_nan(b)))


def _equal(a: ir.Value, b: ir.Value) -> ir.Value:
    same = scalar.compare("eq", a, b)
    return scalar.either(same, scalar.both(scalar.is_nan(a), scalar.is_nan(b))) if scalar.is_float(a.type) else same
