# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scans: cumulative sums, products, maxima."""

from typing import Any, Optional

from torch_mlir import ir

from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import Tensor
from kiln.dialects.kiln.table import Role, define, same_as_first


class ScanOp(base.Operation, name="scan", traits=[base.Pure]):
    """Inclusive scan of `x` along `dim`; `kind` is "sum", "prod", "max", "min" or "logsumexp".

    The second result, for "max" and "min", is the position of the element taken (the last of equals) as i64.  NaN
    propagates.  bf16 and f16 accumulate in f32, and on the CPU all floats in f64.  As `torch.cumsum`, `cumprod`,
    `cummax`, `cummin`, `logcumsumexp`.

    ```mlir
    func.func @cumsum(%x: tensor<8x?xf32>) -> tensor<8x?xf32> {
      %0 = "kiln.scan"(%x) {dim = 1, kind = "sum"} : (tensor<8x?xf32>) -> tensor<8x?xf32>
      return %0 : tensor<8x?xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    result: base.Result[Tensor]
    dim: ir.IntegerAttr
    kind: ir.StringAttr
    indices: Optional[base.Result[Tensor]] = None  # noqa: UP045 - `ext` tells optional results by this form

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check `dim` and `kind`, and that only max and min have positions."""
        checks.same_type("result", self.result, self.x)
        checks.dim_in_range(self, "dim", self.x.type.rank)
        kind = checks.one_of(self, "kind", ["sum", "prod", "max", "min", "logsumexp"])
        if kind == "logsumexp":
            checks.is_float("x", self.x)
        if self.indices is not None:
            checks.require(kind in ("max", "min"), "results", f"1 for kind {kind}", 2)
            checks.is_integer("indices", self.indices, 64)
            checks.same_sizes("indices", checks.sizes_of(self.x), self.indices)


define(ScanOp, Role.SCAN, shape=same_as_first, reference="kiln.dialects.reference.order:scan", has_kernel=True)


def scan(x: Any, dim: int, kind: str, with_indices: bool = False) -> ScanOp:
    """Build a `kiln.scan`; use `.result` and, `with_indices`, `.indices`."""
    x = base.value_of(x)
    results = [x.type]
    if with_indices:
        results.append(base.ranked(base.static_shape(x.type), ir.IntegerType.get_signless(64)))
    return ScanOp.create([x], results, {"dim": base.i64(dim), "kind": base.string(kind)})
