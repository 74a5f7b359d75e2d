# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pass ``hoist-gathers``."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import indexing_maps, reduction_dims
from kiln.passes.core import Pass, register_pass
from kiln.passes.dead import erase_dead
from kiln.passes.rewrites import may_rewrite

__all__ = ["HoistGathers"]

_MOST_OPS = 4
"""Ops one after the other that are computed on what is gathered. The limit was not measured: it is there since the
code of each gather grows with them."""


@register_pass
@dataclass
class HoistGathers(Pass):
    """Gather from what a pointwise op reads, and compute on what was gathered.

    What is gathered from must be in memory whole. The logits of a loss that are cast to f32, and of which each row's
    label is picked, would be stored once more in f32; so would a table of embeddings that is cast. Where the operands
    of the pointwise op take less memory than its result, or are computed by few such ops from the function's arguments,
    the gather reads them.

    Before::

        func.func @main(%x: tensor<4x8xbf16>, %labels: tensor<4xi64>) -> tensor<4xf32> {
          %e = "kiln.empty"() {shape = affine_map<() -> (4, 8)>} : () -> tensor<4x8xf32>
          %wide = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
              iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xbf16>) outs(%e : tensor<4x8xf32>) {
          ^bb0(%a: bf16, %o: f32):
            %0 = arith.extf %a : bf16 to f32
            linalg.yield %0 : f32
          } -> tensor<4x8xf32>
          %f = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
          %picked = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
              iterator_types = ["parallel"]} ins(%labels : tensor<4xi64>) outs(%f : tensor<4xf32>) {
          ^bb0(%l: i64, %o: f32):
            %row = linalg.index 0 : index
            %column = arith.index_cast %l : i64 to index
            %0 = tensor.extract %wide[%row, %column] : tensor<4x8xf32>
            linalg.yield %0 : f32
          } -> tensor<4xf32>
          return %picked : tensor<4xf32>
        }

    After::

        #map = affine_map<() -> (4)>
        #map1 = affine_map<(d0) -> (d0)>
        func.func @main(%arg0: tensor<4x8xbf16>, %arg1: tensor<4xi64>) -> tensor<4xf32> {
          %0 = "kiln.empty"() {shape = #map} : () -> tensor<4xf32>
          %1 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel"]} ins(%arg1 : tensor<4xi64>)
              outs(%0 : tensor<4xf32>) {
          ^bb0(%in: i64, %out: f32):
            %2 = linalg.index 0 : index
            %3 = arith.index_cast %in : i64 to index
            %extracted = tensor.extract %arg0[%2, %3] : tensor<4x8xbf16>
            %4 = arith.extf %extracted : bf16 to f32
            linalg.yield %4 : f32
          } -> tensor<4xf32>
          return %1 : tensor<4xf32>
        }
    """

    name = "hoist-gathers"

    @override
    def run(self, module: ir.Module) -> None:
        for function in module.body.operations:
            if function.operation.name != "func.func" or not function.operation.regions[0].blocks:
                continue
            block = function.operation.regions[0].blocks[0]
            for op in [op.operation for op in block.operations if op.operation.name == "linalg.generic"]:
                # What replaces a gather may gather from a pointwise op again.
                while any([self._hoist(op, inner) for inner in _gathers(op)]):
                    pass
            erase_dead(block, also=("linalg.generic",))

    def _hoist(self, op: ir.Operation, gather: ir.Operation) -> bool:
        """Whether `gather` in the body of `op` now reads what the op that made its tensor reads."""
        views, maker = _below(gather.operands[0])
        if maker is None or not _is_elementwise(maker) or not _is_smaller(maker):
            return False
        if not may_rewrite(op):
            return False
        sources: list[ir.Value] = []
        for tensor in list(maker.operands)[:-1]:
            with ir.InsertionPoint(op), maker.location:
                sources.append(_viewed(tensor, views))
        body = maker.regions[0].blocks[0]
        values: dict[ir.Value, ir.Value] = {}
        with ir.InsertionPoint(gather), gather.location:
            for argument, source in zip(body.arguments, sources, strict=False):
                element = ir.RankedTensorType(source.type).element_type
                picked = ir.Operation.create(
                    "tensor.extract", results=[element], operands=[source, *list(gather.operands)[1:]]
                )
                values[argument] = picked.result
            *inner, last = [o.operation for o in body.operations]
            for o in inner:
                copy = o.clone()
                for number, operand in enumerate(o.operands):
                    copy.operands[number] = values.get(operand, operand)
                values.update(zip(o.results, copy.results, strict=True))
        result = last.operands[0]
        gather.results[0].replace_all_uses_with(values.get(result, result))
        gather.erase()
        self.count("gathers")
        return True


def _gathers(op: ir.Operation) -> list[ir.Operation]:
    """The reads of whole tensors in the body of a `linalg.generic`."""
    return [o.operation for o in op.regions[0].blocks[0].operations if o.operation.name == "tensor.extract"]


def _below(value: ir.Value) -> tuple[list[ir.Operation], ir.Operation | None]:
    """The views on top of what made `value`, the outermost first, and that op."""
    views: list[ir.Operation] = []
    maker = defining_op(value)
    while maker is not None and maker.name == "kiln.view" and len(maker.operands) == 1:
        views.append(maker)
        maker = defining_op(maker.operands[0])
    return views, maker


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether each element of the one result comes from the same elements of all operands, and of nothing else."""
    if op.name != "linalg.generic" or len(op.results) != 1 or reduction_dims(op.opview) or len(op.operands) < 2:
        return False
    if not all(m.is_permutation and m == ir.AffineMap.get_identity(m.n_dims) for m in indexing_maps(op.opview)):
        return False
    body = op.regions[0].blocks[0]
    names = {o.operation.name for o in body.operations}
    return not names & {"linalg.index", "tensor.extract"} and not any(True for _ in body.arguments[-1].uses)


def _is_smaller(op: ir.Operation) -> bool:
    """Whether what `op` reads takes less memory than what it writes, or is in memory anyway."""
    tensors = list(op.operands)[:-1]
    if sum(_element_bits(t) for t in tensors) < _element_bits(op.results[0]):
        return True
    return all(_comes_from_arguments(t) for t in tensors)


def _comes_from_arguments(tensor: ir.Value, depth: int = _MOST_OPS) -> bool:
    """Whether few elementwise ops compute a tensor from the function's arguments."""
    views, maker = _below(tensor)
    if maker is None:
        return isinstance((views[-1].operands[0] if views else tensor).owner, ir.Block)
    return (
        depth > 0
        and _is_elementwise(maker)
        and all(_comes_from_arguments(t, depth - 1) for t in list(maker.operands)[:-1])
    )


def _element_bits(value: ir.Value) -> int:
    """Bits that an element takes in memory: a boolean has a byte."""
    element = ir.RankedTensorType(value.type).element_type
    return max(8, element.width) if isinstance(element, ir.IntegerType | ir.FloatType) else 64


def _viewed(tensor: ir.Value, views: Sequence[ir.Operation]) -> ir.Value:
    """`tensor` through views as those of another tensor of its shape, the outermost first."""
    for view in reversed(views):
        kept = ir.RankedTensorType(view.results[0].type)
        element = ir.RankedTensorType(tensor.type).element_type
        made = ir.RankedTensorType.get(kept.shape, element, kept.encoding)
        attributes = {a: view.attributes[a] for a in view.attributes}
        tensor = ir.Operation.create("kiln.view", results=[made], operands=[tensor], attributes=attributes).result
    return tensor
