# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scaled dot-product attention."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Optional

from torch_mlir import ir

from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import Tensor
from kiln.dialects.kiln.table import Role, Shapes, Sizes, define


class AttentionOp(base.Operation, name="attention", traits=[base.Pure]):
    """Attention `softmax(query @ key^T * scale + mask) @ value` per head.

    `query` is `[*b, H, S, E]`, `key` `[*b, G, T, E]`, `value` `[*b, G, T, V]`, the result `[*b, H, S, V]`; G divides
    H, and head h reads key/value head `h floordiv (H / G)` (grouped queries).  `mask` broadcasts to `[*b, H, S, T]`: added
    to the scores when of a float type, and where it is `i1`, false removes a key.  `causal` removes keys t > s.  A row
    with no key left gives zeros.  bf16 and f16 compute in f32.  As `torch.nn.functional.scaled_dot_product_attention`.

    With the attribute `fill : f64`, as where softmax is written out: a key that the mask removes has this score, and a
    row whose scores all are -inf gives NaN.  With the unit attribute `alone` its kernel takes nothing behind it.

    ```mlir
    func.func @attention(%q: tensor<?x12x128x64xf32>, %k: tensor<?x4x128x64xf32>, %v: tensor<?x4x128x64xf32>)
        -> tensor<?x12x128x64xf32> {
      %0 = "kiln.attention"(%q, %k, %v) {scale = 1.250000e-01 : f64, causal = true}
        : (tensor<?x12x128x64xf32>, tensor<?x4x128x64xf32>, tensor<?x4x128x64xf32>) -> tensor<?x12x128x64xf32>
      return %0 : tensor<?x12x128x64xf32>
    }
    ```
    """

    query: ir.Value[Tensor]
    key: ir.Value[Tensor]
    value: ir.Value[Tensor]
    result: base.Result[Tensor]
    scale: ir.FloatAttr
    causal: ir.IntegerAttr
    mask: Optional[ir.Value[Tensor]] = None  # noqa: UP045 - `ext` tells optional operands by this form

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check ranks, head counts and sizes of query, key, value and mask, and the result's type."""
        query, key, value = self.query, self.key, self.value
        checks.is_float("query", query)
        checks.rank_at_least("query", query, 3)
        q, k = checks.sizes_of(query), checks.sizes_of(key)
        for name, x in (("key", key), ("value", value), ("result", self.result)):
            checks.rank_is(name, x, len(q))
            (checks.same_or_wide if name == "result" else checks.same_element)(name, x, query)
        checks.same_sizes("key", [*q[:-3], None, None, q[-1]], key)
        checks.same_sizes("value", [*q[:-3], k[-3], k[-2], None], value)
        checks.same_sizes("result", [*q[:-1], checks.sizes_of(value)[-1]], self.result)
        heads, groups = q[-3], k[-3]
        if heads is not None and groups is not None:
            checks.require(groups > 0 and heads % groups == 0, "key heads", f"a divisor of {heads}", groups)
        checks.flag(self, "causal")
        if "fill" in self.operation.attributes:
            fill = self.operation.attributes["fill"]
            checks.require(isinstance(fill, ir.FloatAttr), "fill", "a float", fill)
        if self.mask is not None:
            self._check_mask([*q[:-1], k[-2]])

    def _check_mask(self: Any, scores: list[int | None]) -> None:
        element = self.mask.type.element_type
        if str(element) != "i1":  # a printer verifies without a current context
            checks.is_float("mask", self.mask)
        sizes = checks.sizes_of(self.mask)
        checks.require(len(sizes) <= len(scores), "mask rank", f"at most {len(scores)}", len(sizes))
        aligned = scores[len(scores) - len(sizes) :]
        fits = all(n == 1 or checks.agree(n, s) for n, s in zip(sizes, aligned, strict=True))
        checks.require(fits, "mask sizes", f"to broadcast to {checks.text(scores)}", checks.text(sizes))


def _shape(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    return [*shapes.dims(op.operands[0])[:-1], shapes.dims(op.operands[2])[-1]]


def _flops(op: ir.Operation, sizes: Callable[[ir.Value], Sequence[int]]) -> int:
    """Of both products, of all keys: those that `causal` removes as well."""
    *rows, depth = sizes(op.operands[0])
    keys, columns = sizes(op.operands[1])[-2], sizes(op.results[0])[-1]
    return 2 * prod(rows) * keys * (depth + columns)


define(
    AttentionOp,
    Role.CONTRACTION,
    shape=_shape,
    reference="kiln.dialects.reference.attention:attention",
    flops=_flops,
    has_kernel=True,
    takes_any_sizes=True,
)


def attention(
    query: Any,
    key: Any,
    value: Any,
    scale: float,
    causal: bool = False,
    mask: Any = None,
    fill: float | None = None,
) -> ir.Value:
    """Build a `kiln.attention`."""
    q, k, v = base.value_of(query), base.value_of(key), base.value_of(value)
    result = base.ranked([*base.static_shape(q.type)[:-1], base.static_shape(v.type)[-1]], q.type.element_type)
    operands = [q, k, v] if mask is None else [q, k, v, base.value_of(mask)]
    attributes = {"scale": base.f64(scale), "causal": base.boolean(causal)}
    if fill is not None:
        attributes["fill"] = base.f64(fill)
    return AttentionOp.create(operands, [result], attributes).result
