# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Splits long reductions with few results, so that threads have something to share."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import affine
from kiln.dialects.builder import Builder
from kiln.dialects.shapes import SymbolicShapes
from kiln.lowering import paths
from kiln.lowering.gpu.schedule import is_held, pow2, reduction_parts
from kiln.lowering.tile.body import indexing_maps, reduction_dims
from kiln.lowering.tile.combiner import Combiner, combiners
from kiln.passes.core import Pass, register_pass
from kiln.passes.dynamic_parts import DynamicParts, can_be_walked
from kiln.passes.group_statistics import read_wide, split_distances, split_group_sum
from kiln.passes.group_sums import Statistics, find_distances, find_group_sum
from kiln.passes.partial_positions import PartialExtremum, find_position, is_extremum, split_position
from kiln.passes.partial_reductions import Parts, combined, elementwise
from kiln.passes.rewrites import may_rewrite
from kiln.passes.views.images import in_memory_order, is_of_channels_last, stored_bytes

_FEWEST = 8
"""Parts of a few results' long sums on a CPU: fewer are not worth the second reduction. Not measured."""

_TAKEN = paths.group(
    "gpu split-reductions",
    "columns",
    "rows",
    "several dims",
    "with a rest",
    "of any length",
    "several of any length",
    "groups of channels",
    "planes",
)
_POSITIONS = paths.group("any split-reductions", "by their own extremum")
_FOR_THREADS = paths.group("cpu split-reductions", "columns", "rows", "with a rest", "groups of channels")


@register_pass
@dataclass
class SplitReductions(Pass):
    """Reduce in two steps where one step would be the work of one thread, or of few programs of a GPU.

    A `linalg.generic` reduction whose results number at most `max_results` while it reads at least `min_elements` is
    split along a reduction dim: `parts` partial results, then the reduction of these by the combiner alone. For a GPU,
    the number of parts is what keeps it busy (`reduction_parts`), and several dims are split where one has too few
    divisors: the images and the rows of a batch, say. Of an extent without such divisors, what the parts leave over is
    reduced by itself. Sizes known at run time only count as what they were about when the graph was traced
    (`kiln.hint`); for a GPU, dims of such sizes have parts as long as makes the number for these (`dynamic_parts.py`),
    for a CPU, whose vector loops have no masks for the last one, they are not split. Sums of floats are reassociated,
    as every parallel sum is. The position of an extremum that is split is found in the same parts, by their own
    extrema. Reductions by an unknown combiner stay.

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
    """Of a sum, for a CPU's threads."""
    max_results: int = 8
    """Reductions with more results have work for all threads."""
    min_elements: int = 1 << 16
    """Reductions that read less are left alone."""
    group_channels: int = 0
    """Of images with channels last, statistics of groups of less channels than that are split into those of channels,
    of parts of the image (`group_statistics.py`); 0: none."""
    part_bytes: int = 1 << 16
    """Of such a part, at most, as float32: it is read twice. From 16 to 256 KiB all were equally fast."""
    l2_bytes: int = 0
    """Of a GPU's cache: of larger images groups of channels that a program can't hold are split into their planes,
    which are read once; 0: none."""
    sms: int = 0
    """Multiprocessors of the GPU that the parts are for; 0: they are for a CPU's threads, as the other options say."""

    @override
    def run(self, module: ir.Module) -> None:
        for function in module.body.operations:
            if function.operation.name != "func.func" or not len(function.regions[0].blocks):
                continue
            shapes = SymbolicShapes(function)
            self._extrema: list[PartialExtremum] = []
            self._groups: list[Statistics] = []
            reductions = [op for op in function.regions[0].blocks[0].operations if reduction_dims(op)]
            # Erased last: the analysis knows values by address, and a new op may get that of an erased one.
            for op in [op for op in reductions if self._split(op, shapes)]:
                op.operation.erase()
            for found in self._groups:
                read_wide(found)

    def _split(self, op: ir.OpView, shapes: SymbolicShapes) -> bool:
        """Whether `op` was replaced by two steps."""
        reduced = reduction_dims(op)
        loops = _extents(op, shapes)
        extents = _likely(loops, shapes, reduced, by_hints=self.sms > 0)
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
        is_static = all(isinstance(e, ir.AffineConstantExpr) for e in loops)
        if self.group_channels and is_static and self._split_groups(op, extents, is_short=self.sms > 0 and parts > 1):
            return True
        if parts < 2:
            return False
        found = combiners(op)
        if any(c.identity is None for c in found) or len(op.results) != 1:
            self.note(op, "the combiner is not known to be associative")
            return False
        known = [d for d in reduced if isinstance(loops[d], ir.AffineConstantExpr)]
        splits = self._splits(extents, known, parts) if known else {}
        others = [d for d in reduced if d not in known]
        dims = self._dynamic_dims(op, extents, others, splits, parts, neighbours)
        if not splits and not dims:
            self.note(op, "no extent is long enough for as many parts")
            return False
        if not may_rewrite(op):
            return False
        build = Builder(shapes)
        # Loops of which nothing is known are those of no result's dim, and not split.
        sizes = [ir.AffineExpr.get_constant(n) if e is None else e for n, e in zip(extents, loops, strict=True)]
        with op.operation.location, ir.InsertionPoint(op):
            if dims:
                length = pow2(-(-prod(extents[d] for d in dims) // parts))
                cut = DynamicParts(op, build, sizes, dims, length)
                op.results[0].replace_all_uses_with(combined(op, cut.partial(found[0]), found[0]))
            else:
                cut = tuple(n if d in known else e for d, (n, e) in enumerate(zip(extents, sizes, strict=True)))
                self._rewrite(op, Parts(cut, splits, build), found[0])
        self.count("split")
        taken = _TAKEN if self.sms else _FOR_THREADS
        if dims:
            taken("of any length" if len(dims) == 1 else "several of any length")
        else:
            taken("several dims" if len(splits) > 1 else "columns" if neighbours > 1 else "rows")
        if any(extents[d] % count for d, count in splits.items()) and not dims:
            taken("with a rest")
        return True

    def _dynamic_dims(
        self,
        op: ir.OpView,
        extents: Sequence[int],
        others: list[int],
        splits: dict[int, int],
        parts: int,
        neighbours: int,
    ) -> list[int]:
        """Dims of sizes known at run time only that are split, as one, in place of those of known sizes; none where
        these make enough parts.

        extents: of the loops, likely ones. others: reduced dims of such sizes. splits: parts of those of known sizes.
        """
        # Parts of the innermost dim are short runs of memory.
        is_torn = neighbours == 1 and _innermost(op) in splits
        if not is_torn and prod(splits.values()) * 2 >= parts:
            return []
        return others if prod(extents[d] for d in others) >= 2 * parts and can_be_walked(op, others) else []

    def _split_groups(self, op: ir.OpView, extents: Sequence[int], is_short: bool) -> bool:
        """Whether `op` was a statistic of groups of channels and was split into those of channels.

        is_short: of too few groups for a GPU, which take parts in any case: those of channels are read once.
        """
        distances, found = find_distances(op, self._groups), None
        if distances is None:
            is_far = 0 < self.l2_bytes < stored_bytes(op.operands[0]) and not is_held(prod(extents[2:]))
            found = find_group_sum(
                op,
                extents,
                inf if is_short else self.group_channels,
                self.part_bytes,
                by_channel=not self.sms,
                planes=is_short or is_far,
            )
        if (distances is None and found is None) or not may_rewrite(op):
            return False
        with op.operation.location, ir.InsertionPoint(op):
            if distances is not None:
                result = split_distances(op, *distances)
            else:
                assert found is not None
                self._groups.append(split_group_sum(op, found))
                result = self._groups[-1].group
        op.results[0].replace_all_uses_with(result)
        self.count("groups")
        if distances is None:
            are_planes = self.sms and not is_of_channels_last(op.operands[0])
            (_TAKEN if self.sms else _FOR_THREADS)("planes" if are_planes else "groups of channels")
        return True

    def _rewrite(self, op: ir.OpView, parts: Parts, combiner: Combiner) -> None:
        found = ((e, p) for e in self._extrema if (p := find_position(op, combiner, e, parts)) is not None)
        extremum, position = next(found, (None, None))
        partial: ir.Value | None = None
        if extremum is not None and position is not None:
            result = split_position(op, combiner, extremum, position)
            _POSITIONS("by their own extremum")
        else:
            partial = parts.partial(op, combiner)
            result = combined(op, partial, combiner)
        for dim in parts.leftover:
            result = elementwise(parts.build, combiner, result, parts.rest(op, dim, combiner))
        if partial is not None and is_extremum(op, combiner):
            of, out = indexing_maps(op)
            self._extrema.append(PartialExtremum(op.operands[0], of, out, result, partial, parts))
        op.results[0].replace_all_uses_with(result)

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


def _innermost(op: ir.OpView) -> int | None:
    """The loop that walks the memory of the operand of the highest rank element by element; None where none does."""
    d, step = next(iter(_walks(op)), (None, 0))
    return d if step else None


def _neighbours(op: ir.OpView, extents: Sequence[int]) -> int:
    """How many results lie next to each other in the operand of the highest rank, by its last dims or, of an image with
    its channels last, these; 1 where a reduced loop walks the innermost dim.
    """
    reduced = set(reduction_dims(op))
    count = 1
    for d, _ in _walks(op):
        if d in reduced:
            return count
        count *= extents[d]
    return count


def _walks(op: ir.OpView) -> list[tuple[int, int]]:
    """The loops that walk the operand of the highest rank, the one of the smallest steps first, and the steps along the
    dim that each walks; of loops of equal steps, reduced ones first.
    """
    reduced = set(reduction_dims(op))
    inputs = zip(op.operands, indexing_maps(op)[: len(op.operands) - len(op.results)], strict=False)
    value, map_ = max(inputs, key=lambda pair: len(pair[1].results), default=(None, None))
    found: list[tuple[int, int]] = []
    if value is None or map_ is None or not map_.results:
        return found
    for e in reversed(in_memory_order(value)):
        walked = affine.substitute(e, dict(enumerate(map_.results)))
        dims, linear = affine.dims_in(walked), affine.linear_coefficients(walked)
        steps = {d: 0 if linear is None else affine.constant_of(linear[1][d]) or 0 for d in dims}
        found += sorted(steps.items(), key=lambda pair: (pair[1], pair[0] not in reduced))
    return found


def _extents(op: ir.OpView, shapes: SymbolicShapes) -> list[ir.AffineExpr | None]:
    """Of the loops; None for those of which no operand tells."""
    maps = indexing_maps(op)
    extents: list[ir.AffineExpr | None] = [None] * maps[0].n_dims
    for value, m in zip(op.operands, maps, strict=True):
        if not isinstance(value.type, ir.RankedTensorType):
            continue
        for size, e in zip(shapes.dims(value), m.results, strict=True):
            if isinstance(e, ir.AffineDimExpr) and not isinstance(extents[e.position], ir.AffineConstantExpr):
                extents[e.position] = size.maybe_downcast()
    return extents


def _likely(
    extents: Sequence[ir.AffineExpr | None], shapes: SymbolicShapes, reduced: Sequence[int], by_hints: bool
) -> list[int] | None:
    """Extents as numbers: likely ones of those known at run time only, of reduced dims only with `by_hints`, and 1 for
    reduced dims where nothing is known of these. None where nothing is known of a result's size, or of any reduced dim.
    """
    likely = [
        None if e is None else shapes.hint(e) if by_hints or d not in reduced else affine.constant_of(e)
        for d, e in enumerate(extents)
    ]
    if all(likely[d] is None for d in reduced) or any(n is None and d not in reduced for d, n in enumerate(likely)):
        return None
    return [1 if n is None else n for n in likely]


def _divisor(extent: int, parts: int) -> int:
    """The largest divisor of `extent` up to `parts`; 1 where there are no parts."""
    return next((p for p in range(min(parts, extent), 1, -1) if extent % p == 0), 1)


def _with_rest(extent: int, parts: int) -> int:
    """The number of parts, three quarters of `parts` or more, of which an extent leaves the smallest rest; 1 where a
    part would be a single element.
    """
    counts = range(parts, max(1, 3 * parts // 4), -1)
    return min(counts, key=lambda p: extent % p, default=1) if extent >= 2 * parts else 1
