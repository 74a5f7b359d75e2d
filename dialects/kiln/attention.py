# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scaled dot-product attention."""

from typing import Any, Optional

from torch_mlir import ir
from torch_mlir.dialects import ext

from kiln.dialects.kiln import base
from kiln.dialects.kiln.base import Tensor


class AttentionOp(base.Operation, name="attention", traits=[base.Pure]):
    """Attention `softmax(query @ key^T * scale + mask) @ value` per head.

    `query` is `[*b, H, S, E]`, `key` `[*b, G, T, E]`, `value` `[*b, G, T, V]`, the result `[*b, H, S, V]`; G divides
    H, and head h reads key/value head `h floordiv (H / G)` (grouped queries).  `mask` broadcasts to `[*b, H, S, T]`: added
    to the scores when of a float type, and where it is `i1`, false removes a key.  `causal` removes keys t > s.  A row
    with no key left gives zeros.  bf16 and f16 compute in f32.  As `torch.nn.functional.scaled_dot_product_attention`.

    ```mlir
    func.func @attention(%q: tensor<?x12x128x64xf32>, %k: tensor<?x4x128x64xf32>, %v: tensor<?x4x128x64xf32>)
        -> tensor<?x12x128x64xf32> {
      %0 = "kiln.attention"(%q, %k, %v) {scale = 1.250000e-01 : f64, causal = true}
        : (tensor<?x12x128x64xf32>, tensor<?x4x128x64xf32>, tensor<?x4x128x64xf32>) -> tensor<?x12x128x64xf32>
      return %0 : tensor<?x12x128x64xf32>
    }
    ```
    """

    query: ext.Operand[Tensor]
    key: ext.Operand[Tensor]
    value: ext.Operand[Tensor]
    result: ext.Result[Tensor]
    scale: ir.FloatAttr
    causal: ir.IntegerAttr
    mask: Optional[ext.Operand[Tensor]] = None  # noqa: UP045 - `ext` tells optional operands by this form


def attention(query: Any, key: Any, value: Any, scale: float, causal: bool = False, mask: Any = None) -> ir.Value:
    """Build a `kiln.attention`."""
    q, k, v = base.value_of(query), base.value_of(key), base.value_of(value)
    result = base.ranked([*base.static_shape(q.type)[:-1], base.static_shape(v.type)[-1]], q.type.element_type)
    operands = [q, k, v] if mask is None else [q, k, v, base.value_of(mask)]
    attributes = {"scale": base.f64(scale), "causal": base.boolean(causal)}
    return AttentionOp.create(operands, [result], attributes).result
