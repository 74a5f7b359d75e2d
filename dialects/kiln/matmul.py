# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torch_mlir import ir

from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import Tensor
from kiln.dialects.kiln.table import Role, Shapes, Sizes, define


class MatmulOp(base.Operation, name="matmul", traits=[base.Pure]):
    """Batched matrix product `result[*b, m, n] = sum_k lhs[*b, m, k] * rhs[*b, k, n]`.

    `lhs` is `[*b, M, K]`, or `[*b, K, M]` with `transpose_lhs`; `rhs` is `[*b, K, N]` or `[K, N]` (shared by the
    batch), or `[.., N, K]` with `transpose_rhs`.  Batch dims do not broadcast.  bf16 and f16 accumulate in f32 and
    round once, or not at all where the result is f32 (in kernels for GPUs); integers wrap.  With a float `lhs` the `rhs`
    may be of i8, whose numbers are taken as such.  The result of i8 may be i32, in which it is summed then.  K = 0 gives
    zeros.  As `torch.matmul` and `torch._int_mm`.

    ```mlir
    func.func @linear(%x: tensor<?x16x64xf32>, %w: tensor<32x64xf32>) -> tensor<?x16x32xf32> {
      %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
        : (tensor<?x16x64xf32>, tensor<32x64xf32>) -> tensor<?x16x32xf32>
      return %0 : tensor<?x16x32xf32>
    }
    ```
    """

    lhs: ir.Value[Tensor]
    rhs: ir.Value[Tensor]
    result: base.Result[Tensor]
    transpose_lhs: ir.IntegerAttr
    transpose_rhs: ir.IntegerAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check ranks, element types and that the inner and the batch sizes agree."""
        lhs, rhs, result = self.lhs, self.rhs, self.result
        checks.rank_at_least("lhs", lhs, 2)
        rank = lhs.type.rank
        ranks = [2, rank]
        checks.require(rhs.type.rank in ranks, "rhs rank", " or ".join(map(str, sorted({*ranks}))), rhs.type.rank)
        if not (checks.is_i8(rhs) and isinstance(lhs.type.element_type, ir.FloatType)):
            checks.same_element("rhs", rhs, lhs)
        summed = checks.is_i8(lhs) and checks.is_i8(rhs) and str(result.type.element_type) == "i32"
        if not summed:
            checks.same_or_wide("result", result, lhs)
        a, b = checks.sizes_of(lhs), checks.sizes_of(rhs)
        m, k = (a[-1], a[-2]) if checks.flag(self, "transpose_lhs") else (a[-2], a[-1])
        n, depth = (b[-2], b[-1]) if checks.flag(self, "transpose_rhs") else (b[-1], b[-2])
        checks.require(checks.agree(k, depth), "rhs reduction size", k, depth)
        if rhs.type.rank > 2 or rank == 2:
            checks.require(
                all(map(checks.agree, a[:-2], b[:-2])), "rhs batch sizes", checks.text(a[:-2]), checks.text(b[:-2])
            )
        checks.same_sizes("result", [*a[:-2], m, n], result)


def _shape(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    lhs, rhs = shapes.dims(op.operands[0]), shapes.dims(op.operands[1])
    m = lhs[-1] if ir.BoolAttr(op.attributes["transpose_lhs"]).value else lhs[-2]
    n = rhs[-2] if ir.BoolAttr(op.attributes["transpose_rhs"]).value else rhs[-1]
    return [*lhs[:-2], m, n]


def _flops(op: ir.Operation, sizes: Callable[[ir.Value], Sequence[int]]) -> int:
    lhs = sizes(op.operands[0])
    depth = lhs[-2] if ir.BoolAttr(op.attributes["transpose_lhs"]).value else lhs[-1]
    return 2 * prod(sizes(op.results[0])) * depth


define(
    MatmulOp,
    Role.CONTRACTION,
    shape=_shape,
    reference="kiln.dialects.reference.matmul:matmul",
    flops=_flops,
    has_kernel=True,
    takes_any_sizes=True,
)


def matmul(
    lhs: Any, rhs: Any, result_type: ir.Type | None = None, transpose_lhs: bool = False, transpose_rhs: bool = False
) -> ir.Value:
    """Build a `kiln.matmul`; without `result_type`, sizes are taken from the operands' types."""
    lhs, rhs = base.value_of(lhs), base.value_of(rhs)
    if result_type is None:
        a, b = base.static_shape(lhs.type), base.static_shape(rhs.type)
        # A batch dim may be static in only one of the two types.
        batch = [x if x is not None else y for x, y in zip(a[:-2], b[:-2] or a[:-2], strict=True)]
        m, n = a[-1 if transpose_lhs else -2], b[-2 if transpose_rhs else -1]
        result_type = base.ranked([*batch, m, n], lhs.type.element_type)
    attributes = {"transpose_lhs": base.boolean(transpose_lhs), "transpose_rhs": base.boolean(transpose_rhs)}
    return MatmulOp.create([lhs, rhs], [result_type], attributes).result
