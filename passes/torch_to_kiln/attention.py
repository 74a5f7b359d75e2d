# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Scaled dot-product attention."""

import math

from torch_mlir import ir

from kiln.dialects import kiln

from .context import LoweringContext
from .registry import lowers
from .sizes import constant_of


def _attention(cx: LoweringContext, mask: int | None, dropout: int, causal: int, scale: int) -> ir.Value:
    """``kiln.attention`` from the positions of the arguments."""
    query, key, value = cx.tensor(0), cx.tensor(1), cx.tensor(2)
    if cx.const_float(dropout, 0.0) != 0:
        cx.unsupported("attention with dropout draws from PyTorch's random generator")
    bias = None if mask is None else cx.optional_tensor(mask)
    if bias is not None and not cx.dtype(bias).is_bool and cx.dtype(bias) != cx.dtype(query):
        bias = cx.cast(bias, cx.dtype(query))
    width = constant_of(cx.shape(query)[-1])
    factor = cx.const(scale, None)
    if factor is None:
        if not width:
            cx.unsupported("attention over heads of a dynamic width")
        factor = 1.0 / math.sqrt(width)
    result = kiln.attention(query, key, value, float(factor), cx.const_bool(causal), bias)
    return cx.named(result, cx.result_shape(), cx.dtype(query))


def _only_first(cx: LoweringContext, value: ir.Value) -> list[ir.Value | None]:
    return [value, *[None] * (cx.num_results - 1)]


def _refuse_statistics(cx: LoweringContext) -> None:
    if any(cx.result_used(k) for k in range(1, cx.num_results)):
        cx.unsupported("attention whose log-sum-exp or random state is used (training)")


@lowers("torch.aten._scaled_dot_product_flash_attention_for_cpu")
def flash_attention_for_cpu(cx: LoweringContext) -> list[ir.Value | None]:
    """(query, key, value, dropout_p, is_causal, *, attn_mask, scale)."""
    _refuse_statistics(cx)
    return _only_first(cx, _attention(cx, 5, 3, 4, 6))


@lowers("torch.aten._scaled_dot_product_flash_attention")
def flash_attention(cx: LoweringContext) -> list[ir.Value | None]:
    """(query, key, value, dropout_p, is_causal, return_debug_mask, *, scale)."""
    _refuse_statistics(cx)
    return _only_first(cx, _attention(cx, None, 3, 4, 6))


@lowers("torch.aten._scaled_dot_product_efficient_attention")
def efficient_attention(cx: LoweringContext) -> list[ir.Value | None]:
    """(query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, *, scale)."""
    _refuse_statistics(cx)
    return _only_first(cx, _attention(cx, 3, 5, 6, 7))


@lowers("torch.aten._scaled_dot_product_cudnn_attention")
def cudnn_attention(cx: LoweringContext) -> list[ir.Value | None]:
    """(query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, return_debug_mask, *, scale)."""
    _refuse_statistics(cx)
    return _only_first(cx, _attention(cx, 3, 5, 6, 8))


@lowers("torch.aten.scaled_dot_product_attention")
def scaled_dot_product_attention(cx: LoweringContext) -> ir.Value:
    """(query, key, value, attn_mask, dropout_p, is_causal, *, scale, enable_gqa)."""
    return _attention(cx, 3, 4, 5, 6)
