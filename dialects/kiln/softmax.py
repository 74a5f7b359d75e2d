# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Softmax and log-softmax."""

from typing import Any

from torch_mlir import ir

from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import Tensor
from kiln.dialects.kiln.table import Role, define, same_as_first


class SoftmaxOp(base.Operation, name="softmax", traits=[base.Pure]):
    """Softmax of `x` along `dim` (0-based), or its logarithm with `log`.

    `exp(x - max) / sum(exp(x - max))`.  bf16 and f16 compute in f32.  A row of -inf, or one that holds NaN or +inf,
    gives NaN, as `torch.softmax` and `torch.log_softmax` do.

    ```mlir
    func.func @softmax(%x: tensor<8x?xf32>) -> tensor<8x?xf32> {
      %0 = "kiln.softmax"(%x) {dim = 1, log = false} : (tensor<8x?xf32>) -> tensor<8x?xf32>
      return %0 : tensor<8x?xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    result: base.Result[Tensor]
    dim: ir.IntegerAttr
    log: ir.IntegerAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that `x` holds floats, that the result has its type, and `dim`."""
        checks.is_float("x", self.x)
        checks.same_type("result", self.result, self.x)
        checks.dim_in_range(self, "dim", self.x.type.rank)
        checks.flag(self, "log")


define(SoftmaxOp, Role.REDUCTION, shape=same_as_first, reference="kiln.dialects.reference.softmax:softmax")


def softmax(x: Any, dim: int, log: bool = False) -> ir.Value:
    """Build a `kiln.softmax` along the non-negative `dim`."""
    x = base.value_of(x)
    return SoftmaxOp.create([x], [x.type], {"dim": base.i64(dim), "log": base.boolean(log)}).result
