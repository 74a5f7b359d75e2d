# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention in the type of what it reads, where a model converts to f32 around it."""

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.lowering import paths
from kiln.passes.core import Pass, register_pass
from kiln.passes.dead import erase_dead
from kiln.passes.rewrites import may_rewrite

if TYPE_CHECKING:
    from kiln.passes.views.function_views import FunctionViews, View

__all__ = ["NarrowAttention"]


_TAKEN = paths.group("any narrow-attention", "mask", "narrowed")


@register_pass
@dataclass
class NarrowAttention(Pass):
    """Remove conversions to f32 and back around attention of 16-bit tensors.

    Scores, softmax and sums of `kiln.attention` are in f32 anyway, so only probabilities are rounded, as in every fused
    kernel for 16 bits; the conversions and f32 products go. PyTorch takes `scaled_dot_product_attention` apart like
    this where a mask keeps it from its fused kernels. A mask of zeros and minus infinities, made from a boolean one, is
    read as the boolean one, and any other one before it was converted to f32. Views between stay index maps.

    Before::

        func.func @main(%q: tensor<2x16x8xbf16>, %k: tensor<2x16x8xbf16>, %v: tensor<2x16x8xbf16>)
            -> tensor<2x16x8xbf16> {
          %e = "kiln.empty"() {shape = affine_map<() -> (2, 16, 8)>} : () -> tensor<2x16x8xf32>
          %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>,
              affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]}
              ins(%q : tensor<2x16x8xbf16>) outs(%e : tensor<2x16x8xf32>) {
          ^bb0(%in: bf16, %out: f32):
            %w = arith.extf %in : bf16 to f32
            linalg.yield %w : f32
          } -> tensor<2x16x8xf32>
          %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>,
              affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]}
              ins(%k : tensor<2x16x8xbf16>) outs(%e : tensor<2x16x8xf32>) {
          ^bb0(%in: bf16, %out: f32):
            %w = arith.extf %in : bf16 to f32
            linalg.yield %w : f32
          } -> tensor<2x16x8xf32>
          %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>,
              affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]}
              ins(%v : tensor<2x16x8xbf16>) outs(%e : tensor<2x16x8xf32>) {
          ^bb0(%in: bf16, %out: f32):
            %w = arith.extf %in : bf16 to f32
            linalg.yield %w : f32
          } -> tensor<2x16x8xf32>
          %3 = "kiln.attention"(%0, %1, %2) {causal = false, scale = 1.0 : f64}
              : (tensor<2x16x8xf32>, tensor<2x16x8xf32>, tensor<2x16x8xf32>) -> tensor<2x16x8xf32>
          %f = "kiln.empty"() {shape = affine_map<() -> (2, 16, 8)>} : () -> tensor<2x16x8xbf16>
          %4 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>,
              affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]}
              ins(%3 : tensor<2x16x8xf32>) outs(%f : tensor<2x16x8xbf16>) {
          ^bb0(%in: f32, %out: bf16):
            %n = arith.truncf %in : f32 to bf16
            linalg.yield %n : bf16
          } -> tensor<2x16x8xbf16>
          return %4 : tensor<2x16x8xbf16>
        }

    After::

        func.func @main(%arg0: tensor<2x16x8xbf16>, %arg1: tensor<2x16x8xbf16>,
            %arg2: tensor<2x16x8xbf16>) -> tensor<2x16x8xbf16> {
          %0 = "kiln.attention"(%arg0, %arg1, %arg2) {causal = false, scale = 1.000000e+00 : f64}
              : (tensor<2x16x8xbf16>, tensor<2x16x8xbf16>, tensor<2x16x8xbf16>) -> tensor<2x16x8xbf16>
          return %0 : tensor<2x16x8xbf16>
        }
    """

    name = "narrow-attention"

    def run(self, module: ir.Module) -> None:
        """Rewrite every function."""
        from kiln.dialects import kiln
        from kiln.passes.views.function_views import FunctionViews

        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if not function.regions[0].blocks:
                continue
            block = function.regions[0].blocks[0]
            attentions = [op.operation for op in block.operations if kiln.name_of(op.operation) == "kiln.attention"]
            if not attentions:
                continue
            views = FunctionViews(function)
            for op in attentions:
                self._mask(op, views)
                self._narrow(op, views)
            erase_dead(block, also=("linalg.generic", "kiln.attention"))

    def _mask(self, op: ir.Operation, views: "FunctionViews") -> None:
        """The boolean mask, or the one that was converted, in the place of the mask."""
        if len(op.operands) < 4:
            return
        fill = op.attributes["fill"] if "fill" in op.attributes else None
        view = views.read(op.operands[3])
        while (narrow := _converted(view, views)) is not None:
            view = narrow
        boolean = _selected(view, views) if fill is None or ir.FloatAttr(fill).value == -inf else None
        if boolean is None and view.source == views.read(op.operands[3]).source:
            return
        if not may_rewrite(op, "mask"):
            return
        with ir.InsertionPoint(op), op.location:
            op.operands[3] = views.emit(boolean or view)
        self.count("masks")
        _TAKEN("mask")

    def _narrow(self, op: ir.Operation, views: "FunctionViews") -> None:
        from kiln.dialects import kiln

        result = op.results[0]
        if not isinstance(ir.RankedTensorType(result.type).element_type, ir.F32Type):
            return
        sources = [_converted(views.read(value), views) for value in list(op.operands)[:3]]
        given = [view for view in sources if view is not None]
        if not given:
            return
        elements = {str(ir.RankedTensorType(view.source.type).element_type) for view in given}
        readers = [use.owner.operation for use in result.uses]
        wanted = {str(ir.RankedTensorType(reader.results[0].type).element_type) for reader in readers if reader.results}
        if len(given) < 3 or len(elements) != 1 or not elements <= {"bf16", "f16"}:
            self.note(op, f"query, key and value are not all converted from one 16-bit type: {sorted(elements)}")
            self.count("failed")
            return
        if wanted != elements or any(_conversion(reader) is None for reader in readers):
            self.note(op, f"the result is read in f32, or becomes another type than {min(elements)}")
            self.count("failed")
            return
        if not may_rewrite(op, "narrow"):
            return
        attributes = op.attributes
        with ir.InsertionPoint(op), op.location:
            query, key, value = (views.emit(view) for view in given)
            narrow = kiln.attention(
                query,
                key,
                value,
                ir.FloatAttr(attributes["scale"]).value,
                bool(ir.IntegerAttr(attributes["causal"]).value),
                op.operands[3] if len(op.operands) > 3 else None,
                ir.FloatAttr(attributes["fill"]).value if "fill" in attributes else None,
            )
        for name in [a if isinstance(a, str) else a.name for a in attributes]:
            if name not in narrow.owner.attributes:
                narrow.owner.attributes[name] = attributes[name]
        for reader in readers:
            reader.results[0].replace_all_uses_with(narrow)
        self.count("matched")
        _TAKEN("narrowed")


def _conversion(op: ir.Operation) -> ir.Value | None:
    """What an elementwise conversion between float types reads, element by element; None for any other op."""
    from kiln.passes.views.elementwise import is_elementwise

    if op.name != "linalg.generic" or not is_elementwise(op) or len(op.operands) != 2:
        return None
    maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
    block = op.regions[0].blocks[0]
    inner = [o.operation for o in block.operations]
    if maps[0] != maps[1] or [o.name for o in inner[:-1]] not in (["arith.extf"], ["arith.truncf"]):
        return None
    alone = inner[0].operands[0] == block.arguments[0] and inner[1].operands[0] == inner[0].results[0]
    return op.operands[0] if alone else None


def _converted(view: "View", views: "FunctionViews") -> "View | None":
    """The same elements before they became wider; None where they did not."""
    op = defining_op(view.source)
    source = None if op is None else _conversion(op)
    if source is None or op is None or op.regions[0].blocks[0].operations[0].operation.name != "arith.extf":
        return None
    return _through(view, [ir.AffineExpr.get_dim(k) for k in range(len(view.indices))], source, views)


def _through(view: "View", indices: list[ir.AffineExpr], source: ir.Value, views: "FunctionViews") -> "View":
    """`view` of what reads `source` at `indices`, as a view of what lies under the views that make `source`."""
    from kiln.dialects import affine
    from kiln.passes.views.function_views import View

    below = views.read(source)
    outer = [affine.substitute(e, list(view.indices)) for e in indices]
    found = (affine.simplify(affine.substitute(e, outer), view.sizes) for e in below.indices)
    return View(below.source, tuple(found), view.sizes)


def _selected(view: "View", views: "FunctionViews") -> "View | None":
    """The boolean elements where `view` has 0, whose other elements are minus infinity; None for other views."""
    from kiln.passes.views.elementwise import is_elementwise

    op = defining_op(view.source)
    if op is None or op.name != "linalg.generic" or not is_elementwise(op):
        return None
    block = op.regions[0].blocks[0]
    select = defining_op([o.operation for o in block.operations][-1].operands[0])
    if select is None or select.name != "arith.select":
        return None
    condition, kept, removed = select.operands
    if _number(op, kept) != 0.0 or _number(op, removed) != -inf or not isinstance(condition, ir.BlockArgument):
        return None
    position = condition.arg_number
    index_map = ir.AffineMapAttr(ir.ArrayAttr(op.attributes["indexing_maps"])[position]).value
    return _through(view, list(index_map.results), op.operands[position], views)


def _number(op: ir.Operation, value: ir.Value) -> float | None:
    """A value inside of the body of `op` that is the same number everywhere."""
    if isinstance(value, ir.BlockArgument):
        if value.owner != op.regions[0].blocks[0]:
            return None
        op = defining_op(op.operands[value.arg_number])  # type: ignore[assignment] - None ends the walk below
        if op is None or op.name != "linalg.generic" or len(op.operands) != 1:
            return None
        inner = [o.operation for o in op.regions[0].blocks[0].operations]
        value = inner[-1].operands[0]
        if isinstance(value, ir.BlockArgument):
            return None
    constant = defining_op(value)
    if constant is None or constant.name != "arith.constant":
        return None
    number = constant.attributes["value"]
    return ir.FloatAttr(number).value if isinstance(number, ir.FloatAttr) else None
