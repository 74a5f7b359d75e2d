# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products that read weights of 8-bit integers as they are."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.walk import defining_op
from kiln.passes.core import Pass, register_pass
from kiln.passes.dead import erase_dead
from kiln.passes.rewrites import may_rewrite
from kiln.passes.views.elementwise import is_elementwise

__all__ = ["FoldDequantization"]


@register_pass
@dataclass
class FoldDequantization(Pass):
    """Let products read 8-bit integer weights as they are, without the conversion (and scaling) in front.

    The conversion moves into the product's kernel, which reads a half or a quarter of the bytes; a factor of each
    column of the result moves behind the product, where its kernel takes it as any other op. Integers of 8 bits are
    exact in every float type, so that the sums have no error but their own; in f16, whose range they could leave,
    factors stay where they are.

    Before::

        func.func @main(%x: tensor<4x8xf32>, %w: tensor<16x8xi8>, %s: tensor<16x1xf32>) -> tensor<4x16xf32> {
          %e = "kiln.empty"() {shape = affine_map<() -> (16, 8)>} : () -> tensor<16x8xf32>
          %0 = linalg.generic {indexing_maps = [affine_map<(n, k) -> (n, k)>, affine_map<(n, k) -> (n, k)>],
              iterator_types = ["parallel", "parallel"]} ins(%w : tensor<16x8xi8>) outs(%e : tensor<16x8xf32>) {
          ^bb0(%a: i8, %out: f32):
            %f = arith.sitofp %a : i8 to f32
            linalg.yield %f : f32
          } -> tensor<16x8xf32>
          %1 = linalg.generic {indexing_maps = [affine_map<(n, k) -> (n, k)>, affine_map<(n, k) -> (n, 0)>,
              affine_map<(n, k) -> (n, k)>], iterator_types = ["parallel", "parallel"]}
              ins(%0, %s : tensor<16x8xf32>, tensor<16x1xf32>) outs(%e : tensor<16x8xf32>) {
          ^bb0(%a: f32, %b: f32, %out: f32):
            %f = arith.mulf %a, %b : f32
            linalg.yield %f : f32
          } -> tensor<16x8xf32>
          %2 = "kiln.matmul"(%x, %1) {transpose_lhs = false, transpose_rhs = true}
            : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
          return %2 : tensor<4x16xf32>
        }

    After::

        #map = affine_map<() -> (4, 16)>
        #map1 = affine_map<(d0, d1) -> (d0, d1)>
        #map2 = affine_map<(d0, d1) -> (d1, 0)>
        func.func @main(%arg0: tensor<4x8xf32>, %arg1: tensor<16x8xi8>, %arg2: tensor<16x1xf32>) -> tensor<4x16xf32> {
          %0 = "kiln.matmul"(%arg0, %arg1) {transpose_lhs = false, transpose_rhs = true}
            : (tensor<4x8xf32>, tensor<16x8xi8>) -> tensor<4x16xf32>
          %1 = "kiln.empty"() {shape = #map} : () -> tensor<4x16xf32>
          %2 = linalg.generic {indexing_maps = [#map1, #map2, #map1], iterator_types = ["parallel", "parallel"]}
              ins(%0, %arg2 : tensor<4x16xf32>, tensor<16x1xf32>) outs(%1 : tensor<4x16xf32>) {
          ^bb0(%in: f32, %in_0: f32, %out: f32):
            %3 = arith.mulf %in, %in_0 : f32
            linalg.yield %3 : f32
          } -> tensor<4x16xf32>
          return %2 : tensor<4x16xf32>
        }
    """

    name = "fold-dequantization"

    def run(self, module: ir.Module) -> None:
        """Rewrite the products of every function."""
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if not function.regions[0].blocks:
                continue
            block = function.regions[0].blocks[0]
            folded = [
                self._fold(op) for op in [op.operation for op in block.operations] if kiln.name_of(op) == "kiln.matmul"
            ]
            if any(folded):
                erase_dead(block, also=("linalg.generic",))

    def _fold(self, op: ir.Operation) -> bool:
        rhs = op.operands[1]
        column = 0 if ir.IntegerAttr(op.attributes["transpose_rhs"]).value else 1
        scale = None
        integers = _integers(rhs)
        if integers is None:
            scale = _scaled(rhs, column)
            integers = None if scale is None else _integers(scale.operands[0])
        if integers is None:
            return False
        result = ir.RankedTensorType(op.results[0].type)
        why = None
        if ir.RankedTensorType(rhs.type).rank != 2:
            why = "a batch of weights stays converted"
        elif scale is not None and not result.has_static_shape:
            why = "factors stay with the weights: the number of rows is known at run time only"
        elif scale is not None and isinstance(result.element_type, ir.F16Type):
            why = "factors stay with the weights: sums of products with integers could leave the range of f16"
        if why is not None:
            self.note(op, why)
            self.count("failed")
            return False
        if not may_rewrite(op, "weights" if scale is None else "weights and factors"):
            return False
        op.operands[1] = integers
        if scale is not None:
            _scale_result(op, scale, column)
        self.count("matched")
        return True


def _body(op: ir.Operation) -> list[ir.Operation]:
    return [inner.operation for inner in op.regions[0].blocks[0].operations]


def _maps(op: ir.Operation) -> list[ir.AffineMap]:
    return [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]


def _integers(value: ir.Value) -> ir.Value | None:
    """The signed 8-bit integers that `value` is converted from, one by one; None if it is made in another way."""
    op = defining_op(value)
    if op is None or op.name != "linalg.generic" or len(op.operands) != 2 or not is_elementwise(op):
        return None
    maps, inner = _maps(op), _body(op)
    element = ir.RankedTensorType(op.operands[0].type).element_type
    if maps[0] != maps[1] or not isinstance(element, ir.IntegerType) or element.width != 8:
        return None
    if [o.name for o in inner[:-1]] not in (["arith.sitofp"], ["arith.sitofp", "arith.truncf"]):
        return None
    chained = all(y.operands[0] == x.results[0] for x, y in zip(inner[:-1], inner[1:], strict=True))
    return op.operands[0] if chained and inner[0].operands[0] == op.regions[0].blocks[0].arguments[0] else None


def _scaled(value: ir.Value, column: int) -> ir.Operation | None:
    """The op that makes `value` of a matrix times factors that depend on the dim `column` alone; None for others."""
    op = defining_op(value)
    if op is None or op.name != "linalg.generic" or len(op.operands) != 3 or not is_elementwise(op):
        return None
    maps, inner = _maps(op), _body(op)
    names = [o.name for o in inner[:-1] if o.name != "arith.extf"]
    if names not in (["arith.mulf"], ["arith.mulf", "arith.truncf"]) or maps[0] != maps[2]:
        return None
    if any(affine.dims_in(e) - {column} or affine.symbols_in(e) for e in maps[1].results):
        return None
    product = next(o for o in inner if o.name == "arith.mulf")
    makers = [defining_op(v) for v in product.operands]
    read = [v if maker is None else maker.operands[0] for v, maker in zip(product.operands, makers, strict=True)]
    matrix, factors = list(op.regions[0].blocks[0].arguments)[:2]
    return op if read in ([matrix, factors], [factors, matrix]) else None


def _scale_result(op: ir.Operation, scale: ir.Operation, column: int) -> None:
    """Multiplies the result of the product `op` by the factors of `scale`, as that multiplied the matrix."""
    result = ir.RankedTensorType(op.results[0].type)
    readers = list(op.results[0].uses)
    every, last = ir.AffineMap.get_identity(result.rank), ir.AffineExpr.get_dim(result.rank - 1)
    factors = [affine.substitute(e, {column: last}) for e in _maps(scale)[1].results]
    maps = [every, ir.AffineMap.get(result.rank, 0, factors), every]
    parallel = ", ".join(["#linalg.iterator_type<parallel>"] * result.rank)
    # Before its readers, and behind the factors, which the weights were behind.
    with ir.InsertionPoint.after(op), op.location:
        made = ir.Operation.create(
            "linalg.generic",
            results=[result],
            operands=[op.results[0], scale.operands[1], kiln.empty(result.element_type, result.shape)],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
                "iterator_types": ir.Attribute.parse(f"[{parallel}]"),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 1]),
            },
            regions=1,
        )
        old = scale.regions[0].blocks[0]
        new = made.regions[0].blocks.append(*(a.type for a in old.arguments), arg_locs=[op.location] * 3)
        values: dict[ir.Value, ir.Value] = dict(zip(old.arguments, new.arguments, strict=True))
        with ir.InsertionPoint(new):
            for inner in _body(scale):
                clone = inner.clone()
                for i, operand in enumerate(inner.operands):
                    clone.operands[i] = values[operand]
                values.update(zip(inner.results, clone.results, strict=True))
    for use in readers:
        use.owner.operands[use.operand_number] = made.results[0]
