# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Splits products of few tiles with long sums, so that all multiprocessors of a GPU have a part of them."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import kiln
from kiln.dialects.rounding import round_implicitly
from kiln.lowering import paths
from kiln.passes.core import Pass, register_pass
from kiln.passes.loops import generic
from kiln.passes.rewrites import may_rewrite
from kiln.passes.roundings.kept import ROUNDS_SUMS

__all__ = ["PARTS", "SplitProducts"]

PARTS = "parts"
"""Attribute of a product: into how many parts its sums are to be split, as measured (``choose-vendor``)."""


_TAKEN = paths.group("gpu split-products", "split")


@register_pass
@dataclass
class SplitProducts(Pass):
    """Compute a product in parts of its sums, and add these up in a second kernel.

    The parts are a batch of products whose results are f32, which nothing has rounded; the sum over the parts is a
    reduction, to which fusion adds what follows the product. Always the same elements are added in the same order:
    results do not differ from call to call. Which products, and into how many parts, is what ``choose-vendor`` measured
    (``mode="max-autotune"``), else what a rule says that was measured on an H200 (lowering/gpu/dot/split.py).

    Before::

        func.func @main(%x: tensor<64x16384xbf16>, %w: tensor<64x16384xbf16>) -> tensor<64x64xbf16> {
          %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
            : (tensor<64x16384xbf16>, tensor<64x16384xbf16>) -> tensor<64x64xbf16>
          return %0 : tensor<64x64xbf16>
        }

    After ``split-products{parts=32}``::

        #map = affine_map<(d0, d1, d2) -> (d1, d0 * 512 + d2)>
        #map1 = affine_map<() -> (32, 64, 512)>
        #map2 = affine_map<() -> (64, 64)>
        #map3 = affine_map<(d0, d1) -> (d0, d1)>
        #map4 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
        #map5 = affine_map<(d0, d1, d2) -> (d1, d2)>
        func.func @main(%arg0: tensor<64x16384xbf16>, %arg1: tensor<64x16384xbf16>) -> tensor<64x64xbf16> {
          %0 = "kiln.view"(%arg0) {map = #map, shape = #map1} : (tensor<64x16384xbf16>) -> tensor<32x64x512xbf16>
          %1 = "kiln.view"(%arg1) {map = #map, shape = #map1} : (tensor<64x16384xbf16>) -> tensor<32x64x512xbf16>
          %2 = "kiln.matmul"(%0, %1) {transpose_lhs = false, transpose_rhs = true}
              : (tensor<32x64x512xbf16>, tensor<32x64x512xbf16>) -> tensor<32x64x64xf32>
          %3 = "kiln.empty"() {shape = #map2} : () -> tensor<64x64xf32>
          %cst = arith.constant 0.000000e+00 : f32
          %4 = linalg.generic {indexing_maps = [#map3], iterator_types = ["parallel", "parallel"]}
              outs(%3 : tensor<64x64xf32>) {
          ^bb0(%out: f32):
            linalg.yield %cst : f32
          } -> tensor<64x64xf32>
          %5 = linalg.generic {indexing_maps = [#map4, #map5], iterator_types = ["reduction", "parallel", "parallel"]}
              ins(%2 : tensor<32x64x64xf32>) outs(%4 : tensor<64x64xf32>) {
          ^bb0(%in: f32, %out: f32):
            %8 = arith.addf %out, %in : f32
            linalg.yield %8 : f32
          } -> tensor<64x64xf32>
          %6 = "kiln.empty"() {shape = #map2} : () -> tensor<64x64xbf16>
          %7 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]}
              ins(%5 : tensor<64x64xf32>) outs(%6 : tensor<64x64xbf16>) attrs =  {rounds_sums} {
          ^bb0(%in: f32, %out: bf16):
            %8 = arith.truncf %in fastmath<contract> : f32 to bf16
            linalg.yield %8 : bf16
          } -> tensor<64x64xbf16>
          return %7 : tensor<64x64xbf16>
        }
    """

    name = "split-products"

    parts: int = 0
    """Into how many parts; 0: as its attribute ``parts`` says, else as the rule does."""
    by_rule: bool = True
    """Whether the rule is asked."""
    arch: str = "sm_90"
    """What the kernels are for."""

    @override
    def run(self, module: ir.Module) -> None:
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            for block in function.regions[0].blocks:
                products = [op.operation for op in block.operations if kiln.name_of(op.operation) == "kiln.matmul"]
                for op in products:
                    self._split(op)

    def _split(self, op: ir.Operation) -> None:
        from kiln.lowering.gpu.dot.choice import parts_of_product

        known = ir.IntegerAttr(op.attributes[PARTS]).value if PARTS in op.attributes else 0
        if known:
            del op.attributes[PARTS]  # kernels are known by what they compute
        parts = self.parts or known or (parts_of_product(op, self.arch) if self.by_rule else 1)
        if parts == 1:
            self.count("kept")
            return
        lhs = ir.RankedTensorType(op.operands[0].type)
        terms = lhs.shape[-1] if lhs.has_static_shape else 0
        if lhs.rank != 2 or not terms or terms % parts or _flag(op, "transpose_lhs"):
            self.note(op, f"its sums have no {parts} equal parts")
            self.count("kept")
            return
        if not may_rewrite(op):
            return
        with ir.InsertionPoint(op), op.location:
            result = _in_parts(op, parts, terms // parts)
        op.results[0].replace_all_uses_with(result)
        op.erase()
        self.note(result.owner.operation, f"a product in {parts} parts: so few tiles leave most of the GPU idle")
        self.count("split")
        _TAKEN("split")


def _flag(op: ir.Operation, name: str) -> bool:
    return bool(ir.BoolAttr(op.attributes[name]).value)


def _in_parts(op: ir.Operation, parts: int, terms: int) -> ir.Value:
    """The value of a product whose sums are added up from `parts` of `terms` terms each."""
    turned = _flag(op, "transpose_rhs")
    lhs, rhs = (
        _parts_of(v, parts, terms, along) for v, along in zip(op.operands, (1, 1 if turned else 0), strict=True)
    )
    shape = list(ir.RankedTensorType(op.results[0].type).shape)
    f32 = ir.F32Type.get()
    partial = kiln.matmul(lhs, rhs, ir.RankedTensorType.get([parts, *shape], f32), transpose_rhs=turned)
    kinds = ["reduction", "parallel", "parallel"]
    whole, last = ir.AffineMap.get_identity(3), [1, 2]
    zeros = _filled(kiln.empty(f32, shape))
    total = generic([partial], zeros, [whole, ir.AffineMap.get(3, 0, [ir.AffineDimExpr.get(d) for d in last])], kinds)
    block = total.regions[0].blocks.append(f32, f32, arg_locs=[op.location] * 2)
    with ir.InsertionPoint(block):
        added = ir.Operation.create("arith.addf", results=[f32], operands=[block.arguments[1], block.arguments[0]])
        ir.Operation.create("linalg.yield", operands=[added.result])
    return _rounded(total.results[0], ir.RankedTensorType(op.results[0].type))


def _parts_of(value: ir.Value, parts: int, terms: int, along: int) -> ir.Value:
    """A view [parts, ...] of a matrix, cut along a dim."""
    shape = list(ir.RankedTensorType(value.type).shape)
    dims: list[ir.AffineExpr] = [ir.AffineDimExpr.get(1 + i) for i in range(2)]
    dims[along] = ir.AffineDimExpr.get(0) * terms + dims[along]
    shape[along] = terms
    sizes = [ir.AffineExpr.get_constant(n) for n in (parts, *shape)]
    return kiln.view(value, ir.AffineMap.get(3, 0, dims), ir.AffineMap.get(0, 0, sizes))


def _filled(empty: ir.Value) -> ir.Value:
    """Zeros."""
    f32 = ir.F32Type.get()
    zero = ir.Operation.create("arith.constant", results=[f32], attributes={"value": ir.FloatAttr.get(f32, 0.0)})
    fill = generic([], empty, [ir.AffineMap.get_identity(2)], ["parallel"] * 2)
    block = fill.regions[0].blocks.append(f32, arg_locs=[fill.location])
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[zero.result])
    return fill.results[0]


def _rounded(value: ir.Value, type_: ir.RankedTensorType) -> ir.Value:
    """f32 in the type of a tensor."""
    element = type_.element_type
    if isinstance(element, ir.F32Type):
        return value
    same = ir.AffineMap.get_identity(type_.rank)
    cast = generic([value], kiln.empty(element, list(type_.shape)), [same, same], ["parallel"] * type_.rank)
    block = cast.regions[0].blocks.append(ir.F32Type.get(), element, arg_locs=[cast.location] * 2)
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[round_implicitly(element, block.arguments[0])])
    cast.attributes[ROUNDS_SUMS] = ir.UnitAttr.get()
    return cast.results[0]
