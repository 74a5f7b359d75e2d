# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Takes slices of operands out of kernels, so that kernels which differ in the slice alone are one."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.lowering.host.layout import HostGraph
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

__all__ = ["HoistSlices"]

_KINDS = ("pointwise", "reduction")
"""Kinds of fusions whose code follows from their loops alone. Others recognise the views in their bodies."""


@register_pass
@dataclass
class HoistSlices(Pass):
    """Pass a slice to a fusion that reads only that part of an operand.

    Where the part begins is then an offset that the launch adds to the pointer, and no part of the kernel: the steps
    of a recurrent network, each of which reads its own rows of one product, are one kernel, compiled once. Only what
    has fixed sizes, strides and offsets, and not what is overwritten (``in_place``).

    Before::

        func.func @main(%x: tensor<4x8xf32>) -> tensor<1x8xf32> {
          %0 = "kiln.fusion"(%x) ({
          ^bb0(%a: tensor<4x8xf32>):
            %v = "kiln.view"(%a) {map = affine_map<(d0, d1) -> (d0 + 2, d1)>, shape = affine_map<() -> (1, 8)>}
              : (tensor<4x8xf32>) -> tensor<1x8xf32>
            "kiln.yield"(%v) : (tensor<1x8xf32>) -> ()
          }) {kind = "pointwise", layouts = [affine_map<(d0, d1) -> (d0 * 8 + d1)>, affine_map<(d0, d1) -> (d1)>],
              name = "copy"} : (tensor<4x8xf32>) -> tensor<1x8xf32>
          return %0 : tensor<1x8xf32>
        }

    After::

        #map = affine_map<(d0, d1) -> (d0 + 2, d1)>
        #map1 = affine_map<() -> (1, 8)>
        #map2 = affine_map<(d0, d1) -> (d1)>
        #map3 = affine_map<() -> (16)>
        #map4 = affine_map<() -> (0)>
        func.func @main(%arg0: tensor<4x8xf32>) -> tensor<1x8xf32> {
          %0 = "kiln.view"(%arg0) {map = #map, shape = #map1} : (tensor<4x8xf32>) -> tensor<1x8xf32>
          %1 = "kiln.fusion"(%0) ({
          ^bb0(%arg1: tensor<1x8xf32>):
            "kiln.yield"(%arg1) : (tensor<1x8xf32>) -> ()
          }) {kind = "pointwise", layouts = [#map2, #map2], name = "copy", offsets = [#map3, #map4]}
              : (tensor<1x8xf32>) -> tensor<1x8xf32>
          return %1 : tensor<1x8xf32>
        }
    """

    name = "hoist-slices"

    def run(self, module: ir.Module) -> None:
        """Rewrite every function."""
        for function in module.body:
            if function.operation.name != "func.func" or not len(function.operation.regions[0].blocks):
                continue
            found = [
                (op.operation, i, view)
                for op in function.operation.regions[0].blocks[0]
                if kiln.name_of(op) == "kiln.fusion"
                for i, view in _slices(op.operation)
            ]
            if found:
                graph = HostGraph(function.opview)
                # Last: the analysis knows values by address.
                for unused in [self._hoist(graph, *entry) for entry in found if may_rewrite(entry[2])]:
                    unused.erase()

    def _hoist(self, graph: HostGraph, fusion: ir.Operation, i: int, view: ir.Operation) -> ir.Operation:
        """Reads the view in front of the fusion in place of operand `i`. Returns a view that is left without uses."""
        outer = view.clone(ir.InsertionPoint(fusion))
        outer.operands[0] = fusion.operands[i]
        layout = graph.layout(outer.results[0])
        numbers = [] if layout is None else [affine.constant_of(e) for e in (layout.offset, *layout.strides)]
        if layout is None or None in numbers:
            self.count("failed")
            self.note(view, "read inside: its strides or its offset are not known")
            return outer
        offset, *strides = numbers
        argument = fusion.regions[0].blocks[0].arguments[i]
        view.results[0].replace_all_uses_with(argument)
        argument.set_type(view.results[0].type)
        fusion.operands[i] = outer.results[0]
        _place(fusion, i, offset or 0, strides, ir.RankedTensorType(argument.type).shape)
        self.count("matched")
        return view


def _slices(fusion: ir.Operation) -> list[tuple[int, ir.Operation]]:
    """(operand, view) of the operands of which a fusion reads a part alone, through one view of fixed sizes."""
    attributes = fusion.attributes
    if "layouts" not in attributes or ir.StringAttr(attributes["kind"]).value not in _KINDS:
        return []
    overwritten = list(ir.DenseI64ArrayAttr(attributes["in_place"]))[::2] if "in_place" in attributes else []
    found: list[tuple[int, ir.Operation]] = []
    for i, argument in enumerate(fusion.regions[0].blocks[0].arguments):
        if not isinstance(argument.type, ir.RankedTensorType) or i in overwritten:
            continue
        uses = list(argument.uses)
        view = uses[0].owner.operation if len(uses) == 1 else None
        if view is None or view.name != "kiln.view" or len(view.operands) != 1:
            continue
        whole, part = ir.RankedTensorType(argument.type), ir.RankedTensorType(view.results[0].type)
        if whole.has_static_shape and part.has_static_shape and 0 < _elements(part) < _elements(whole):
            found.append((i, view))
    return found


def _elements(type_: ir.RankedTensorType) -> int:
    count = 1
    for size in type_.shape:
        count *= size
    return count


def _place(fusion: ir.Operation, i: int, offset: int, strides: list[int | None], shape: list[int]) -> None:
    """Sets the layout, the offset and, in a fusion of dynamic operands, the sizes of operand `i`."""
    layouts = list(ir.ArrayAttr(fusion.attributes["layouts"]))
    symbols = ir.AffineMapAttr(layouts[i]).value.n_symbols
    address: ir.AffineExpr = ir.AffineExpr.get_constant(0)
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if size != 1:  # along a size of 1 the index is always 0
            address = address + ir.AffineExpr.get_dim(dim) * (stride or 0)
    layouts[i] = ir.AffineMapAttr.get(ir.AffineMap.get(len(shape), symbols, [address]))
    fusion.attributes["layouts"] = ir.ArrayAttr.get(layouts)
    zero = ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, [ir.AffineExpr.get_constant(0)]))
    offsets = list(ir.ArrayAttr(fusion.attributes["offsets"])) if "offsets" in fusion.attributes else []
    offsets = offsets or [zero] * len(layouts)
    offsets[i] = ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, [ir.AffineExpr.get_constant(offset)]))
    fusion.attributes["offsets"] = ir.ArrayAttr.get(offsets)
    if "shapes" in fusion.attributes:
        shapes = list(ir.ArrayAttr(fusion.attributes["shapes"]))
        sizes = [ir.AffineExpr.get_constant(size) for size in shape]
        shapes[i] = ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, sizes))
        fusion.attributes["shapes"] = ir.ArrayAttr.get(shapes)
