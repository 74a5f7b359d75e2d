# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Chains of views as one view each."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.passes.core import Pass, register_pass
from kiln.passes.dead import erase_dead
from kiln.passes.rewrites import may_rewrite

if TYPE_CHECKING:
    from kiln.passes.views.function_views import FunctionViews

__all__ = ["ComposeViews", "compose_views"]


@register_pass
@dataclass
class ComposeViews(Pass):
    """Compose views of views, drop identity views, simplify index maps.

    A view that lies in one operand of a concatenation is a view of that operand, unless it is returned (it would share
    memory with the operand). A concatenation that nothing reads any more is erased. Where a copy's
    type has sizes that its source's has not, a view with these sizes comes in between.

    Before::

        func.func @main(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
          %0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 floordiv 8, d0 mod 8)>, shape = affine_map<() -> (32)>}
            : (tensor<4x8xf32>) -> tensor<32xf32>
          %1 = "kiln.view"(%0) {map = affine_map<(d0, d1) -> (d1 * 8 + d0)>, shape = affine_map<() -> (8, 4)>}
            : (tensor<32xf32>) -> tensor<8x4xf32>
          return %1 : tensor<8x4xf32>
        }

    After::

        #map = affine_map<(d0, d1) -> (d1, d0)>
        #map1 = affine_map<() -> (8, 4)>
        func.func @main(%arg0: tensor<4x8xf32>) -> tensor<8x4xf32> {
          %0 = "kiln.view"(%arg0) {map = #map, shape = #map1} : (tensor<4x8xf32>) -> tensor<8x4xf32>
          return %0 : tensor<8x4xf32>
        }
    """

    name = "compose-views"

    def run(self, module: ir.Module) -> None:
        """Rewrite every function."""
        for op in module.body.operations:
            if op.operation.name == "func.func" and op.operation.regions[0].blocks:
                self.count("matched", compose_views(op.operation))


def compose_views(function: ir.Operation) -> int:
    """Compose all views of ``function``; returns how many were rewritten."""
    from kiln.passes.views.concatenations import in_one_part, is_returned
    from kiln.passes.views.function_views import FunctionViews, is_view

    views = FunctionViews(function)
    block = function.regions[0].blocks[0]
    rewritten = sum(_view_before(views, op.operation) for op in list(block.operations))
    for op in [op.operation for op in block.operations]:
        if op.name != "kiln.view":
            continue
        result = op.results[0]
        view = views.read(result)
        while not is_returned(result) and (part := in_one_part(views, view)) is not None:
            view = part
        same = view.source == op.operands[0] and not is_view(op.operands[0])
        simple = list(view.indices) == list(ir.AffineMapAttr(op.attributes["map"]).value.results)
        droppable = views.is_identity(view) and view.source.type == result.type
        if same and simple and not droppable:
            continue
        with ir.InsertionPoint(op), op.location:
            replacement = views.emit(view)
        if replacement.type != result.type or replacement == result or not may_rewrite(op, "compose"):
            continue
        result.replace_all_uses_with(replacement)
        rewritten += 1
    erase_dead(block)
    return rewritten


def _view_before(views: "FunctionViews", op: ir.Operation) -> bool:
    """Put a view with a copy's sizes between it and its source where their types differ. MLIR's `canonicalize` would
    put a `tensor.cast` there, which does not say what sizes depend on.
    """
    from kiln.passes.views.function_views import View

    if not _is_copy(op) or op.operands[0].type == op.results[0].type or not may_rewrite(op, "view-before"):
        return False
    sizes = views.sizes(op.results[0])
    identity = tuple(ir.AffineExpr.get_dim(k) for k in range(len(sizes)))
    with ir.InsertionPoint(op), op.location:
        op.operands[0] = views.emit(View(op.operands[0], identity, sizes))
    return True


def _is_copy(op: ir.Operation) -> bool:
    """Whether ``op`` is a `linalg.generic` whose result has the elements of its one operand, each in its place."""
    if op.name != "linalg.generic" or len(op.operands) != 2 or len(op.results) != 1:
        return False
    block = op.regions[0].blocks[0]
    identity = ir.AffineMap.get_identity(len(ir.ArrayAttr(op.attributes["iterator_types"])))
    in_place = all(ir.AffineMapAttr(m).value == identity for m in ir.ArrayAttr(op.attributes["indexing_maps"]))
    return in_place and list(list(block)[-1].operands) == [block.arguments[0]]
