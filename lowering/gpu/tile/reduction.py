# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`linalg.generic` reductions, met while something that needs them is evaluated.

Along the row of the tile: in registers where the tile holds whole rows, else a loop over blocks of the row with one
accumulator per element of the tile; both end in `tt.reduce`.  Of equal numbers, each addition of a block to a total
that is much larger is rounded in the same direction, so that the error of a sum grows with the number of blocks: after
`LoopRules.chain` of them the tile is reduced, and the next chain begins at 0.  Any other reduction (a pooling window, a
combiner that is not known to be associative) runs in order for each element of the tile.
"""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import affine, tt
from kiln.dialects.walk import defining_op
from kiln.lowering import paths
from kiln.lowering.gpu.builder import Builder, Index, is_float
from kiln.lowering.gpu.rules import LoopRules, rules_for
from kiln.lowering.gpu.tile.evaluator import Evaluator, Row
from kiln.lowering.tile.access import Indices
from kiln.lowering.tile.body import Reduction, invert, output_map
from kiln.lowering.tile.combiner import Combiner, combiners
from kiln.lowering.tile.scopes import Guard

_TAKEN = paths.group("gpu reduction", "whole rows", "blocks of a row", "chains of blocks", "in order")

UNROLLED = 16
"""Elements of a window up to which its loop is written out."""


def emit_reduction(e: Evaluator, value: ir.Value, indices: Indices, guard: Guard | None) -> ir.Value:
    """Emit what computes `value` at `indices`, with its siblings where they share loops; returns the value."""
    reduction = e.body.reduction(value)
    assert reduction is not None
    if _along_row(e, reduction, indices, guard):
        group = [r for r in e.body.siblings(reduction) if _along_row(e, r, indices, guard)]
        results = _reduce_row(e, group, indices)
    else:
        group = [reduction]
        results = [_reduce_in_order(e, reduction, indices, guard)]
    memo = e.scopes[-1].memo
    for r, values in zip(group, results, strict=True):
        for result, emitted in zip(r.op.results, values, strict=True):
            memo[(result, indices, guard)] = emitted
    return memo[(value, indices, guard)]


def matches(extents: Sequence[ir.AffineExpr], row: Sequence[ir.AffineExpr]) -> bool:
    """Whether a reduction's loops are those of the row, but for loops of one step."""
    return _longer(extents) == _longer(row)


def along(extents: Sequence[ir.AffineExpr], exprs: Sequence[ir.AffineExpr]) -> list[ir.AffineExpr]:
    """Indices of loops of these extents: those of the row, in order, and 0 where there is one step."""
    rest = iter(exprs)
    zero = ir.AffineConstantExpr.get(0)
    return [zero if affine.constant_of(x) == 1 else next(rest) for x in extents]


def _longer(extents: Sequence[ir.AffineExpr]) -> list[ir.AffineExpr]:
    return [x.maybe_downcast() for x in extents if affine.constant_of(x) != 1]


def _along_row(e: Evaluator, reduction: Reduction, indices: Indices, guard: Guard | None) -> bool:
    row = e.row
    if row is None or guard is not None or any(row.dim in affine.dims_in(i) for i in indices):
        return False
    extents = e.body.loop_extents(reduction.op)
    if not matches([extents[d] for d in reduction.dims], row.extents):
        return False
    return all(c.identity is not None for c in combiners(reduction.op))


def _reduce_row(e: Evaluator, group: list[Reduction], indices: Indices) -> list[list[ir.Value]]:
    """The results of reductions along the row, which share its loop."""
    row, b = e.row, e.b
    assert row is not None
    _TAKEN("whole rows" if row.persistent else "blocks of a row")
    if row.persistent:
        return [[_whole(e, row, x, c) for x, c in _elements(e, r, row, indices)] for r in group]
    folds = [(r, k, c) for r in group for k, c in enumerate(combiners(r.op))]
    types = [_accumulator(b, r.op.results[k].type.element_type) for r, k, _ in folds]
    shape = e.shape_along([*indices, ir.AffineDimExpr.get(row.dim)])
    inits = [b.constant(_identity(c), tt.with_shape(shape, t)) for (_, _, c), t in zip(folds, types, strict=True)]

    def step(start: Index, carried: list[ir.Value]) -> list[ir.Value]:
        with e.inside({}):
            e.bind_axis(row.axis, row.dim, start)
            mask = e.axes[row.axis].mask
            found = [pair for r in group for pair in _elements(e, r, row, indices)]
            totals: list[ir.Value] = []
            for total, (x, c) in zip(carried, found, strict=True):
                total, x = b.together(total, x)
                folded = _combine(c.op, total, x)
                totals.append(folded if mask is None else b.select(mask, folded, total))
            return totals

    extent, size = e.index(e.loops.extents[row.dim]), e.axes[row.axis].size
    elements = [r.op.results[k].type.element_type for r, k, _ in folds]
    chain = rules_for(LoopRules).chain * size
    is_short = isinstance(extent, int) and extent <= chain
    if is_short or not any(c.op == "arith.addf" for _, _, c in folds):
        totals = b.for_(0, extent, size, step, inits)
        reduced = [_fold(e, row, x, c) for x, (_, _, c) in zip(totals, folds, strict=True)]
    else:
        _TAKEN("chains of blocks")

        def add_chain(start: Index, carried: list[ir.Value]) -> list[ir.Value]:
            with e.inside({}):
                ends = b.for_(start, b.mini(b.addi(start, chain), extent), size, step, inits)
                parts = [_fold(e, row, x, c) for x, (_, _, c) in zip(ends, folds, strict=True)]
            return [_combine(c.op, total, x) for total, x, (_, _, c) in zip(carried, parts, folds, strict=True)]

        across = [1 if k == row.axis else n for k, n in enumerate(shape)]
        across = across if any(n > 1 for n in across) else []
        zeros = [b.constant(_identity(c), tt.with_shape(across, t)) for (_, _, c), t in zip(folds, types, strict=True)]
        reduced = b.for_(0, extent, chain, add_chain, zeros)
    done = iter(_demote(b, x, element) for x, element in zip(reduced, elements, strict=True))
    return [[next(done) for _ in r.op.results] for r in group]


def _elements(e: Evaluator, r: Reduction, row: Row, indices: Indices) -> list[tuple[ir.Value, Combiner]]:
    """What each result of a reduction combines, at the row's position in the tile, as accumulators' type."""
    point = invert(output_map(r.op), indices)
    extents = e.body.loop_extents(r.op)
    for d, expr in zip(r.dims, along([extents[d] for d in r.dims], row.exprs), strict=True):
        point[d] = expr
    block = r.op.regions[0].blocks[0]
    carried = list(block.arguments)[len(r.op.operands) - len(r.op.results) :]
    yielded = list(list(block.operations)[-1].operands)
    alias: dict[ir.Value, ir.Value] = {}
    for value, acc in zip(yielded, carried, strict=True):
        owner = defining_op(value)
        assert owner is not None
        operands = list(owner.operands)
        alias[value] = operands[1] if operands[0] == acc else operands[0]
    values = e.body_at(r.op, point, None, alias=alias)
    return [(_promote(e.b, x), c) for x, c in zip(values, combiners(r.op), strict=True)]


def _whole(e: Evaluator, row: Row, x: ir.Value, c: Combiner) -> ir.Value:
    """`tt.reduce` of a tile that holds whole rows."""
    b, axis = e.b, e.axes[row.axis]
    element = c.identity.type if c.identity is not None else tt.element_of(x.type)
    if axis.mask is not None:
        x = b.select(axis.mask, x, b.constant(_identity(c), tt.element_of(x.type)))
    return _demote(b, _fold(e, row, x, c), element)


def _fold(e: Evaluator, row: Row, x: ir.Value, c: Combiner) -> ir.Value:
    """The tile reduced along the row's axis, in the type of its elements."""
    b = e.b
    shape = tt.shape_of(x.type) or [1] * len(e.axes)
    shape[row.axis] = e.axes[row.axis].size
    (folded,) = b.reduce([b.broadcast(x, shape)], row.axis, lambda p, q: _combine(c.op, p, q))
    return b.expand_dims(folded, row.axis) if tt.is_block(folded.type) else folded


def _reduce_in_order(e: Evaluator, r: Reduction, indices: Indices, guard: Guard | None) -> list[ir.Value]:
    """Each element of the tile combines its own elements, one after the other."""
    b = e.b
    extents = e.body.loop_extents(r.op)
    over = [extents[d] for d in r.dims]
    known = [affine.constant_of(x) for x in over]
    total = 1
    for n in known:
        total = total * n if n is not None else UNROLLED + 1
    block = r.op.regions[0].blocks[0]
    carried = list(block.arguments)[len(r.op.operands) - len(r.op.results) :]
    shape = e.tile_shape() if guard is not None else e.shape_along(indices)
    if all(n == 1 for n in shape):
        shape = []
    starts = [b.broadcast(s, shape) for s in _starts(e, r)]

    def fold(at: Sequence[ir.AffineExpr], values: Sequence[ir.Value]) -> list[ir.Value]:
        point = invert(output_map(r.op), indices)
        for d, x in zip(r.dims, at, strict=True):
            point[d] = x
        folded = e.body_at(r.op, point, guard, given=dict(zip(carried, values, strict=True)))
        return [b.broadcast(v, shape) for v in folded]

    _TAKEN("in order")
    if total <= UNROLLED:
        values = starts
        for position in range(total):
            values = fold(_constants(position, [n or 1 for n in known]), values)
        return values
    dims = [e.loops.new(x) for x in over]
    count: Index = 1
    for x in over:
        count = b.muli(count, e.index(x))

    def step(i: Index, values: list[ir.Value]) -> list[ir.Value]:
        with e.inside_flat(i, [d.position for d in dims]):
            return fold(dims, values)

    return b.for_(0, count, 1, step, starts)


def _starts(e: Evaluator, r: Reduction) -> list[ir.Value]:
    """What a reduction in order begins with: the combiner's identity, or the fill that its outputs hold."""
    starts: list[ir.Value] = []
    for k, c in enumerate(combiners(r.op)):
        element = r.op.results[k].type.element_type
        if c.identity is not None:
            starts.append(e.b.constant(_identity(c), element))
        else:
            out = r.op.operands[len(r.op.operands) - len(r.op.results) + k]
            rank = len(ir.RankedTensorType(out.type).shape)
            starts.append(e.eval(out, tuple(ir.AffineConstantExpr.get(0) for _ in range(rank))))
    return starts


def _constants(position: int, extents: Sequence[int]) -> list[ir.AffineExpr]:
    found: list[ir.AffineExpr] = []
    for n in reversed(extents):
        found.insert(0, ir.AffineConstantExpr.get(position % n))
        position //= n
    return found


def _identity(c: Combiner) -> float:
    assert c.identity is not None
    return c.identity.value


def _accumulator(b: Builder, element: ir.Type) -> ir.Type:
    """Sums of 16-bit floats are in f32; integers are shuffled between threads as words."""
    if is_float(element):
        return b.f32 if element.width < 32 else element
    return b.i32 if element.width < 32 else element


def _promote(b: Builder, x: ir.Value) -> ir.Value:
    element = tt.element_of(x.type)
    target = _accumulator(b, element)
    if target == element:
        return x
    if is_float(element):
        return b.cast_float(x, target)
    name = "arith.extui" if element == b.i1 else "arith.extsi"
    return ir.Operation.create(name, results=[tt.with_element(x.type, target)], operands=[x]).result


def _demote(b: Builder, x: ir.Value, element: ir.Type) -> ir.Value:
    if tt.element_of(x.type) == element:
        return x
    return b.cast_float(x, element) if is_float(element) else b.cast_int(x, element)


def _combine(op: str, x: ir.Value, y: ir.Value) -> ir.Value:
    return ir.Operation.create(op, results=[x.type], operands=[x, y]).result


__all__ = ["along", "emit_reduction", "matches"]
