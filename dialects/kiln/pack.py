# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors in the order in which a kernel reads them."""

from typing import Any

from torch_mlir import ir

from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import Tensor
from kiln.dialects.kiln.table import Role, define, same_as_first


class PackOp(base.Operation, name="pack", traits=[base.Pure]):
    """`x` in memory of its own, in an order of a kernel's choice; the value is that of `x`.

    Element `(d0, ...)` lies at offset `layout(d0, ...)` of `elements` elements, the others of which are zero.  `layout`
    gives each index another offset.  A constant is packed once, when the code is loaded.

    ```mlir
    func.func @pack(%w: tensor<5x8xf32>) -> tensor<5x8xf32> {
      %0 = "kiln.pack"(%w) {layout = affine_map<(d0, d1) -> ((d0 floordiv 4) * 32 + d1 * 4 + d0 mod 4)>,
        elements = 64 : i64} : (tensor<5x8xf32>) -> tensor<5x8xf32>
      return %0 : tensor<5x8xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    result: base.Result[Tensor]
    layout: ir.AffineMapAttr
    elements: ir.IntegerAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that the layout maps the static shape of `x` into `elements` places."""
        checks.same_type("result", self.result, self.x)
        checks.require(self.x.type.has_static_shape, "x", "a static shape", self.x.type)
        checks.map_of(self, "layout", self.x.type.rank, 1, 0)
        count = 1
        for n in self.x.type.shape:
            count *= n
        elements = ir.IntegerAttr(self.operation.attributes["elements"]).value
        checks.require(elements >= count, "attribute elements", f"at least {count}", elements)


define(PackOp, Role.OPAQUE, shape=same_as_first)


def pack(x: Any, layout: ir.AffineMap, elements: int) -> ir.Value:
    """Build a `kiln.pack`."""
    x = base.value_of(x)
    attributes = {"layout": ir.AffineMapAttr.get(layout), "elements": base.i64(elements)}
    return PackOp.create([x], [x.type], attributes).result
