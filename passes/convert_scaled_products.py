# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of 8-bit floats with scales as products, not as calls."""

import json
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.rounding import round_implicitly
from kiln.lowering.gpu.rules import ProductRules, rules_for
from kiln.passes.core import Pass, register_pass
from kiln.passes.loops import generic
from kiln.passes.rewrites import may_rewrite

__all__ = ["ConvertScaledProducts"]

_CALL = "aten._scaled_mm.default"
_NAMES = ("self", "mat2", "scale_a", "scale_b", "bias", "scale_result", "out_dtype", "use_fast_accum")
_FLOAT8 = (ir.Float8E4M3FNType, ir.Float8E5M2Type)


@register_pass
@dataclass
class ConvertScaledProducts(Pass):
    """Calls of ``torch._scaled_mm`` become ``kiln.matmul`` of 8-bit floats; scales and bias are pointwise ops behind.

    The sums are f32; one kernel holds them, scales, bias and all that follows. Scales are of tensors, or of rows of the
    left and columns of the right operand. With ``use_fast_accum`` the product has the attribute ``fast_sums``. Calls
    for which cuBLAS was measured to be faster stay calls: those with one scale for each operand, or with many rows.

    Before::

        func.func @main(%x: tensor<16x64xf8E4M3FN>, %w: tensor<64x32xf8E4M3FN>, %a: tensor<16x1xf32>,
            %b: tensor<1x32xf32>) -> tensor<16x32xbf16> {
          %0 = "kiln.aten"(%x, %w, %a, %b)
            {args = "[{\\"operand\\": 0}, {\\"operand\\": 1}, {\\"operand\\": 2}, {\\"operand\\": 3}]",
            kwargs = "{}", op = "aten._scaled_mm.default", pure = true, shapes = [affine_map<() -> (16, 32)>],
            strides = [unit]} : (tensor<16x64xf8E4M3FN>, tensor<64x32xf8E4M3FN>, tensor<16x1xf32>,
            tensor<1x32xf32>) -> tensor<16x32xbf16>
          return %0 : tensor<16x32xbf16>
        }

    After::

        #map = affine_map<() -> (16, 32)>
        #map1 = affine_map<(d0, d1) -> (d0, d1)>
        #map2 = affine_map<(d0, d1) -> (d0, 0)>
        #map3 = affine_map<(d0, d1) -> (0, d1)>
        func.func @main(%arg0: tensor<16x64xf8E4M3FN>, %arg1: tensor<64x32xf8E4M3FN>, %arg2: tensor<16x1xf32>,
            %arg3: tensor<1x32xf32>) -> tensor<16x32xbf16> {
          %0 = "kiln.matmul"(%arg0, %arg1) {transpose_lhs = false, transpose_rhs = false}
              : (tensor<16x64xf8E4M3FN>, tensor<64x32xf8E4M3FN>) -> tensor<16x32xf32>
          %1 = "kiln.empty"() {shape = #map} : () -> tensor<16x32xbf16>
          %2 = linalg.generic {indexing_maps = [#map1, #map2, #map3, #map1], iterator_types = ["parallel", "parallel"]}
              ins(%0, %arg2, %arg3 : tensor<16x32xf32>, tensor<16x1xf32>, tensor<1x32xf32>)
              outs(%1 : tensor<16x32xbf16>) {
          ^bb0(%in: f32, %in_0: f32, %in_1: f32, %out: bf16):
            %3 = arith.mulf %in_0, %in_1 : f32
            %4 = arith.mulf %in, %3 : f32
            %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
            linalg.yield %5 : bf16
          } -> tensor<16x32xbf16>
          return %2 : tensor<16x32xbf16>
        }
    """

    name = "convert-scaled-products"

    arch: str = "sm_90"
    """What the kernels are for: without tensor cores for 8-bit floats (before sm_89), calls stay."""
    most_rows: int = rules_for(ProductRules).scaled_rows
    """Rows of the left operand up to which a call is replaced."""
    most_rows_fast: int = rules_for(ProductRules).scaled_rows_fast
    """The same where ``use_fast_accum`` is set."""
    one_scale: bool = False
    """Replace calls with one scale for each operand, too."""

    def run(self, module: ir.Module) -> None:
        """Rewrite the calls of every function."""
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            for block in function.regions[0].blocks:
                for op in [op.operation for op in block.operations]:
                    is_call = kiln.name_of(op) == "kiln.aten" and "elsewhere" not in op.attributes
                    if is_call and ir.StringAttr(op.attributes["op"]).value == _CALL:
                        reason = self._convert(op)
                        if reason:
                            self.note(op, f"a call: {reason}")
                        self.count("failed" if reason else "matched")

    def _convert(self, op: ir.Operation) -> str | None:
        """Replaces a call; or why not."""
        from kiln.lowering.gpu.dot.machine import machine

        given = _arguments(op)
        if given is None or given.get("scale_result") is not None:
            return "a scale of the result"
        x, w, a, b = (given[name] for name in _NAMES[:4])
        types = [ir.RankedTensorType(v.type) for v in (x, w, a, b, op.results[0])]
        if not all(t.has_static_shape for t in types):
            return "sizes known at run time only"
        if types[0].element_type != types[1].element_type or not isinstance(types[0].element_type, _FLOAT8):
            return f"{types[0].element_type} by {types[1].element_type}"
        if not machine(self.arch).float8:
            return f"{self.arch} has no tensor cores for 8-bit floats"
        result = types[4]
        if not isinstance(result.element_type, (ir.BF16Type, ir.F16Type, ir.F32Type)):
            return f"a result of {result.element_type}"
        found = [_scale_map(types[2], result.shape, 0), _scale_map(types[3], result.shape, 1)]
        maps = [m for m in found if m is not None]
        if len(maps) < 2 or any(not isinstance(t.element_type, ir.F32Type) for t in types[2:4]):
            return "scales of blocks"
        rows, fast = result.shape[0], bool(given.get("use_fast_accum"))
        if not self.one_scale and all(n == 1 for t in types[2:4] for n in t.shape):
            return "one scale for each operand: cuBLAS was measured to be faster"
        if rows > (self.most_rows_fast if fast else self.most_rows):
            return f"{rows} rows: cuBLAS was measured to be faster"
        if not may_rewrite(op):
            return None
        with ir.InsertionPoint(op), op.location:
            f32 = ir.RankedTensorType.get(list(result.shape), ir.F32Type.get())
            product = kiln.matmul(x, w, f32)
            if fast:
                product.owner.operation.attributes["fast_sums"] = ir.UnitAttr.get()
            scaled = _scaled(product, [a, b, given.get("bias")], maps, result)
        op.results[0].replace_all_uses_with(scaled)
        op.erase()
        return None


def _arguments(op: ir.Operation) -> dict[str, Any] | None:
    """The call's arguments by name: values for tensors; None if there is one of a form that is not known."""
    args = json.loads(ir.StringAttr(op.attributes["args"]).value)
    named = json.loads(ir.StringAttr(op.attributes["kwargs"]).value)
    given = dict(zip(_NAMES, args, strict=False)) | named
    if len(args) > len(_NAMES) or not set(given) <= set(_NAMES):
        return None
    return {
        name: op.operands[x["operand"]] if isinstance(x, dict) and "operand" in x else x for name, x in given.items()
    }


def _scale_map(type_: ir.RankedTensorType, sizes: list[int], dim: int) -> ir.AffineMap | None:
    """Where a point [row, column] of the result finds its scale: there is one, or one for each index of `dim`."""
    zero = ir.AffineExpr.get_constant(0)
    if all(n == 1 for n in type_.shape):
        return ir.AffineMap.get(2, 0, [zero] * type_.rank)
    if type_.rank != 2 or type_.shape[dim] != sizes[dim] or type_.shape[1 - dim] != 1:
        return None
    index: list[ir.AffineExpr] = [zero, zero]
    index[dim] = ir.AffineExpr.get_dim(dim)
    return ir.AffineMap.get(2, 0, index)


def _scaled(
    product: ir.Value, others: list[ir.Value | None], maps: list[ir.AffineMap], type_: ir.RankedTensorType
) -> ir.Value:
    """product * (a * b) + bias in f32, rounded to the type; others: a, b, and the bias if there is one."""
    f32, element = ir.F32Type.get(), type_.element_type
    inputs = [product, *(v for v in others if v is not None)]
    identity = ir.AffineMap.get_identity(2)
    columns = [ir.AffineMap.get(2, 0, [ir.AffineExpr.get_dim(1)])] * (len(inputs) - 3)
    out = kiln.empty(element, list(type_.shape))
    loops = generic(inputs, out, [identity, *maps, *columns, identity], ["parallel"] * 2)
    elements = [ir.RankedTensorType(v.type).element_type for v in (*inputs, out)]
    block = loops.regions[0].blocks.append(*elements, arg_locs=[loops.location] * len(elements))

    def made(name: str, *operands: ir.Value, result: ir.Type = f32) -> ir.Value:
        return ir.Operation.create(name, results=[result], operands=list(operands)).result

    with ir.InsertionPoint(block):
        total, a, b, *rest = list(block.arguments)[:-1]
        value = made("arith.mulf", total, made("arith.mulf", a, b))
        for bias in rest:
            value = made("arith.addf", value, bias if bias.type == f32 else made("arith.extf", bias))
        value = value if element == f32 else round_implicitly(element, value)
        ir.Operation.create("linalg.yield", operands=[value])
    return loops.results[0]
