# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Splits long reductions with few results, so that threads have something to share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import affine, kiln
from kiln.dialects.shapes import SymbolicShapes
from kiln.lowering import paths
from kiln.lowering.gpu.schedule import reduction_parts
from kiln.lowering.host.channels_last import is_made_channels_last
from kiln.lowering.tile.body import indexing_maps, output_map, reduction_dims
from kiln.lowering.tile.combiner import Combiner, combiners
from kiln.passes.core import Pass, register_pass
from kiln.passes.loops import generic
from kiln.passes.rewrites import may_rewrite

_FEWEST = 8
"""Parts of a few results' long sums on a CPU: fewer are not worth the second reduction. Not measured."""


_TAKEN = paths.group("gpu split-reductions", "columns", "rows", "several dims", "with a rest")
_FOR_THREADS = paths.group("cpu split-reductions", "columns", "rows", "with a rest")


@register_pass
@dataclass
class SplitReductions(Pass):
    """Reduce in two steps where one step would be the work of one thread, or of few programs of a GPU.

    A `linalg.generic` reduction whose results number at most `max_results` while it reads at least `min_elements` is
    split along a reduction dim of static extent (other reduction dims may be dynamic): `parts` partial results, then
    the reduction of these by the combiner alone. For a GPU, the number of parts is what keeps it busy
    (`reduction_parts`), and several dims are split where one has too few divisors: the images and the rows of a batch,
    say. Of an extent without such divisors, what the parts leave over is reduced by itself. Sums of floats are
    reassociated, as every parallel sum is. Reductions by an unknown combiner stay.

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
    sms: int = 0
    """Multiprocessors of the GPU that the parts are for; 0: they are for a CPU's threads, as the other options say."""

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
        reduced = reduction_dims(op)
        extents = _extents(op, shapes, reduced)
        if extents is None:
            return False
        results, length = (
            prod(n for d, n in enumerate(extents) if (d in reduced) == inside) for inside in (False, True)
        )
        neighbours = _neighbours(op, extents)
        if self.sms:
            parts = reduction_parts(results, length, neighbours, self.sms)
        else:
            parts = self.parts if results <= self.max_results and results * length >= self.min_elements else 1
        if parts < 2:
            return False
        found = combiners(op)
        if any(c.identity is None for c in found) or len(op.results) != 1:
            self.note(op, "the combiner is not known to be associative")
            return False
        if any(o.operation.name == "linalg.index" for o in op.regions[0].blocks[0].operations):
            self.note(op, "the body computes with its loop's index")
            return False
        splits = self._splits(extents, reduced, parts)
        if not splits:
            self.note(op, "no extent is long enough for as many parts")
            return False
        if not may_rewrite(op):
            return False
        with op.operation.location:
            _rewrite(op, extents, splits, found[0])
        self.count("split")
        taken = _TAKEN if self.sms else _FOR_THREADS
        taken("several dims" if len(splits) > 1 else "columns" if neighbours > 1 else "rows")
        if any(extents[d] % count for d, count in splits.items()):
            taken("with a rest")
        return True

    def _splits(self, extents: Sequence[int], reduced: Sequence[int], parts: int) -> dict[int, int]:
        """The dims to split, each with the number of its parts: a divisor, or of one dim, where all divisors are too
        small, a number that leaves a rest.
        """
        longest = max(reduced, key=lambda d: extents[d])
        if not self.sms:
            # The outermost that will do: parts are long runs of memory.
            count = _with_rest(extents[longest], parts)
            rest = {longest: count} if count >= _FEWEST else dict[int, int]()
            return next(({d: p} for d in reduced if (p := _divisor(extents[d], parts)) >= _FEWEST), rest)
        several: dict[int, int] = {}
        for d in reduced:
            count = _divisor(extents[d], parts // prod(several.values()))
            if count > 1:
                several[d] = count
        # One dim alone may come nearer: of 6 x 1024 in 8 parts, 8 of the second and not 6 of the first.
        single = ({d: count} for d in reduced if (count := _divisor(extents[d], parts)) > 1)
        best = max((several, *single), key=lambda splits: prod(splits.values()))
        count = _with_rest(extents[longest], parts)
        return {longest: count} if count > 2 * prod(best.values()) else best


def _neighbours(op: ir.OpView, extents: Sequence[int]) -> int:
    """How many results lie next to each other in the operand of the highest rank, by its last dims or, of an image with
    its channels last, these; 1 where a reduced loop walks the innermost dim.
    """
    reduced = set(reduction_dims(op))
    inputs = zip(op.operands, indexing_maps(op)[: len(op.operands) - len(op.results)], strict=False)
    value, map_ = max(inputs, key=lambda pair: len(pair[1].results), default=(None, None))
    count = 1
    if value is None or map_ is None or not map_.results:
        return count
    order = list(map_.results)
    if is_made_channels_last(value):
        order = [order[0], *order[2:], order[1]]
    for e in reversed(order):
        dims = affine.dims_in(e)
        if dims & reduced:
            break
        count *= prod(extents[d] for d in dims)
    return count


def _extents(op: ir.OpView, shapes: SymbolicShapes, reduced: Sequence[int]) -> list[int] | None:
    """Of the loops, with 1 for those of reduced dims that are known at run time: these are not split, and the work is
    what the others alone have. None where a result's size is not known, or no reduced dim's is.
    """
    maps = indexing_maps(op)
    extents: list[int | None] = [None] * maps[0].n_dims
    for value, m in zip(op.operands, maps, strict=True):
        if not isinstance(value.type, ir.RankedTensorType):
            continue
        for size, e in zip(shapes.dims(value), m.results, strict=True):
            if isinstance(e, ir.AffineDimExpr) and isinstance(size, ir.AffineConstantExpr):
                extents[e.position] = size.value
    if all(extents[d] is None for d in reduced) or any(n is None and d not in reduced for d, n in enumerate(extents)):
        return None
    return [1 if n is None else n for n in extents]


def _divisor(extent: int, parts: int) -> int:
    """The largest divisor of `extent` up to `parts`; 1 where there are no parts."""
    return next((p for p in range(min(parts, extent), 1, -1) if extent % p == 0), 1)


def _with_rest(extent: int, parts: int) -> int:
    """The number of parts, three quarters of `parts` or more, of which an extent leaves the smallest rest; 1 where a
    part would be a single element.
    """
    counts = range(parts, max(1, 3 * parts // 4), -1)
    return min(counts, key=lambda p: extent % p, default=1) if extent >= 2 * parts else 1


def _rewrite(op: ir.OpView, extents: Sequence[int], splits: Mapping[int, int], combiner: Combiner) -> None:
    """Replaces the result: `splits` gives dims the number of their parts; what they leave over is reduced by itself."""
    rank = len(extents)
    within = [d for d in splits if splits[d] < extents[d]]
    out = output_map(op)
    element = ir.RankedTensorType(op.results[0].type).element_type
    # Loops of the first step: those of the op, with split dims walking within a part, and last the parts. A dim whose
    # parts are single elements is parallel itself.
    loops = rank + len(within)
    part = {d: ir.AffineDimExpr.get(d if d not in within else rank + within.index(d)) for d in splits}
    moved: list[ir.AffineExpr] = [ir.AffineDimExpr.get(d) for d in range(rank)]
    for d in within:
        moved[d] = part[d] * (extents[d] // splits[d]) + moved[d]
    count = len(op.operands) - 1
    maps = [ir.AffineMap.get(loops, 0, [_substitute(e, moved) for e in m.results]) for m in indexing_maps(op)[:count]]
    sizes = [_extent(e, extents) for e in out.results]
    with ir.InsertionPoint(op):
        # The extent of a part is not the size of any operand: a tensor without contents carries it.
        carriers = [kiln.empty(element, [extents[d] // splits[d]]) for d in within]
        assert combiner.identity is not None, "checked by the caller"
        partial_out = _fill(element, [*sizes, *splits.values()], combiner.identity)
        reduced = set(reduction_dims(op)) - (splits.keys() - set(within))
        partial = generic(
            [*list(op.operands)[:count], *carriers],
            partial_out,
            [*maps, *(_dims(loops, [d]) for d in within), ir.AffineMap.get(loops, 0, [*out.results, *part.values()])],
            ["reduction" if d in reduced else "parallel" for d in range(loops)],
        )
        _copy_body(op, partial, count, len(carriers))
        final_rank = len(sizes) + len(splits)
        final = generic(
            [partial.results[0]],
            op.operands[count],
            [_dims(final_rank, range(final_rank)), _dims(final_rank, range(len(sizes)))],
            ["parallel"] * len(sizes) + ["reduction"] * len(splits),
        )
        block = final.regions[0].blocks.append(element, element, arg_locs=[op.operation.location] * 2)
        with ir.InsertionPoint(block):
            total = ir.Operation.create(
                combiner.op, results=[element], operands=[block.arguments[1], block.arguments[0]]
            )
            ir.Operation.create("linalg.yield", operands=[total.result])
        result = final.results[0]
        for d, parts in splits.items():
            if extents[d] % parts:
                result = _combined(combiner, result, _rest(op, d, extents[d] % parts, extents, combiner))
    op.results[0].replace_all_uses_with(result)


def _rest(op: ir.OpView, dim: int, count: int, extents: Sequence[int], combiner: Combiner) -> ir.Value:
    """The op on the last `count` elements of a dim alone, from the combiner's identity on."""
    rank, operands = len(extents), list(op.operands)[: len(op.operands) - 1]
    element = ir.RankedTensorType(op.results[0].type).element_type
    moved: list[ir.AffineExpr] = [ir.AffineDimExpr.get(d) for d in range(rank)]
    moved[dim] = moved[dim] + (extents[dim] - count)
    maps = [ir.AffineMap.get(rank, 0, [_substitute(e, moved) for e in m.results]) for m in indexing_maps(op)]
    assert combiner.identity is not None, "checked by the caller"
    rest = generic(
        [*operands, kiln.empty(element, [count])],
        _fill(element, [_extent(e, extents) for e in output_map(op).results], combiner.identity),
        [*maps[:-1], _dims(rank, [dim]), output_map(op)],
        ["reduction" if d in reduction_dims(op) else "parallel" for d in range(rank)],
    )
    _copy_body(op, rest, len(operands), 1)
    return rest.results[0]


def _combined(combiner: Combiner, x: ir.Value, y: ir.Value) -> ir.Value:
    """`x` and `y` element by element."""
    type_ = ir.RankedTensorType(x.type)
    every = _dims(type_.rank, range(type_.rank))
    both = generic([x, y], kiln.empty(type_.element_type, type_.shape), [every] * 3, ["parallel"] * type_.rank)
    block = both.regions[0].blocks.append(*[type_.element_type] * 3, arg_locs=[both.location] * 3)
    with ir.InsertionPoint(block):
        total = ir.Operation.create(combiner.op, results=[type_.element_type], operands=list(block.arguments)[:2])
        ir.Operation.create("linalg.yield", operands=[total.result])
    return both.results[0]


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


def _copy_body(op: ir.OpView, into: ir.Operation, count: int, carriers: int) -> None:
    """The op's body, with more (unused) arguments for the carriers of extents."""
    source = op.regions[0].blocks[0]
    types = [a.type for a in source.arguments]
    element = types[-1]
    block = into.regions[0].blocks.append(
        *types[:count], *[element] * (carriers + 1), arg_locs=[op.operation.location] * (count + carriers + 1)
    )
    env: dict[ir.Value, ir.Value] = dict(
        zip(source.arguments, [*list(block.arguments)[:count], block.arguments[count + carriers]], strict=True)
    )
    with ir.InsertionPoint(block):
        for inner in source.operations:
            clone = inner.operation.clone()
            for i, v in enumerate(inner.operation.operands):
                if v in env:
                    clone.operation.operands[i] = env[v]
            env.update(zip(inner.operation.results, clone.operation.results, strict=True))
