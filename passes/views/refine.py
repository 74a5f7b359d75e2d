# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Rows of reductions as several loops, where a reshape behind them takes the rows apart.

A group norm written out reduces over [n, groups, elements of a group], and its weights come behind the reshape to
[n, channels, h, w]: an element's channel is its place in the group divided by h * w. With the loops [n, groups,
channels of a group, h, w] it is a loop.
"""

import math
from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import indexing_maps, reduction_dims

__all__ = ["common_shape", "reshaped", "split_merged", "split_rows"]


def common_shape(shape: Sequence[int], other: Sequence[int]) -> list[int] | None:
    """The coarsest shape that both are reshapes of by merging neighbours; None if there is none."""
    bounds = sorted({math.prod(s[i:]) for s in (shape, other) for i in range(len(s) + 1)})
    if math.prod(shape) != math.prod(other) or any(b % a for a, b in zip(bounds, bounds[1:], strict=False)):
        return None
    return [b // a for a, b in zip(bounds, bounds[1:], strict=False)][::-1]


def reshaped(sizes: Sequence[int], shape: Sequence[int]) -> list[ir.AffineExpr]:
    """The index in `shape`, over dims of `sizes`, of the element at the same place in row-major order."""
    position: ir.AffineExpr = _constant(0)
    for d, size in enumerate(sizes):
        position = position * size + ir.AffineDimExpr.get(d)
    found: list[ir.AffineExpr] = []
    for d, size in enumerate(shape):
        step = ir.AffineExpr.get_floor_div(position, _constant(math.prod(shape[d + 1 :])))
        found.append(affine.simplify(ir.AffineExpr.get_mod(step, _constant(size)), sizes))
    return found


def split_rows(view: ir.Operation) -> ir.Operation | None:
    """A view like `view`, of a source whose last loop is several, with the reductions along it; None if impossible.

    view: a reshape of what a pointwise op of static sizes gave.
    """
    source = defining_op(view.operands[0])
    types = ir.RankedTensorType(view.operands[0].type), ir.RankedTensorType(view.results[0].type)
    if source is None or not all(t.has_static_shape and t.rank for t in types):
        return None
    shape, target = (list(t.shape) for t in types)
    kept, rows = [n for n in shape[:-1] if n != 1], shape[-1]
    found = None if 0 in shape or rows == 1 else common_shape([*kept, rows], [n for n in target if n != 1])
    if found is None or found[: len(kept)] != kept or len(found) == len(kept) + 1:
        return None
    factors = found[len(kept) :]
    common = [*shape[:-1], *factors]
    splitter = _Splitter(rows, factors)
    expanded = splitter.split_result(view.operands[0], len(shape) - 1)
    if expanded is None or not splitter.split_reductions(source):
        return None
    with ir.InsertionPoint(view), view.location:
        map_ = ir.AffineMap.get(len(target), 0, reshaped(target, common))
        result = kiln.view(expanded, map_, [_constant(n) for n in target])
    view.results[0].replace_all_uses_with(result)
    return defining_op(result)


def split_merged(view: ir.Operation) -> ir.Operation | None:
    """A view like `view`, of a source whose one loop over several dims of the result is these; None if impossible.

    view: of a source of static sizes, `[1, n * c, h, w]` to `[n, c, h, w]`. The loops of all that the source is
    computed from are taken apart, those of reductions included.
    """
    map_ = ir.AffineMapAttr(view.attributes["map"]).value
    types = ir.RankedTensorType(view.operands[0].type), ir.RankedTensorType(view.results[0].type)
    if map_.n_symbols or not all(t.has_static_shape for t in types):
        return None
    sizes = list(types[1].shape)
    found = [(k, dims) for k, e in enumerate(map_.results) if len(dims := _merged(e, sizes)) > 1]
    if len(found) != 1 or math.prod(sizes[d] for d in found[0][1]) != types[0].shape[found[0][0]]:
        return None
    ((dim, dims),) = found
    splitter = _Splitter(types[0].shape[dim], [sizes[d] for d in dims])
    expanded = splitter.split_result(view.operands[0], dim)
    if expanded is None:
        return None
    splitter.replace_reductions()
    index = list(map_.results)
    index[dim : dim + 1] = [ir.AffineDimExpr.get(d) for d in dims]
    with ir.InsertionPoint(view), view.location:
        result = kiln.view(expanded, ir.AffineMap.get(len(sizes), 0, index), [_constant(n) for n in sizes])
    view.results[0].replace_all_uses_with(result)
    return defining_op(result)


def _merged(e: ir.AffineExpr, sizes: Sequence[int]) -> list[int]:
    """The dims, the outermost first, that an index walks in row-major order."""
    linear = affine.linear_coefficients(e)
    if linear is None or affine.constant_of(linear[0]) != 0:
        return []
    steps = {d: affine.constant_of(step) for d, step in linear[1].items() if sizes[d] != 1}
    dims = sorted(steps, key=lambda d: -(steps[d] or 0))
    fits = all(steps[d] == math.prod(sizes[i] for i in dims[k + 1 :]) for k, d in enumerate(dims))
    return dims if fits else []


class _Splitter:
    """Makes ops with one loop of `extent` as loops of `factors`, which are erased again by whoever has no use for them.

    The ops that they stand for are left behind; those without uses are the caller's to erase.
    """

    def __init__(self, extent: int, factors: Sequence[int]) -> None:
        self.extent, self.factors = extent, list(factors)
        self._made: dict[tuple[ir.Value, int], ir.Value] = {}

    def split_result(self, value: ir.Value, dim: int) -> ir.Value | None:
        """`value` with dim `dim` as several."""
        if (value, dim) in self._made:
            return self._made[value, dim]
        op = defining_op(value)
        if op is not None and op.name == "kiln.view":
            found = self._split_below(op, dim)
            if found is not None:
                self._made[value, dim] = found
                return found
        if op is None or op.name != "linalg.generic" or len(op.results) != 1 or len(op.operands) < 2:
            return self._view(value, dim)
        loop = indexing_maps(op.opview)[-1].results[dim]
        if not isinstance(loop, ir.AffineDimExpr):
            return None
        found = self._split(op, loop.position)
        if found is not None:
            self._made[value, dim] = found
        return found

    def _split_below(self, view: ir.Operation, dim: int) -> ir.Value | None:
        """A view that has a dim of what loops compute, as numbers of channels along an image: of these with more loops.
        None for other views.
        """
        below = defining_op(view.operands[0])
        map_ = ir.AffineMapAttr(view.attributes["map"]).value
        walking = [k for k, e in enumerate(map_.results) if dim in affine.dims_in(e)]
        type_ = ir.RankedTensorType(view.results[0].type)
        if below is None or below.name != "linalg.generic" or len(walking) != 1 or not type_.has_static_shape:
            return None
        (at,) = walking
        source = ir.RankedTensorType(view.operands[0].type)
        if map_.results[at] != ir.AffineDimExpr.get(dim) or map_.n_symbols or source.shape[at] != self.extent:
            return None
        inner = self.split_result(view.operands[0], at)
        if inner is None:
            return None
        more = len(self.factors) - 1
        moved = {d: ir.AffineDimExpr.get(d if d < dim else d + more) for d in range(map_.n_dims) if d != dim}
        index = [affine.substitute(e, moved) for k, e in enumerate(map_.results) if k != at]
        index[at:at] = [ir.AffineDimExpr.get(dim + i) for i in range(more + 1)]
        sizes = self._sizes(view.results[0], dim)
        with ir.InsertionPoint.after(view), view.location:
            return kiln.view(inner, ir.AffineMap.get(len(sizes), 0, index), [_constant(n) for n in sizes])

    def replace_reductions(self) -> None:
        """Has all that reads a reduction read the one with more loops, so that none is computed twice."""
        for (value, dim), made in list(self._made.items()):
            op = defining_op(value)
            if op is not None and op.name == "linalg.generic" and reduction_dims(op.opview):
                shape = list(ir.RankedTensorType(value.type).shape)
                index = reshaped(shape, self._sizes(value, dim))
                with ir.InsertionPoint.after(made.owner), value.location:
                    map_ = ir.AffineMap.get(len(shape), 0, index)
                    value.replace_all_uses_with(kiln.view(made, map_, [_constant(n) for n in shape]))

    def split_reductions(self, op: ir.Operation) -> bool:
        """Replaces the reductions below `op` along one loop of the extent; False if one of them can't be."""
        reductions: list[ir.Operation] = []
        work, seen = [op], set[ir.Value]([op.results[0]])
        while work:
            for value in work.pop().operands:
                below = defining_op(value)
                if below is None or below.name not in ("linalg.generic", "kiln.view") or value in seen:
                    continue
                seen.add(value)
                work.append(below)
                if below.name == "linalg.generic" and len(reduction_dims(below.opview)) == 1 and self._is_along(below):
                    reductions.append(below)
        made = [(old, self._split(old, reduction_dims(old.opview)[0])) for old in reductions]
        if not made or any(new is None for _, new in made):
            return False
        for old, new in made:
            assert new is not None
            old.results[0].replace_all_uses_with(new)
        return True

    def _is_along(self, op: ir.Operation) -> bool:
        (loop,) = reduction_dims(op.opview)
        for value, map_ in zip(op.operands, indexing_maps(op.opview), strict=True):
            for k, e in enumerate(map_.results):
                if e == ir.AffineDimExpr.get(loop):
                    return ir.RankedTensorType(value.type).shape[k] == self.extent
        return False

    def _split(self, op: ir.Operation, loop: int) -> ir.Value | None:
        """The result of `op` with one of its loops as several; None if it is not read along whole dims."""
        if any(o.operation.name in ("linalg.index", "tensor.extract") for o in op.regions[0].blocks[0].operations):
            return None
        more = len(self.factors) - 1
        maps = indexing_maps(op.opview)
        rank = maps[-1].n_dims
        moved = {d: ir.AffineDimExpr.get(d if d < loop else d + more) for d in range(rank) if d != loop}
        loops = [ir.AffineDimExpr.get(loop + i) for i in range(more + 1)]
        operands: list[ir.Value] = []
        new_maps: list[ir.AffineMap] = []
        for value, map_ in zip(op.operands, maps, strict=True):
            results: list[ir.AffineExpr] = []
            for k, e in enumerate(map_.results):
                if e == ir.AffineDimExpr.get(loop):
                    split = None
                    if isinstance(value.type, ir.RankedTensorType) and len(operands) < len(maps) - 1:
                        split = self.split_result(value, k)
                    elif len(operands) == len(maps) - 1:
                        split = self._destination(op, value, k)
                    if split is None:
                        return None
                    value = split
                    results += loops
                elif loop in affine.dims_in(e):
                    return None
                else:
                    results.append(affine.substitute(e, moved))
            operands.append(value)
            new_maps.append(ir.AffineMap.get(rank + more, 0, results))
        kinds = list(ir.ArrayAttr(op.attributes["iterator_types"]))
        with ir.InsertionPoint(op), op.location:
            new = op.clone().operation
        for i, value in enumerate(operands):
            new.operands[i] = value
        new.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in new_maps])
        new.attributes["iterator_types"] = ir.ArrayAttr.get(
            [*kinds[:loop], *[kinds[loop]] * (more + 1), *kinds[loop + 1 :]]
        )
        new.results[0].set_type(operands[-1].type)
        return new.results[0]

    def _sizes(self, value: ir.Value, dim: int) -> list[int]:
        shape = list(ir.RankedTensorType(value.type).shape)
        return [*shape[:dim], *self.factors, *shape[dim + 1 :]]

    def _view(self, value: ir.Value, dim: int) -> ir.Value | None:
        type_ = ir.RankedTensorType(value.type)
        if not type_.has_static_shape or type_.shape[dim] != self.extent:
            return None
        sizes = self._sizes(value, dim)
        map_ = ir.AffineMap.get(len(sizes), 0, reshaped(sizes, list(type_.shape)))
        op = defining_op(value)
        if op is None:
            point = ir.InsertionPoint.at_block_begin(ir.BlockArgument(value).owner)
        else:
            point = ir.InsertionPoint.after(op)
        with point, value.location:
            return kiln.view(value, map_, [_constant(n) for n in sizes])

    def _destination(self, op: ir.Operation, value: ir.Value, dim: int) -> ir.Value | None:
        """An empty tensor for the result; a reduction's start is read along the dim, as any operand."""
        owner = defining_op(value)
        if owner is None or owner.name != "kiln.empty":
            return self.split_result(value, dim)
        with ir.InsertionPoint(op), op.location:
            element = ir.RankedTensorType(value.type).element_type
            return kiln.empty(element, [_constant(n) for n in self._sizes(value, dim)])


def _constant(number: int) -> ir.AffineExpr:
    return ir.AffineConstantExpr.get(number)
