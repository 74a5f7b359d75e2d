# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Splits long reductions with few results, so that threads have something to share."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import affine, kiln
from kiln.dialects.shapes import SymbolicShapes
from kiln.lowering import paths
from kiln.lowering.host.channels_last import is_made_channels_last
from kiln.lowering.tile.body import indexing_maps, output_map, reduction_dims
from kiln.lowering.tile.combiner import Combiner, combiners
from kiln.passes.core import Pass, register_pass
from kiln.passes.loops import generic
from kiln.passes.rewrites import may_rewrite

_COLUMN_PART = 64
"""Elements that a part of a column has at least."""
_FEWEST = 8
"""Parts of a few results' long sums: fewer are not worth the second reduction. Not measured."""


_TAKEN = paths.group("gpu split-reductions", "columns", "few results")


@register_pass
@dataclass
class SplitReductions(Pass):
    """Reduce in two steps where one step would be the work of one thread.

    A `linalg.generic` reduction whose results number at most `max_results` while it reads at least `min_elements` is
    split along a reduction dim of static extent: `parts` partial results, then the reduction of these by the
    combiner alone. Sums of floats are reassociated, as every parallel sum is. Reductions by an unknown combiner, or
    whose extents have no divisor near `parts`, stay.

    Before::

        func.func @main(%x: tensor<32xf32>) -> tensor<f32> {
          %zero = arith.constant 0.0 : f32
          %e = "kiln.empty"() {shape = affine_map<() -> ()>} : () -> tensor<f32>
          %i = linalg.generic {indexing_maps = [affine_map<() -> ()>], iterator_types = []} outs(%e : tensor<f32>) {
          ^bb0(%o: f32):
            linalg.yield %zero : f32
          } -> tensor<f32>
          %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>],
              iterator_types = ["reduction"]} ins(%x : tensor<32xf32>) outs(%i : tensor<f32>) {
          ^bb0(%a: f32, %o: f32):
            %0 = arith.addf %o, %a : f32
            linalg.yield %0 : f32
          } -> tensor<f32>
          return %r : tensor<f32>
        }

    After ``split-reductions{parts=8 min-elements=16}``::

        #map = affine_map<() -> ()>
        #map1 = affine_map<() -> (4)>
        #map2 = affine_map<() -> (8)>
        #map3 = affine_map<(d0) -> (d0)>
        #map4 = affine_map<(d0, d1) -> (d1 * 4 + d0)>
        #map5 = affine_map<(d0, d1) -> (d0)>
        #map6 = affine_map<(d0, d1) -> (d1)>
        #map7 = affine_map<(d0) -> ()>
        func.func @main(%arg0: tensor<32xf32>) -> tensor<f32> {
          %cst = arith.constant 0.000000e+00 : f32
          %0 = "kiln.empty"() {shape = #map} : () -> tensor<f32>
          %1 = linalg.generic {indexing_maps = [#map], iterator_types = []} outs(%0 : tensor<f32>) {
          ^bb0(%out: f32):
            linalg.yield %cst : f32
          } -> tensor<f32>
          %2 = "kiln.empty"() {shape = #map1} : () -> tensor<4xf32>
          %3 = "kiln.empty"() {shape = #map2} : () -> tensor<8xf32>
          %cst_0 = arith.constant 0.000000e+00 : f32
          %4 = linalg.generic {indexing_maps = [#map3], iterator_types = ["parallel"]} outs(%3 : tensor<8xf32>) {
          ^bb0(%out: f32):
            linalg.yield %cst_0 : f32
          } -> tensor<8xf32>
          %5 = linalg.generic {indexing_maps = [#map4, #map5, #map6], iterator_types = ["reduction", "parallel"]}
              ins(%arg0, %2 : tensor<32xf32>, tensor<4xf32>) outs(%4 : tensor<8xf32>) {
          ^bb0(%in: f32, %in_1: f32, %out: f32):
            %7 = arith.addf %out, %in : f32
            linalg.yield %7 : f32
          } -> tensor<8xf32>
          %6 = linalg.generic {indexing_maps = [#map3, #map7], iterator_types = ["reduction"]} ins(%5 : tensor<8xf32>)
              outs(%1 : tensor<f32>) {
          ^bb0(%in: f32, %out: f32):
            %7 = arith.addf %out, %in : f32
            linalg.yield %7 : f32
          } -> tensor<f32>
          return %6 : tensor<f32>
        }
    """

    name = "split-reductions"

    parts: int = 64
    max_results: int = 8
    min_elements: int = 1 << 16
    columns: int = 0
    """Partial results that reductions get which keep their operand's innermost dim, the last or the channels of an
    image: neighbours are walked together, so that many results make few programs of a GPU. 0 splits none of more than
    `max_results`."""

    @override
    def run(self, module: ir.Module) -> None:
        for function in module.body.operations:
            if function.operation.name != "func.func" or not len(function.regions[0].blocks):
                continue
            shapes = SymbolicShapes(function)
            reductions = [op for op in function.regions[0].blocks[0].operations if reduction_dims(op)]
            # Erased last: the analysis knows values by address, and a new op may get that of an erased one.
            for op in [op for op in reductions if self._split(op, shapes)]:
                op.operation.erase()

    def _split(self, op: ir.OpView, shapes: SymbolicShapes) -> bool:
        """Whether `op` was replaced by two steps."""
        extents = _static_extents(op, shapes)
        if extents is None:
            return False
        reduced = reduction_dims(op)
        results, elements = 1, 1
        for d, n in enumerate(extents):
            elements *= n
            results *= 1 if d in reduced else n
        limit = max(self.max_results, self.columns // 2) if _keeps_neighbours(op) else self.max_results
        if results > limit or elements < self.min_elements:
            return False
        found = combiners(op)
        if any(c.identity is None for c in found) or len(op.results) != 1:
            self.note(op, "the combiner is not known to be associative")
            return False
        if any(o.operation.name == "linalg.index" for o in op.regions[0].blocks[0].operations):
            self.note(op, "the body computes with its loop's index")
            return False
        choice = self._choice(extents, reduced, results, elements)
        if choice is None:
            self.note(op, "no extent has a divisor that would make enough parts")
            return False
        if not may_rewrite(op):
            return False
        with op.operation.location:
            _rewrite(op, extents, *choice, found[0])
        self.count("split")
        _TAKEN("columns" if results > self.max_results else "few results")
        return True

    def _choice(
        self, extents: Sequence[int], reduced: Sequence[int], results: int, elements: int
    ) -> tuple[int, int] | None:
        """The dim to split and the number of its parts, or None."""
        if results <= self.max_results:
            # The outermost that will do: parts are long runs of memory.
            found = [(d, p) for d in reduced if (p := _divisor(extents[d], self.parts)) >= _FEWEST]
            return found[0] if found else None
        # Not more than it takes, and parts of some length: what they leave is written and read again.
        parts = min(self.parts, self.columns // results, elements // results // _COLUMN_PART)
        count, dim = max((_divisor(extents[d], parts), -d) for d in reduced)
        return (-dim, count) if count > 1 else None


def _keeps_neighbours(op: ir.OpView) -> bool:
    """Whether no reduced loop walks the innermost dim of the operand of the highest rank: its channels, or its last."""
    reduced = set(reduction_dims(op))
    inputs = zip(op.operands, indexing_maps(op)[: len(op.operands) - len(op.results)], strict=False)
    value, map_ = max(inputs, key=lambda pair: len(pair[1].results), default=(None, None))
    if value is None or map_ is None or not map_.results:
        return False
    inner = map_.results[1 if is_made_channels_last(value) else -1]
    return not affine.dims_in(inner) & reduced


def _static_extents(op: ir.OpView, shapes: SymbolicShapes) -> list[int] | None:
    maps = indexing_maps(op)
    extents: list[int | None] = [None] * maps[0].n_dims
    for value, m in zip(op.operands, maps, strict=True):
        if not isinstance(value.type, ir.RankedTensorType):
            continue
        for size, e in zip(shapes.dims(value), m.results, strict=True):
            if isinstance(e, ir.AffineDimExpr) and isinstance(size, ir.AffineConstantExpr):
                extents[e.position] = size.value
    return None if None in extents else [n for n in extents if n is not None]


def _divisor(extent: int, parts: int) -> int:
    """The largest divisor of `extent` up to `parts`; 1 where there are no parts."""
    return next((p for p in range(min(parts, extent), 1, -1) if extent % p == 0), 1)


def _rewrite(op: ir.OpView, extents: Sequence[int], dim: int, parts: int, combiner: Combiner) -> None:
    rank = len(extents)
    inner = extents[dim] // parts
    out = output_map(op)
    element = ir.RankedTensorType(op.results[0].type).element_type
    # Loops of the first step: those of the op, with `dim` walking within a part, and last the part.
    part = ir.AffineDimExpr.get(rank)
    whole = part * inner + ir.AffineDimExpr.get(dim)
    moved = [whole if d == dim else ir.AffineDimExpr.get(d) for d in range(rank)]
    count = len(op.operands) - 1
    maps = [
        ir.AffineMap.get(rank + 1, 0, [_substitute(e, moved) for e in m.results]) for m in indexing_maps(op)[:count]
    ]
    result_dims = [e for e in out.results]
    sizes = [_extent(e, extents) for e in result_dims]
    with ir.InsertionPoint(op):
        carrier = kiln.empty(element, [inner])
        assert combiner.identity is not None, "checked by the caller"
        partial_out = _fill(element, [*sizes, parts], combiner.identity)
        kinds = ["reduction" if d in reduction_dims(op) else "parallel" for d in range(rank)] + ["parallel"]
        # The extent of a part is not the size of any operand: a tensor without contents carries it.
        partial = generic(
            [*list(op.operands)[:count], carrier],
            partial_out,
            [*maps, _dims(rank + 1, [dim]), ir.AffineMap.get(rank + 1, 0, [*result_dims, part])],
            kinds,
        )
        _copy_body(op, partial, count)
        final_rank = len(sizes) + 1
        all_dims = list(range(final_rank))
        final = generic(
            [partial.results[0]],
            op.operands[count],
            [_dims(final_rank, all_dims), _dims(final_rank, all_dims[:-1])],
            ["parallel"] * len(sizes) + ["reduction"],
        )
        block = final.regions[0].blocks.append(element, element, arg_locs=[op.operation.location] * 2)
        with ir.InsertionPoint(block):
            total = ir.Operation.create(
                combiner.op, results=[element], operands=[block.arguments[1], block.arguments[0]]
            )
            ir.Operation.create("linalg.yield", operands=[total.result])
    op.results[0].replace_all_uses_with(final.results[0])


def _substitute(e: ir.AffineExpr, dims: Sequence[ir.AffineExpr]) -> ir.AffineExpr:
    return affine.substitute(e, dict(enumerate(dims)))


def _extent(e: ir.AffineExpr, extents: Sequence[int]) -> int:
    return extents[e.position] if isinstance(e, ir.AffineDimExpr) else 1


def _dims(rank: int, positions: Sequence[int]) -> ir.AffineMap:
    return ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(p) for p in positions])


def _fill(element: ir.Type, sizes: Sequence[int], value: ir.Attribute) -> ir.Value:
    empty = kiln.empty(element, list(sizes))
    constant = ir.Operation.create("arith.constant", results=[element], attributes={"value": value}).result
    fill = generic([], empty, [_dims(len(sizes), range(len(sizes)))], ["parallel"] * len(sizes))
    block = fill.regions[0].blocks.append(element, arg_locs=[fill.location])
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[constant])
    return fill.results[0]


def _copy_body(op: ir.OpView, into: ir.Operation, count: int) -> None:
    """The op's body, with one more (unused) argument for the carrier of the extent."""
    source = op.regions[0].blocks[0]
    types = [a.type for a in source.arguments]
    element = types[-1]
    block = into.regions[0].blocks.append(
        *types[:count], element, element, arg_locs=[op.operation.location] * (count + 2)
    )
    env: dict[ir.Value, ir.Value] = dict(
        zip(source.arguments, [*list(block.arguments)[:count], block.arguments[count + 1]], strict=True)
    )
    with ir.InsertionPoint(block):
        for inner in source.operations:
            clone = inner.operation.clone()
            for i, v in enumerate(inner.operation.operands):
                if v in env:
                    clone.operation.operands[i] = env[v]
            env.update(zip(inner.operation.results, clone.operation.results, strict=True))
