# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Grouped-query attention on the key and value heads that there are, without the repeated ones that ATen needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.passes.core import Pass, register_pass
from kiln.passes.dead import erase_dead
from kiln.passes.rewrites import may_rewrite

if TYPE_CHECKING:
    from kiln.passes.views.function_views import FunctionViews, View

__all__ = ["FoldAttentionViews"]


@register_pass
@dataclass
class FoldAttentionViews(Pass):
    """Fold a repetition of key and value heads into the attention: head h reads head `h floordiv f` anyway.

    Both must be repeated the same number of times, as views; a repetition of one of them alone is noted and kept.

    Before::

        func.func @main(%q: tensor<2x4x16x8xf32>, %k: tensor<2x2x16x8xf32>, %v: tensor<2x2x16x8xf32>)
            -> tensor<2x4x16x8xf32> {
          %0 = "kiln.view"(%k) {map = affine_map<(d0, d1, d2, d3) -> (d0, d1 floordiv 2, d2, d3)>,
            shape = affine_map<() -> (2, 4, 16, 8)>} : (tensor<2x2x16x8xf32>) -> tensor<2x4x16x8xf32>
          %1 = "kiln.view"(%v) {map = affine_map<(d0, d1, d2, d3) -> (d0, d1 floordiv 2, d2, d3)>,
            shape = affine_map<() -> (2, 4, 16, 8)>} : (tensor<2x2x16x8xf32>) -> tensor<2x4x16x8xf32>
          %2 = "kiln.attention"(%q, %0, %1) {causal = true, scale = 1.0 : f64}
            : (tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>) -> tensor<2x4x16x8xf32>
          return %2 : tensor<2x4x16x8xf32>
        }

    After::

        func.func @main(%arg0: tensor<2x4x16x8xf32>, %arg1: tensor<2x2x16x8xf32>,
            %arg2: tensor<2x2x16x8xf32>) -> tensor<2x4x16x8xf32> {
          %0 = "kiln.attention"(%arg0, %arg1, %arg2) {causal = true, scale = 1.000000e+00 : f64}
              : (tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x8xf32>) -> tensor<2x4x16x8xf32>
          return %0 : tensor<2x4x16x8xf32>
        }
    """

    name = "fold-attention-views"

    def run(self, module: ir.Module) -> None:
        """Rewrite every function."""
        from kiln.passes.views.function_views import FunctionViews

        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if not function.regions[0].blocks:
                continue
            block = function.regions[0].blocks[0]
            views = FunctionViews(function)
            for op in [op.operation for op in block.operations]:
                if op.name.startswith("kiln.attention"):
                    self._fold(op, views)
            erase_dead(block)

    def _fold(self, op: ir.Operation, views: "FunctionViews") -> None:
        from kiln.dialects import affine

        repeated = [views.read(v) for v in list(op.operands)[1:3]]
        head = len(repeated[0].sizes) - 3
        extent = affine.constant_of(repeated[0].sizes[head])
        factors: list[set[Any]] = [set(_divisors(view, head)) for view in repeated]
        if extent is not None and extent > 1:
            # All heads are one and the same: as many as the other operand wants.
            alike = [not any(head in affine.dims_in(e) for e in view.indices) for view in repeated]
            factors = [f | (factors[1 - k] | {extent} if alike[k] else set[Any]()) for k, f in enumerate(factors)]
        for factor in sorted(factors[0] & factors[1], reverse=True):
            folded = [_without_repetition(view, head, factor) for view in repeated]
            key, value = folded
            if key is None or value is None or not may_rewrite(op):
                continue
            with ir.InsertionPoint(op), op.location:
                op.operands[1], op.operands[2] = views.emit(key), views.emit(value)
            self.count("matched")
            return
        if factors[0] or factors[1]:
            self.note(op, "key and value heads are not repeated in the same way")
            self.count("failed")


def _divisors(view: "View", dim: int) -> Iterator[int]:
    """Constants that an index of the view divides dim `dim` by."""
    stack = list(view.indices)
    while stack:
        expr = stack.pop().maybe_downcast()
        if not isinstance(expr, ir.AffineBinaryExpr):
            continue
        by_constant = isinstance(expr, ir.AffineFloorDivExpr) and isinstance(expr.rhs, ir.AffineConstantExpr)
        if by_constant and expr.lhs == ir.AffineExpr.get_dim(dim):
            yield expr.rhs.value
        stack += [expr.lhs, expr.rhs]


def _without_repetition(view: "View", dim: int, factor: int) -> "View | None":
    """The view with each `factor` equal slices along `dim` once; None if they are not equal."""
    from kiln.dialects import affine
    from kiln.passes.views.function_views import View

    extent = affine.constant_of(view.sizes[dim])
    if extent is None or extent % factor:
        return None
    here = ir.AffineExpr.get_dim(dim)
    sizes = (*view.sizes[:dim], ir.AffineConstantExpr.get(extent // factor), *view.sizes[dim + 1 :])
    once = tuple(affine.simplify(affine.substitute(e, {dim: here * factor}), sizes) for e in view.indices)
    again = {dim: ir.AffineExpr.get_floor_div(here, factor)}
    for index, reduced in zip(view.indices, once, strict=True):
        if not affine.equal(affine.substitute(reduced, again), index, view.sizes):
            return None
    return View(view.source, once, sizes)
