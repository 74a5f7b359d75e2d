# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Means and variances of groups of channels in two steps (`split-reductions`), mostly of images with channels last.

A group is a few of the channels of each pixel: a loop over a group alone reads them in vectors of as few elements, and
the image once for the mean, once for the variance. In parts of a few rows, each channel has its sum and its squared
distances from its own mean, of all channels side by side and while the part is in the cache. With ``m`` the mean of a
group, and of a part ``s`` its mean, ``q`` its squared distances and ``n`` its elements, the group's squared distances
are the sum of ``q + n * (s - m) ** 2`` over its parts (Chan, Golub, LeVeque, 1979): no term is less than 0, so
nothing cancels. On a CPU that is done for each channel first, whose numbers are vectors, and then for the groups of
these; a program of a GPU has all parts of a group. There, groups of planes are split as well, where they are too few or
would be read from memory twice.
"""

from collections.abc import Callable, Sequence

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.kiln import name_of
from kiln.dialects.rounding import EXACT
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import indexing_maps, reduction_dims
from kiln.passes.group_sums import GroupSum, Statistics
from kiln.passes.loops import generic
from kiln.passes.partial_reductions import clone_with, projection

__all__ = ["read_wide", "split_distances", "split_group_sum"]

_PARALLEL, _REDUCTION = "parallel", "reduction"
_Add = Callable[[Sequence[ir.Value], ir.Value], ir.Value]
"""Adds elements of inputs to what there is."""


def split_group_sum(op: ir.OpView, of: GroupSum) -> Statistics:
    """Sums of parts, of channels, and of groups, at the insertion point."""
    partial = _of_parts(op, of, [], lambda x, total, _: _float("addf", total, x))
    if not of.by_channel:
        group = _of_all_parts(op, of, [(partial, True)], lambda values, total: _float("addf", total, values[0]))
        return Statistics(of, group, _over(partial, of.elements), None, {})
    channels = _of_channels(op, of, [(partial, True)], lambda values, total: _float("addf", total, values[0]))
    group, wide = (
        _of_groups(op, of, [(channels, True)], is_wide, lambda values, total: _float("addf", total, values[0]))
        for is_wide in (False, True)
    )
    return Statistics(of, group, _over(partial, of.elements), _over(channels, of.pixels), {group: wide})


def split_distances(op: ir.OpView, found: Statistics, mean: ir.Value) -> ir.Value:
    """Squared distances of parts and of channels from their own means, and those of groups from `mean`."""
    of = found.of

    def add_square(x: ir.Value, total: ir.Value, own: Sequence[ir.Value]) -> ir.Value:
        d = _float("subf", x, own[0], exact=True)
        return _float("addf", total, _float("mulf", d, d))

    def add_of(elements: int) -> _Add:
        def add(values: Sequence[ir.Value], total: ir.Value) -> ir.Value:
            squares, own, all_ = values
            d = _float("subf", own, all_, exact=True)
            apart = _float("mulf", _float("mulf", d, d), _number(float(elements), d.type))
            return _float("addf", total, _float("addf", squares, apart))

        return add

    partial = _of_parts(op, of, [found.part_means], add_square)
    if found.means is None:
        inputs = [(partial, True), (found.part_means, True), (mean, False)]
        return _of_all_parts(op, of, inputs, add_of(of.elements))
    inputs = [(partial, True), (found.part_means, True), (found.means, False)]
    channels = _of_channels(op, of, inputs, add_of(of.elements))
    wide_mean = _widened(mean, found)
    group, wide = (
        _of_groups(op, of, [(channels, True), (found.means, True), (m, False)], m is wide_mean, add_of(of.pixels))
        for m in (mean, wide_mean)
    )
    found.wide[group] = wide
    return group


def read_wide(found: Statistics) -> None:
    """Have what reads a number of a group at each pixel read that of the channel: such numbers lie side by side as a
    pixel's channels do, and what follows walks all of these in one loop.
    """
    rank = len(found.of.extents)
    group = projection(rank, (0, 1))
    for value in _computed_from([*found.wide]):
        for use in list(value.uses):
            reader, number = use.owner.operation.opview, use.operand_number
            if name_of(reader) != "linalg.generic" or reduction_dims(reader) or indexing_maps(reader)[number] != group:
                continue
            reader.operation.operands[number] = _widened(value, found)
            maps = indexing_maps(reader)
            maps[number] = projection(rank, (0, 1, 2))
            reader.operation.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])


def _computed_from(values: list[ir.Value]) -> list[ir.Value]:
    """These numbers of groups, and others that pointwise ops compute from them alone."""
    found = list(values)
    for value in found:
        for use in value.uses:
            op = use.owner.operation
            if name_of(op) == "linalg.generic" and set(indexing_maps(op.opview)) == {projection(2, (0, 1))}:
                found += [r for r in op.results if r not in found and all(v in found for v in list(op.operands)[:-1])]
    return found


def _widened(value: ir.Value, found: Statistics) -> ir.Value:
    """For each channel the number of its group, computed by the same ops."""
    if value not in found.wide:
        made = defining_op(value)
        assert made is not None, "an op computes it from sums"
        inputs = [_widened(v, found) for v in list(made.operands)[:-1]]
        with made.location, ir.InsertionPoint.after(made):
            out = kiln.empty(_element(made.opview), found.of.extents[:3])
            op = generic(inputs, out, [ir.AffineMap.get_identity(3)] * (len(inputs) + 1), [_PARALLEL] * 3)
            block, source = _block(op), made.regions[0].blocks[0]
            env: dict[ir.Value, ir.Value] = dict(zip(source.arguments, block.arguments, strict=True))
            with ir.InsertionPoint(block):
                for inner in source.operations:
                    clone_with(inner.operation, env)
        found.wide[value] = op.results[0]
    return found.wide[value]


def _of_parts(
    op: ir.OpView,
    of: GroupSum,
    others: Sequence[ir.Value],
    add: Callable[[ir.Value, ir.Value, Sequence[ir.Value]], ir.Value],
) -> ir.Value:
    """A reduction of each channel of each part. add(element, what there is, those of `others`): with the element.

    Loops: `[N, parts, G, C, rows, *spatial]`.
    """
    rank = len(of.extents) + 1
    n, part, g, c, row, *columns = (ir.AffineDimExpr.get(d) for d in range(rank))
    image = ir.AffineMap.get(rank, 0, [n, g, c, part * of.rows + row, *columns])
    own = projection(rank, range(4))
    # The extent of a part is not the size of any operand: a tensor without contents carries it.
    carrier = kiln.empty(_element(op), [of.rows])
    kinds = [_PARALLEL] * 4 + [_REDUCTION] * (rank - 4)
    maps = [image, *(own for _ in others), projection(rank, (4,)), own]
    made = generic([of.image, *others, carrier], _zeros(op, of.parts), maps, kinds)
    block = _block(made)
    with ir.InsertionPoint(block):
        x, *values, _, total = block.arguments
        ir.Operation.create("linalg.yield", operands=[add(x, total, values)])
    return made.results[0]


def _of_channels(op: ir.OpView, of: GroupSum, inputs: Sequence[tuple[ir.Value, bool]], add: _Add) -> ir.Value:
    """A reduction of the parts of each channel. inputs: and whether they have an element for each part."""
    n, part, g, c = range(4)
    maps = [projection(4, (n, part, g, c) if is_partial else (n, g, c)) for _, is_partial in (*inputs, (None, False))]
    kinds = [_PARALLEL, _REDUCTION, _PARALLEL, _PARALLEL]
    return _reduced([value for value, _ in inputs], _zeros(op, of.extents[:3]), maps, kinds, add)


def _of_all_parts(op: ir.OpView, of: GroupSum, inputs: Sequence[tuple[ir.Value, bool]], add: _Add) -> ir.Value:
    """A reduction of all parts of all channels of each group. inputs: and whether they have an element for each part,
    or are as the result.
    """
    n, g, part, c = range(4)
    maps = [projection(4, (n, part, g, c) if is_partial else (n, g)) for _, is_partial in (*inputs, (None, False))]
    out = op.operands[len(op.operands) - 1]
    return _reduced([value for value, _ in inputs], out, maps, [_PARALLEL, _PARALLEL, _REDUCTION, _REDUCTION], add)


def _of_groups(
    op: ir.OpView, of: GroupSum, inputs: Sequence[tuple[ir.Value, bool]], is_wide: bool, add: _Add
) -> ir.Value:
    """A reduction of the channels of each group, the same for each of these if `is_wide`. inputs: and whether they have
    an element for each channel that is reduced, or are as the result.
    """
    n, g, *own, c = range(4 if is_wide else 3)
    maps = [projection(c + 1, (n, g, c) if is_read else (n, g, *own)) for _, is_read in (*inputs, (None, False))]
    out = _zeros(op, of.extents[:c]) if is_wide else op.operands[len(op.operands) - 1]
    return _reduced([value for value, _ in inputs], out, maps, [_PARALLEL] * c + [_REDUCTION], add)


def _reduced(
    inputs: Sequence[ir.Value], out: ir.Value, maps: Sequence[ir.AffineMap], kinds: Sequence[str], add: _Add
) -> ir.Value:
    made = generic(inputs, out, maps, kinds)
    block = _block(made)
    with ir.InsertionPoint(block):
        *values, total = block.arguments
        ir.Operation.create("linalg.yield", operands=[add(values, total)])
    return made.results[0]


def _over(value: ir.Value, number: int) -> ir.Value:
    """Each element of a tensor over a number."""
    type_ = ir.RankedTensorType(value.type)
    every = ir.AffineMap.get_identity(type_.rank)
    made = generic([value], kiln.empty(type_.element_type, type_.shape), [every, every], [_PARALLEL] * type_.rank)
    block = _block(made)
    with ir.InsertionPoint(block):
        quotient = _float("divf", block.arguments[0], _number(float(number), type_.element_type))
        ir.Operation.create("linalg.yield", operands=[quotient])
    return made.results[0]


def _zeros(op: ir.OpView, sizes: Sequence[int]) -> ir.Value:
    element = _element(op)
    zero = _number(0.0, element)
    out = kiln.empty(element, list(sizes))
    made = generic([], out, [ir.AffineMap.get_identity(len(sizes))], [_PARALLEL] * len(sizes))
    with ir.InsertionPoint(_block(made)):
        ir.Operation.create("linalg.yield", operands=[zero])
    return made.results[0]


def _block(op: ir.Operation) -> ir.Block:
    """The body of a nest that has none yet."""
    elements = [ir.RankedTensorType(v.type).element_type for v in op.operands]
    return op.regions[0].blocks.append(*elements, arg_locs=[op.location] * len(elements))


def _element(op: ir.OpView) -> ir.Type:
    return ir.RankedTensorType(op.results[0].type).element_type


def _number(value: float, type_: ir.Type) -> ir.Value:
    attributes = {"value": ir.FloatAttr.get(type_, value)}
    return ir.Operation.create("arith.constant", results=[type_], attributes=attributes).result


def _float(name: str, x: ir.Value, y: ir.Value, *, exact: bool = False) -> ir.Value:
    attributes = {EXACT: ir.UnitAttr.get()} if exact else {}
    return ir.Operation.create(f"arith.{name}", results=[x.type], operands=[x, y], attributes=attributes).result
