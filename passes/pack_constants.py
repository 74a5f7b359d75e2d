# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Puts constant weights into the order that the kernels reading them want."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.kiln import FusionOp
from kiln.dialects.schedules import from_attribute
from kiln.lowering.cpu.tile.packed import packed_operands
from kiln.lowering.host.constants import constant_name
from kiln.lowering.host.kernels import fusion_key
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

__all__ = ["PackConstants"]

_Packed = list[tuple[int, ir.AffineMap, int]]
"""As ``packed_operands`` returns them."""


@register_pass
@dataclass
class PackConstants(Pass):
    """Insert a ``kiln.pack`` for each constant weight, in the layout that the schedule of its kernel asks for.

    A convolution packs its weights into scratch at every call; those of a frozen model (``kiln.constant`` arguments)
    are packed when the code is loaded. So are the right matrices of products, where ``schedule-cpu`` chose a kernel
    for packed ones.

    Before::

        #x = affine_map<(d0, d1, d2, d3) -> (d1 + d2 * 64 + d3 * 8)>
        #w = affine_map<(d0, d1, d2, d3) -> (d0 * 9 + d2 * 3 + d3)>
        func.func @main(%x: tensor<1x8x8x8xf32>, %w: tensor<8x1x3x3xf32> {kiln.constant = "weight"})
            -> tensor<1x8x8x8xf32> {
          %0 = "kiln.fusion"(%x, %w) ({
          ^bb0(%a: tensor<1x8x8x8xf32>, %b: tensor<8x1x3x3xf32>):
            %r = "kiln.conv"(%a, %b) {dilation = array<i64: 1, 1>, groups = 8 : i64,
              output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, stride = array<i64: 1, 1>,
              transposed = false} : (tensor<1x8x8x8xf32>, tensor<8x1x3x3xf32>) -> tensor<1x8x8x8xf32>
            "kiln.yield"(%r) : (tensor<1x8x8x8xf32>) -> ()
          }) {kind = "conv", layouts = [#x, #w, #x], name = "conv",
              schedule = {kernel = "cpu.conv.depthwise", mr = 8 : i64, span = 8 : i64, width = 8 : i64}}
              : (tensor<1x8x8x8xf32>, tensor<8x1x3x3xf32>) -> tensor<1x8x8x8xf32>
          return %0 : tensor<1x8x8x8xf32>
        }

    After::

        #map = affine_map<(d0, d1, d2, d3) -> ((d2 * 3 + d3) * 16 + d0)>
        #map1 = affine_map<(d0, d1, d2, d3) -> (d1 + d2 * 64 + d3 * 8)>
        func.func @main(%arg0: tensor<1x8x8x8xf32>,
            %arg1: tensor<8x1x3x3xf32> {kiln.constant = "weight"}) -> tensor<1x8x8x8xf32> {
          %0 = "kiln.pack"(%arg1) {elements = 144 : i64, layout = #map} : (tensor<8x1x3x3xf32>) -> tensor<8x1x3x3xf32>
          %1 = "kiln.fusion"(%arg0, %0) ({
          ^bb0(%arg2: tensor<1x8x8x8xf32>, %arg3: tensor<8x1x3x3xf32>):
            %2 = "kiln.conv"(%arg2, %arg3)
                {dilation = array<i64: 1, 1>, groups = 8 : i64, output_padding = array<i64: 0, 0>,
                padding = array<i64: 1, 1>, stride = array<i64: 1, 1>, transposed = false}
                : (tensor<1x8x8x8xf32>, tensor<8x1x3x3xf32>) -> tensor<1x8x8x8xf32>
            "kiln.yield"(%2) : (tensor<1x8x8x8xf32>) -> ()
          }) {kind = "conv", layouts = [#map1, #map, #map1], name = "conv", schedule =
              {kernel = "cpu.conv.depthwise", mr = 8 : i64, span = 8 : i64, width = 8 : i64}}
              : (tensor<1x8x8x8xf32>, tensor<8x1x3x3xf32>) -> tensor<1x8x8x8xf32>
          return %1 : tensor<1x8x8x8xf32>
        }
    """

    name = "pack-constants"

    def run(self, module: ir.Module) -> None:
        """Pack in every function; equal requests for one constant share one copy."""
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if not _has_constants(function):
                continue  # not frozen: no kernel has to be asked
            made: dict[tuple[ir.Value, str, int], ir.Value] = {}
            wanted: dict[str, _Packed] = {}
            for op in list(function.regions[0].blocks[0].operations):
                if isinstance(op, FusionOp) and "schedule" in op.operation.attributes:
                    key = fusion_key(op.operation)  # equal kernels ask for the same: layers repeat
                    if key not in wanted:
                        body, schedule = FusionBody(op), from_attribute(op.operation.attributes["schedule"])
                        wanted[key] = packed_operands(body, fusion_layouts(op, body), schedule)
                    if wanted[key]:
                        self._pack(function, op, wanted[key], made)

    def _pack(
        self,
        function: ir.Operation,
        fusion: ir.OpView,
        wanted: "_Packed",
        made: dict[tuple[ir.Value, str, int], ir.Value],
    ) -> None:
        attributes, operands = fusion.operation.attributes, fusion.operation.operands
        entries = list(ir.ArrayAttr(attributes["layouts"]))
        for position, layout, elements in wanted:
            weight = operands[position]
            if constant_name(weight) is None or not ir.RankedTensorType(weight.type).has_static_shape:
                self.note(fusion, "the weight is no constant: packed at every call")
                self.count("failed")
                continue
            if not may_rewrite(fusion, "pack"):
                continue
            key = (weight, str(layout), elements)
            if key not in made:
                with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]), fusion.operation.location:
                    made[key] = kiln.pack(weight, layout, elements)
            operands[position] = made[key]
            entries[position] = ir.AffineMapAttr.get(layout)
            self.count("matched")
        attributes["layouts"] = ir.ArrayAttr.get(entries)


def _has_constants(function: ir.Operation) -> bool:
    """Whether an argument of a function is a constant of the graph."""
    if "arg_attrs" not in function.attributes:
        return False
    return any("kiln.constant" in ir.DictAttr(entry) for entry in ir.ArrayAttr(function.attributes["arg_attrs"]))
