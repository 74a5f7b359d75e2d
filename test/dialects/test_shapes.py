# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Symbolic sizes of values in functions and fusion bodies."""

from torch_mlir import ir

from kiln.dialects import create_context, parse
from kiln.dialects.kiln import name_of
from kiln.dialects.shapes import SymbolicShapes

TEXT = """
#row = affine_map<(d0, d1) -> (d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<4x?x?xf32> {kiln.shape = affine_map<()[s0, s1] -> (4, s0, s1 * 2)>},
                %n: index {kiln.symbol = "s27"}, %m: index {kiln.symbol = "s3"}, %w: tensor<8x?xf32>) {
  %t = "kiln.view"(%x, %m, %n) {map = affine_map<(d0, d1, d2)[s0, s1] -> (d2, d1, d0)>,
    shape = affine_map<()[s0, s1] -> (s0 * 2, s1, 4)>} : (tensor<4x?x?xf32>, index, index) -> tensor<?x?x4xf32>
  %sm = "kiln.softmax"(%t) {dim = 1, log = false} : (tensor<?x?x4xf32>) -> tensor<?x?x4xf32>
  %u:2 = "kiln.aten"(%x) {op = "aten.nonzero.default", args = "[]", kwargs = "{}", shapes = [unit, unit],
    strides = [unit, unit], pure = true} : (tensor<4x?x?xf32>) -> (tensor<?x3xi64>, index)
  %e = "kiln.empty"(%u#1) {shape = affine_map<()[s0] -> (s0 + 1)>} : (index) -> tensor<?xf32>
  %c1 = arith.constant 1 : index
  %d = tensor.dim %x, %c1 : tensor<4x?x?xf32>
  %k = arith.muli %d, %m : index
  %te = tensor.empty(%k) : tensor<?x4xf32>
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<4x?x?xf32> into tensor<?x?xf32>
  %dw = "kiln.matmul"(%w, %w) {transpose_lhs = true, transpose_rhs = false}
    : (tensor<8x?xf32>, tensor<8x?xf32>) -> tensor<?x?xf32>
  %f = "kiln.fusion"(%flat, %k) ({
  ^bb0(%a: tensor<?x?xf32>, %s: index):
    %o = "kiln.empty"(%s) {shape = affine_map<()[s0] -> (s0 floordiv 2)>} : (index) -> tensor<?xf32>
    "kiln.yield"(%o) : (tensor<?xf32>) -> ()
  }) {kind = "pointwise", name = "f"} : (tensor<?x?xf32>, index) -> tensor<?xf32>
  return
}
"""


def test_function_values() -> None:
    with create_context(), ir.Location.unknown():
        module = parse(TEXT)
        function = module.body.operations[0]
        shapes = SymbolicShapes(function)
        ops = {name_of(op): op for op in function.regions[0].blocks[0].operations}

        def text(name: str) -> str:
            return ", ".join(str(e) for e in shapes.dims(ops[name].operation.results[0]))

        assert len(shapes.symbols) == 3
        assert [str(e) for e in shapes.dims(function.arguments[0])] == ["4", "s0", "s1 * 2"]
        assert text("kiln.view") == "s1 * 2, s0, 4"
        assert text("kiln.softmax") == "s1 * 2, s0, 4"
        assert text("kiln.empty") == "s2 + 1"
        assert text("tensor.empty") == "s0 * s1, 4"
        assert text("tensor.collapse_shape") == "s0 * 4, s1 * 2"
        assert text("kiln.matmul") == "s3, s3"
        assert text("kiln.fusion") == "(s0 * s1) floordiv 2"
        assert shapes.fresh == [(function.arguments[3], 1)]
        assert str(shapes.expr(ops["arith.muli"].result)) == "s0 * s1"


def test_fusion_arguments_without_shapes_come_from_the_operands() -> None:
    with create_context(), ir.Location.unknown():
        module = parse("""
          func.func @main(%x: tensor<4x?xf32> {kiln.shape = affine_map<()[s0, s1] -> (4, s1 * 2)>},
                          %n: index, %m: index) {
            "kiln.fusion"(%x, %m) ({
            ^bb0(%a: tensor<4x?xf32>, %s: index):
              "kiln.yield"() : () -> ()
            }) {kind = "pointwise", name = "f"} : (tensor<4x?xf32>, index) -> ()
            return
          }""")
        fusion = module.body.operations[0].regions[0].blocks[0].operations[0]
        shapes = SymbolicShapes(fusion)
        assert [str(e) for e in shapes.dims(fusion.block.arguments[0])] == ["4", "s0 * 2"]
        assert not shapes.fresh


def test_hints_of_sizes() -> None:
    text = """func.func @main(%n: index {kiln.hint = 8 : i64}, %m: index {kiln.hint = 0 : i64}, %k: index) { return }"""
    with create_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        shapes = SymbolicShapes(module.body.operations[0])
        n, m, k = (ir.AffineExpr.get_symbol(i) for i in range(3))
        assert shapes.hint(n * 2 + 1) == 17 and shapes.hint(m) == 0 and shapes.hint(ir.AffineExpr.get_constant(3)) == 3
        assert shapes.hint(n + k) is None and shapes.hint(ir.AffineExpr.get_floor_div(n, m)) is None
