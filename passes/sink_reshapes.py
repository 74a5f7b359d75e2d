# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pass ``sink-reshapes``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import affine, kiln
from kiln.dialects.walk import defining_op
from kiln.lowering import paths
from kiln.lowering.tile.body import indexing_maps, output_map, reduction_dims
from kiln.passes.compose_views import compose_views
from kiln.passes.core import Pass, register_pass
from kiln.passes.dead import erase_dead
from kiln.passes.rewrites import may_rewrite
from kiln.passes.views.images import is_of_channels_last
from kiln.passes.views.refine import reshaped, split_merged, split_rows

__all__ = ["SinkReshapes"]

_TAKEN = paths.group("any sink-reshapes", "samples and channels apart")


@register_pass
@dataclass
class SinkReshapes(Pass):
    """Move pointwise ops in front of the reshape of a reduction's result.

    A group norm reduces over [n, groups, channels of a group, h, w]; its weights, an activation and a residual come
    behind the reshape to [n, channels, h, w], whose loops the reductions do not fit. Computed in the first shape they
    do, and all is one kernel. So it is with an instance norm over [samples * channels, h, w]. Where the reshape takes
    rows apart, as behind a group norm written out over [n, groups, elements], the reductions get its loops first; so do
    those over [samples * channels, h, w] of an image with channels last, whose samples are not neighbours. Moves
    pointwise ops of static sizes alone; their other operands are read through views.

    Before::

        func.func @main(%x: tensor<2x8xf32>, %w: tensor<16xf32>) -> tensor<16xf32> {
          %zero = arith.constant dense<0.0> : tensor<2xf32>
          %e = "kiln.empty"() {shape = affine_map<() -> (2, 8)>} : () -> tensor<2x8xf32>
          %sum = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
              iterator_types = ["parallel", "reduction"]} ins(%x : tensor<2x8xf32>) outs(%zero : tensor<2xf32>) {
          ^bb0(%i: f32, %o: f32):
            %a = arith.addf %i, %o : f32
            linalg.yield %a : f32
          } -> tensor<2xf32>
          %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>,
              affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
              ins(%x, %sum : tensor<2x8xf32>, tensor<2xf32>) outs(%e : tensor<2x8xf32>) {
          ^bb0(%i: f32, %s: f32, %o: f32):
            %a = arith.divf %i, %s : f32
            linalg.yield %a : f32
          } -> tensor<2x8xf32>
          %1 = "kiln.view"(%0) {map = affine_map<(d0) -> (d0 floordiv 8, d0 mod 8)>, shape = affine_map<() -> (16)>}
            : (tensor<2x8xf32>) -> tensor<16xf32>
          %f = "kiln.empty"() {shape = affine_map<() -> (16)>} : () -> tensor<16xf32>
          %2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>,
              affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
              ins(%1, %w : tensor<16xf32>, tensor<16xf32>) outs(%f : tensor<16xf32>) {
          ^bb0(%i: f32, %s: f32, %o: f32):
            %a = arith.mulf %i, %s : f32
            linalg.yield %a : f32
          } -> tensor<16xf32>
          return %2 : tensor<16xf32>
        }

    After::

        #map = affine_map<() -> (2, 8)>
        #map1 = affine_map<(d0, d1) -> (d0, d1)>
        #map2 = affine_map<(d0, d1) -> (d0)>
        #map3 = affine_map<(d0, d1) -> (d0 * 8 + d1)>
        #map4 = affine_map<(d0) -> (d0 floordiv 8, d0 mod 8)>
        #map5 = affine_map<() -> (16)>
        func.func @main(%arg0: tensor<2x8xf32>, %arg1: tensor<16xf32>) -> tensor<16xf32> {
          %cst = arith.constant dense<0.000000e+00> : tensor<2xf32>
          %0 = "kiln.empty"() {shape = #map} : () -> tensor<2x8xf32>
          %1 = linalg.generic {indexing_maps = [#map1, #map2], iterator_types = ["parallel", "reduction"]}
              ins(%arg0 : tensor<2x8xf32>) outs(%cst : tensor<2xf32>) {
          ^bb0(%in: f32, %out: f32):
            %7 = arith.addf %in, %out : f32
            linalg.yield %7 : f32
          } -> tensor<2xf32>
          %2 = linalg.generic {indexing_maps = [#map1, #map2, #map1], iterator_types = ["parallel", "parallel"]}
              ins(%arg0, %1 : tensor<2x8xf32>, tensor<2xf32>) outs(%0 : tensor<2x8xf32>) {
          ^bb0(%in: f32, %in_0: f32, %out: f32):
            %7 = arith.divf %in, %in_0 : f32
            linalg.yield %7 : f32
          } -> tensor<2x8xf32>
          %3 = "kiln.view"(%arg1) {map = #map3, shape = #map} : (tensor<16xf32>) -> tensor<2x8xf32>
          %4 = "kiln.empty"() {shape = #map} : () -> tensor<2x8xf32>
          %5 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel"]}
              ins(%2, %3 : tensor<2x8xf32>, tensor<2x8xf32>) outs(%4 : tensor<2x8xf32>) {
          ^bb0(%in: f32, %in_0: f32, %out: f32):
            %7 = arith.mulf %in, %in_0 : f32
            linalg.yield %7 : f32
          } -> tensor<2x8xf32>
          %6 = "kiln.view"(%5) {map = #map4, shape = #map5} : (tensor<2x8xf32>) -> tensor<16xf32>
          return %6 : tensor<16xf32>
        }
    """

    name = "sink-reshapes"

    rows_last: bool = False
    """Only where rows lie in memory as such: a group of channels of an image with channels last is in pieces."""

    @override
    def run(self, module: ir.Module) -> None:
        """Rewrite every function."""
        for function in module.body.operations:
            if function.operation.name != "func.func" or not function.operation.regions[0].blocks:
                continue
            block = function.operation.regions[0].blocks[0]
            if self._split_merged(block) + self._split_rows(block):
                compose_views(function.operation)
            for op in [op.operation for op in block.operations]:
                view = _reshape_of_rows(op)
                if view is not None and not (self.rows_last and _reduces_channels_last(view)):
                    moved = _sink(op, view)
                    self.count("matched" if moved else "failed")
                    if not moved:
                        self.note(op, "not before the reshape: an operand is not read along whole dims")
            erase_dead(block, also=("linalg.generic",))

    def _split_merged(self, block: ir.Block) -> int:
        """Takes apart the loop over samples and channels of an instance norm of images with channels last, whose
        channels are neighbours, and samples far away; returns how often.
        """
        done = 0
        for view in [op.operation for op in block.operations if op.operation.name == "kiln.view"]:
            source = defining_op(view.operands[0])
            if source is None or source.name != "linalg.generic" or not _is_reshape(view):
                continue
            if not _has_rows(source) or not _reduces_channels_last(view) or not may_rewrite(view, "take loops apart"):
                continue
            if split_merged(view) is not None:
                self.note(source, "its loop over samples and channels is two, as in the reshape behind them")
                _TAKEN("samples and channels apart")
                done += 1
        self.count("merged loops taken apart", done)
        if done:
            erase_dead(block, also=("linalg.generic",))
        return done

    def _split_rows(self, block: ir.Block) -> int:
        """Takes rows apart where the reshape behind them does; returns how often."""
        done = 0
        for op in [op.operation for op in block.operations]:
            view = _reshape_of_rows(op, split=True)
            if view is None:
                continue
            source = view.operands[0]
            if not may_rewrite(view, "take rows apart"):
                continue
            if split_rows(view) is None:
                self.note(op, "the rows of its reductions are not taken apart as the reshape behind them does")
                continue
            self.note(op, f"the rows of {source.owner.name} are several loops, as in the reshape behind them")
            done += 1
        self.count("rows taken apart", done)
        if done:
            erase_dead(block, also=("linalg.generic",))
        return done


def _reshape_of_rows(op: ir.Operation, split: bool = False) -> ir.Operation | None:
    """The view, among the operands of a pointwise op, that reshapes what reductions along rows gave.

    split: one that takes the rows apart.
    """
    if not _is_pointwise(op) or any(o.operation.name == "linalg.index" for o in op.regions[0].blocks[0].operations):
        return None
    maps = indexing_maps(op.opview)
    for value, map_ in zip(op.operands, maps[:-1], strict=False):
        view = defining_op(value)
        if view is None or view.name != "kiln.view" or map_ != maps[-1]:
            continue
        source = defining_op(view.operands[0])
        if source is None or not _is_pointwise(source):
            continue
        fits = (_inverse(view) is not None) != split and (not split or _is_reshape(view))
        if fits and _has_rows(source):
            return view
    return None


def _is_pointwise(op: ir.Operation) -> bool:
    """Whether `op` has parallel loops of static extents alone, those of its one result in their order."""
    if op.name != "linalg.generic" or len(op.results) != 1 or reduction_dims(op.opview):
        return False
    tensors = all(isinstance(v.type, ir.RankedTensorType) and v.type.has_static_shape for v in op.operands)
    out = output_map(op.opview)
    return tensors and len(op.operands) > 1 and out == ir.AffineMap.get_identity(out.n_dims)


def _has_rows(op: ir.Operation) -> bool:
    """Whether loops below `op`, as far as they are `linalg`'s, reduce; looks through views."""
    return bool(_nearest_reductions(op))


def _reduces_channels_last(view: ir.Operation) -> bool:
    """Whether a reduction below walks an image with channels last, or what is computed from one."""
    return any(is_of_channels_last(v) for op in _nearest_reductions(view) for v in op.operands)


def _nearest_reductions(op: ir.Operation) -> list[ir.Operation]:
    """Those below `op`, through pointwise ops and views alone."""
    work, seen, found = [op], {op}, list[ir.Operation]()
    while work:
        for value in work.pop().operands:
            below = defining_op(value)
            if below is None or below.name not in ("linalg.generic", "kiln.view") or below in seen:
                continue
            seen.add(below)
            is_reduction = below.name == "linalg.generic" and bool(reduction_dims(below.opview))
            (found if is_reduction else work).append(below)
    return found


def _is_reshape(view: ir.Operation) -> bool:
    """Whether the view has its source's elements in their order, with static sizes."""
    map_ = ir.AffineMapAttr(view.attributes["map"]).value
    types = ir.RankedTensorType(view.operands[0].type), ir.RankedTensorType(view.results[0].type)
    if map_.n_symbols or not all(t.has_static_shape and t.rank for t in types):
        return False
    source, shape = (list(t.shape) for t in types)
    if math.prod(source) != math.prod(shape) or 0 in shape:
        return False
    forward = reshaped(shape, source)
    return all(affine.equal(e, f, shape) for e, f in zip(map_.results, forward, strict=True))


def _inverse(view: ir.Operation) -> list[ir.AffineExpr] | None:
    """Each index of a reshape over those of its source, where rows stay rows; None for other views."""
    if not _is_reshape(view):
        return None
    map_ = ir.AffineMapAttr(view.attributes["map"]).value
    source, shape = (list(ir.RankedTensorType(v.type).shape) for v in (view.operands[0], view.results[0]))
    back = reshaped(source, shape)
    # The last loop is the one that vectors are along: its index must not be taken apart.
    last = len(source) - 1
    is_moved = any(not isinstance(e, ir.AffineDimExpr | ir.AffineConstantExpr) for e in (*back, *map_.results))
    return back if is_moved and all(affine.is_linear(e) for e in back if last in affine.dims_in(e)) else None


def _sink(op: ir.Operation, view: ir.Operation) -> bool:
    """Computes `op` over the dims of the view's source; returns whether it could."""
    inverse = _inverse(view)
    assert inverse is not None, "asked for when the view was found"
    sizes = list(ir.RankedTensorType(view.operands[0].type).shape)
    maps = indexing_maps(op.opview)[:-1]
    if any(not isinstance(e, ir.AffineDimExpr | ir.AffineConstantExpr) for m in maps for e in m.results):
        return False
    if not may_rewrite(op, "sink"):
        return False
    element = ir.RankedTensorType(op.results[0].type).element_type
    with ir.InsertionPoint(op), op.location:
        read = [_reread(v, m, inverse, sizes, view) for v, m in zip(op.operands, maps, strict=False)]
        empty = kiln.empty(element, [_constant(n) for n in sizes])
        new = op.clone().operation
        for i, (value, _) in enumerate(read):
            new.operands[i] = value
        new.operands[len(read)] = empty
        all_maps = [*(m for _, m in read), ir.AffineMap.get_identity(len(sizes))]
        new.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in all_maps])
        parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
        new.attributes["iterator_types"] = ir.ArrayAttr.get([parallel] * len(sizes))
        new.results[0].set_type(empty.type)
        shape = [_constant(n) for n in ir.RankedTensorType(op.results[0].type).shape]
        result = kiln.view(new.results[0], ir.AffineMapAttr(view.attributes["map"]).value, shape)
    op.results[0].replace_all_uses_with(result)
    return True


def _reread(
    value: ir.Value, map_: ir.AffineMap, inverse: Sequence[ir.AffineExpr], sizes: Sequence[int], view: ir.Operation
) -> tuple[ir.Value, ir.AffineMap]:
    """An operand as a view over the dims of the reshape's source that its index depends on, and the map to read it."""
    rank = len(sizes)
    if value == view.results[0]:
        return view.operands[0], ir.AffineMap.get_identity(rank)
    index = [inverse[e.position] if isinstance(e, ir.AffineDimExpr) else e for e in map_.results]
    used = sorted({d for e in index for d in affine.dims_in(e)})
    loops = [ir.AffineDimExpr.get(d) for d in used]
    read = ir.AffineMap.get(rank, 0, loops)
    if index == loops:
        return value, read
    own = {d: ir.AffineDimExpr.get(i) for i, d in enumerate(used)}
    index = [affine.substitute(e, own) for e in index]
    return kiln.view(value, ir.AffineMap.get(len(used), 0, index), [_constant(sizes[d]) for d in used]), read


def _constant(number: int) -> ir.AffineExpr:
    return ir.AffineConstantExpr.get(number)
