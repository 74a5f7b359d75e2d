# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data movement: views, empty tensors, padding, concatenation."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import affine
from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import Dim, Index, Tensor
from kiln.dialects.kiln.family import Family
from kiln.dialects.kiln.table import Role, define, shape_attribute

Symbols = Sequence[ir.Value]


class ViewOp(base.Operation, name="view", traits=[base.Pure]):
    """`result[d...] = x[map(d...)]`: transpose, expand, slice, reshape, flip, unsqueeze, diagonal are all this one op.

    `map` takes one dim per result dimension and gives one index per dimension of `x`; `shape` gives the result's
    sizes.  Both are over the trailing index operands, `s_i` being the i-th.  Every index must be in bounds.

    ```mlir
    func.func @transpose(%x: tensor<4x?xf32>, %n: index) -> tensor<?x4xf32> {
      %0 = "kiln.view"(%x, %n) {map = affine_map<(d0, d1)[s0] -> (d1, d0)>, shape = affine_map<()[s0] -> (s0, 4)>}
        : (tensor<4x?xf32>, index) -> tensor<?x4xf32>
      return %0 : tensor<?x4xf32>
    }
    func.func @collapse(%x: tensor<4x8xf32>) -> tensor<32xf32> {
      %0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 floordiv 8, d0 mod 8)>, shape = affine_map<() -> (32)>}
        : (tensor<4x8xf32>) -> tensor<32xf32>
      return %0 : tensor<32xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    symbols: Sequence[ir.Value[Index]]
    result: base.Result[Tensor]
    map: ir.AffineMapAttr
    shape: ir.AffineMapAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that the map reads within `x` and that `shape` gives the result's sizes."""
        checks.same_element("result", self.result, self.x)
        rank, n = self.result.type.rank, len(self.symbols)
        checks.map_of(self, "map", rank, self.x.type.rank, n)
        checks.shape_matches("result", checks.map_of(self, "shape", 0, rank, n), self.result)
        checks.reads_in_bounds(self)


define(ViewOp, Role.MOVEMENT, shape=shape_attribute, is_free=True, takes_any_sizes=True)


class EmptyOp(base.Operation, name="empty", traits=[base.Pure]):
    """An uninitialised tensor of sizes `shape`: a destination for `linalg` ops, or a carrier of a window's shape.

    ```mlir
    func.func @empty(%n: index) -> tensor<?x8xf32> {
      %0 = "kiln.empty"(%n) {shape = affine_map<()[s0] -> (s0, 8)>} : (index) -> tensor<?x8xf32>
      return %0 : tensor<?x8xf32>
    }
    ```
    """

    symbols: Sequence[ir.Value[Index]]
    result: base.Result[Tensor]
    shape: ir.AffineMapAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that `shape` gives the result's sizes."""
        shape = checks.map_of(self, "shape", 0, self.result.type.rank, len(self.symbols))
        checks.shape_matches("result", shape, self.result)


define(EmptyOp, Role.MOVEMENT, shape=shape_attribute, is_free=True)


class PadOp(base.Operation, name="pad", traits=[base.Pure]):
    """`x` with `low` elements before and `high` after it along each dimension, all equal to the scalar `value`.

    Negative amounts crop.  `shape` is the size of the result: `low + size + high`.

    ```mlir
    func.func @pad(%x: tensor<4xf32>) -> tensor<7xf32> {
      %zero = arith.constant 0.0 : f32
      %0 = "kiln.pad"(%x, %zero) {low = affine_map<() -> (1)>, high = affine_map<() -> (2)>,
        shape = affine_map<() -> (7)>} : (tensor<4xf32>, f32) -> tensor<7xf32>
      return %0 : tensor<7xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    value: ir.Value[Any]
    symbols: Sequence[ir.Value[Index]]
    result: base.Result[Tensor]
    low: ir.AffineMapAttr
    high: ir.AffineMapAttr
    shape: ir.AffineMapAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check the filler's type and that the result's sizes are those of `x` with the padding."""
        checks.same_element("result", self.result, self.x)
        element = self.x.type.element_type
        checks.require(self.value.type == element, "value type", element, self.value.type)
        rank, n = self.x.type.rank, len(self.symbols)
        checks.rank_is("result", self.result, rank)
        low, high = checks.map_of(self, "low", 0, rank, n), checks.map_of(self, "high", 0, rank, n)
        shape = checks.map_of(self, "shape", 0, rank, n)
        checks.shape_matches("result", shape, self.result)
        sizes = zip(low.results, checks.sizes_of(self.x), high.results, checks.sizes_of(self.result), strict=True)
        for i, (before, size, after, total) in enumerate(sizes):
            known = [n for n in (affine.constant_of(before), size, affine.constant_of(after)) if n is not None]
            if len(known) == 3 and total is not None:
                checks.require(sum(known) == total, f"result size of dim {i}", sum(known), total)


define(PadOp, Role.MOVEMENT, shape=shape_attribute, takes_any_sizes=True)


class CatOp(Family):
    """Concatenation of `inputs` along `dim` (0-based); `shape` gives the result's sizes.

    ```mlir
    func.func @cat(%x: tensor<4x?xf32>, %y: tensor<4x2xf32>, %n: index) -> tensor<4x?xf32> {
      %0 = "kiln.cat"(%x, %y, %n) {dim = 1, shape = affine_map<()[s0] -> (4, s0 + 2)>} : (tensor<4x?xf32>, tensor<4x2xf32>, index) -> tensor<4x?xf32>
      return %0 : tensor<4x?xf32>
    }
    ```
    """

    NAME = "cat"
    ATTRIBUTES = {"dim": "#builtin.integer", "shape": "#builtin.affine_map"}

    @staticmethod
    @override
    def check(op: Any) -> None:
        checks.tensors_then_indices(op.operands)
        checks.require(len(op.inputs) > 0, "tensor operands", "at least 1", 0)
        checks.require(len(op.results) == 1, "results", 1, len(op.results))
        result = op.results[0]
        rank = result.type.rank
        dim = checks.dim_in_range(op, "dim", rank)
        shape = checks.map_of(op, "shape", 0, rank, len(op.symbols))
        checks.shape_matches("result", shape, result)
        rest = checks.sizes_of(result)
        for i, x in enumerate(op.inputs):
            checks.same_element(f"operand {i}", x, result)
            checks.same_sizes(f"operand {i}", [None if d == dim else n for d, n in enumerate(rest)], x)
        along = [n for n in (checks.sizes_of(x)[dim] for x in op.inputs) if n is not None]
        if len(along) == len(op.inputs) and rest[dim] is not None:
            checks.require(sum(along) == rest[dim], f"result size of dim {dim}", sum(along), rest[dim])


define(CatOp, Role.MOVEMENT, shape=shape_attribute, takes_any_sizes=True)


# --------------------------------------------------------------------------------------------------------- builders


def view(
    x: Any, map: ir.AffineMap | Sequence[Dim], shape: ir.AffineMap | Sequence[Dim], symbols: Symbols = ()
) -> ir.Value:
    """Build a `kiln.view`: `map` has one index expression per dim of `x`, over result dims and `symbols`."""
    x = base.value_of(x)
    shape = base.as_map(shape, 0, len(symbols))
    map = base.as_map(map, len(shape.results), len(symbols))
    (map, shape), symbols = base.compress_symbols([map, shape], symbols)
    attributes = {"map": ir.AffineMapAttr.get(map), "shape": ir.AffineMapAttr.get(shape)}
    return ViewOp.create([x, *symbols], [base.tensor_type(x.type.element_type, shape)], attributes).result


def empty(element_type: ir.Type, shape: ir.AffineMap | Sequence[Dim], symbols: Symbols = ()) -> ir.Value:
    """Build a `kiln.empty`."""
    (shape,), symbols = base.compress_symbols([base.as_map(shape, 0, len(symbols))], symbols)
    attributes = {"shape": ir.AffineMapAttr.get(shape)}
    return EmptyOp.create(list(symbols), [base.tensor_type(element_type, shape)], attributes).result


def pad(
    x: Any,
    value: Any,
    low: ir.AffineMap | Sequence[Dim],
    high: ir.AffineMap | Sequence[Dim],
    shape: ir.AffineMap | Sequence[Dim],
    symbols: Symbols = (),
) -> ir.Value:
    """Build a `kiln.pad`; `value` is a scalar of the element type."""
    x = base.value_of(x)
    three = [base.as_map(m, 0, len(symbols)) for m in (low, high, shape)]
    three, symbols = base.compress_symbols(three, symbols)
    attributes = {k: ir.AffineMapAttr.get(m) for k, m in zip(("low", "high", "shape"), three, strict=True)}
    result = base.tensor_type(x.type.element_type, three[2])
    return PadOp.create([x, base.value_of(value), *symbols], [result], attributes).result


def cat(inputs: Sequence[Any], dim: int, shape: ir.AffineMap | Sequence[Dim], symbols: Symbols = ()) -> ir.Value:
    """Build a `kiln.cat` along the non-negative `dim`."""
    tensors = [base.value_of(x) for x in inputs]
    (shape,), symbols = base.compress_symbols([base.as_map(shape, 0, len(symbols))], symbols)
    attributes = {"dim": base.i64(dim), "shape": ir.AffineMapAttr.get(shape)}
    result = base.tensor_type(tensors[0].type.element_type, shape)
    return CatOp.create([*tensors, *symbols], [result], attributes).result
