# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sorting."""

from typing import Any

from torch_mlir import ir

from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import Tensor
from kiln.dialects.kiln.table import Role, Shapes, Sizes, define, same_as_first


class SortOp(base.Operation, name="sort", traits=[base.Pure]):
    """`x` sorted along `dim`, and the positions the elements came from as i64.

    NaN counts as the largest value.  Equal elements keep their order where `stable`, else in any order.
    As `torch.sort`.

    ```mlir
    func.func @sort(%x: tensor<8x?xf32>) -> tensor<8x?xf32> {
      %0:2 = "kiln.sort"(%x) {dim = 1, descending = false, stable = true}
        : (tensor<8x?xf32>) -> (tensor<8x?xf32>, tensor<8x?xi64>)
      return %0#0 : tensor<8x?xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    values: base.Result[Tensor]
    indices: base.Result[Tensor]
    dim: ir.IntegerAttr
    descending: ir.IntegerAttr
    stable: ir.IntegerAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that values and positions (i64) have the sizes of `x`, and `dim`."""
        checks.same_element("values", self.values, self.x)
        checks.is_integer("indices", self.indices, 64)
        checks.dim_in_range(self, "dim", self.x.type.rank)
        sizes = checks.sizes_of(self.x)
        checks.flag(self, "descending")
        checks.flag(self, "stable")
        checks.same_sizes("values", sizes, self.values)
        checks.same_sizes("indices", sizes, self.indices)


define(SortOp, Role.OPAQUE, shape=same_as_first, reference="kiln.dialects.reference.order:sort", takes_any_sizes=True)


class TopkOp(base.Operation, name="topk", traits=[base.Pure]):
    """The `k` largest (or smallest) elements along `dim`, sorted, and their positions as i64.  As `torch.topk`.

    NaN counts as the largest value.

    ```mlir
    func.func @topk(%x: tensor<8x?xf32>) -> tensor<8x4xf32> {
      %0:2 = "kiln.topk"(%x) {k = 4, dim = 1, largest = true} : (tensor<8x?xf32>) -> (tensor<8x4xf32>, tensor<8x4xi64>)
      return %0#0 : tensor<8x4xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    values: base.Result[Tensor]
    indices: base.Result[Tensor]
    k: ir.IntegerAttr
    dim: ir.IntegerAttr
    largest: ir.IntegerAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that values and positions (i64) have `k` entries along `dim`, and `k`."""
        checks.same_element("values", self.values, self.x)
        checks.is_integer("indices", self.indices, 64)
        dim = checks.dim_in_range(self, "dim", self.x.type.rank)
        sizes = checks.sizes_of(self.x)
        checks.flag(self, "largest")
        k, size = self.k.value, sizes[dim]
        most = "" if size is None else f" and at most {size}"
        checks.require(k >= 0 and (size is None or k <= size), "attribute k", f"at least 0{most}", k)
        sizes[dim] = k
        checks.same_sizes("values", sizes, self.values)
        checks.same_sizes("indices", sizes, self.indices)


def _topk_shape(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    sizes = list(shapes.dims(op.operands[0]))
    k, dim = (ir.IntegerAttr(op.attributes[name]).value for name in ("k", "dim"))
    sizes[dim] = ir.AffineExpr.get_constant(k)
    return sizes


define(TopkOp, Role.OPAQUE, shape=_topk_shape, reference="kiln.dialects.reference.order:topk", takes_any_sizes=True)


def _values_and_indices(x: ir.Value, shape: list[int | None]) -> list[ir.Type]:
    return [base.ranked(shape, x.type.element_type), base.ranked(shape, ir.IntegerType.get_signless(64))]


def sort(x: Any, dim: int, descending: bool = False, stable: bool = True) -> SortOp:
    """Build a `kiln.sort`; use `.values` and `.indices`."""
    x = base.value_of(x)
    attributes = {"dim": base.i64(dim), "descending": base.boolean(descending), "stable": base.boolean(stable)}
    return SortOp.create([x], _values_and_indices(x, base.static_shape(x.type)), attributes)


def topk(x: Any, k: int, dim: int, largest: bool = True) -> TopkOp:
    """Build a `kiln.topk`; use `.values` and `.indices`."""
    x = base.value_of(x)
    shape = base.static_shape(x.type)
    shape[dim] = k
    attributes = {"k": base.i64(k), "dim": base.i64(dim), "largest": base.boolean(largest)}
    return TopkOp.create([x], _values_and_indices(x, shape), attributes)
