# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""PyTorch's fast paths of `nn.TransformerEncoderLayer` and `nn.MultiheadAttention`, as the ops that they stand for.

Without gradients these modules call one ATen op for all that they do, which no pass could look into.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["encoder_decompositions"]

aten = torch.ops.aten

_LENGTHS, _KEYS = 0, 1
"""Types of masks: [T, T] for pairs of positions, [B, T] for keys. Others are [B, heads, T, T]."""


def encoder_decompositions() -> dict[Any, Callable[..., Any]]:
    """Op overload -> its decomposition, for the two fast paths."""
    return {
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
        aten._native_multi_head_attention.default: _self_attention,
    }


def _encoder_layer(
    x: Tensor, embed_dim: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, out_weight: Tensor, out_bias: Tensor,
    use_gelu: bool, norm_first: bool, eps: float, weight_1: Tensor, bias_1: Tensor, weight_2: Tensor, bias_2: Tensor,
    up_weight: Tensor, up_bias: Tensor, down_weight: Tensor, down_bias: Tensor,
    mask: Tensor | None = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """The layer's result [B, T, E] for x [B, T, E]. Nested tensors: ATen's op."""
    if x.is_nested:
        return NotImplemented
    activation = F.gelu if use_gelu else F.relu

    def attention(x: Tensor) -> Tensor:
        return _attend(x, heads, qkv_weight, qkv_bias, out_weight, out_bias, mask, mask_type)[0]

    def feed_forward(x: Tensor) -> Tensor:
        return F.linear(activation(F.linear(x, up_weight, up_bias)), down_weight, down_bias)

    def norm_1(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), weight_1, bias_1, eps)

    def norm_2(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), weight_2, bias_2, eps)

    if norm_first:
        x = x + attention(norm_1(x))
        return x + feed_forward(norm_2(x))
    x = norm_1(x + attention(x))
    return norm_2(x + feed_forward(x))


def _self_attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    out_weight: Tensor, out_bias: Tensor, mask: Tensor | None = None, need_weights: bool = True,
    average_attn_weights: bool = True, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """The result [B, T, E] and the weights of positions, [B, T, T] or, one by one, [B, heads, T, T].

    What is not attention of a tensor to itself, and nested tensors: ATen's op.
    """
    if query.is_nested or query is not key or key is not value:
        return NotImplemented
    result, weights = _attend(
        query, heads, qkv_weight, qkv_bias, out_weight, out_bias, mask, mask_type, keep_weights=need_weights
    )
    return result, weights.mean(1) if weights is not None and average_attn_weights else weights


def _attend(
    x: Tensor, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, out_weight: Tensor, out_bias: Tensor,
    mask: Tensor | None, mask_type: int | None, keep_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    batch, length, features = x.shape
    qkv = F.linear(x, qkv_weight, qkv_bias).view(batch, length, 3, heads, features // heads)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()
    weights = None
    if mask is None and not keep_weights:
        attended = F.scaled_dot_product_attention(q, k, v)
    else:
        scores = (q * (features // heads) ** -0.5) @ k.transpose(-2, -1)
        if mask is not None:
            # All but zeros are left out, also in masks of floats; a row without a position is NaN, as in ATen's op.
            scores = scores.masked_fill(_broadcast(mask, mask_type).to(torch.bool), float("-inf"))
        weights = scores.softmax(-1)
        attended = weights @ v
    result = F.linear(attended.transpose(1, 2).reshape(batch, length, features), out_weight, out_bias)
    return result, weights


def _broadcast(mask: Tensor, mask_type: int | None) -> Tensor:
    """The mask as [B or 1, heads or 1, T or 1, T]."""
    if mask_type == _KEYS:
        return mask[:, None, None, :]
    return mask[None, None] if mask_type == _LENGTHS else mask
