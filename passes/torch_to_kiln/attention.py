# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Scaled dot-product attention."""

import math

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.passes.folding.masks import constant_mask

from .context import LoweringContext
from .registry import lowers
from .sizes import constant_of

_LARGEST_HEAD = 1024
"""Elements. A GPU's kernel keeps 16 queries, keys and values of the whole head size in shared memory: 3 x 64 KiB of 227
in f32."""


def _attention(cx: LoweringContext, mask: int | None, dropout: int, causal: int, scale: int) -> ir.Value:
    """``kiln.attention`` from the positions of the arguments."""
    query, key, value = cx.tensor(0), cx.tensor(1), cx.tensor(2)
    if cx.const_float(dropout, 0.0) != 0:
        cx.unsupported("attention with dropout draws from PyTorch's random generator")
    heads, shared = [cx.shape(x)[-3] if cx.rank(x) > 3 else None for x in (query, key)]
    if heads != shared and (heads is None or shared is None or None in (constant_of(heads), constant_of(shared))):
        cx.unsupported("grouped queries with a dynamic number of heads")
    bias = None if mask is None else cx.optional_tensor(mask)
    if bias is not None and not cx.dtype(bias).is_bool and cx.dtype(bias) != cx.dtype(query):
        bias = cx.cast(bias, cx.dtype(query))
    width = constant_of(cx.shape(query)[-1])
    if any((constant_of(cx.shape(x)[-1]) or 0) > _LARGEST_HEAD for x in (query, value)):
        cx.unsupported(f"attention over heads of more than {_LARGEST_HEAD:,} elements")
    is_causal = cx.const_bool(causal)
    if mask is not None and bias is not None and not is_causal:
        bias, is_causal = _without_constant(cx, mask, bias, -math.inf)
    factor = cx.const(scale, None)
    if factor is None:
        if not width:
            cx.unsupported("attention over heads of a dynamic width")
        factor = 1.0 / math.sqrt(width)
    result = kiln.attention(query, key, value, float(factor), is_causal, bias)
    return cx.named(result, cx.result_shape(), cx.dtype(query))


def _without_constant(cx: LoweringContext, position: int, mask: ir.Value, fill: float) -> tuple[ir.Value | None, bool]:
    """The mask that is left, and whether the attention is causal: a constant mask may say no more than that."""
    found = cx.state.once(("constant_mask", fill), cx.op.operands[position], lambda given: constant_mask(given, fill))
    if found == "causal":
        sizes = cx.shape(cx.tensor(0))[-2], cx.shape(cx.tensor(1))[-2]
        rows, columns = cx.shape(mask)[-2:]
        if (rows, columns) != sizes:  # it broadcasts: one row for all
            return mask, False
    return (mask, False) if found is None else (None, found == "causal")


@lowers("torch.kiln.attention")
def written_out_attention(cx: LoweringContext) -> ir.Value:
    """(query, key, value, mask, scale, fill), see ``kiln.passes.patterns.attention_op``."""
    query, key, value, mask = cx.tensor(0), cx.tensor(1), cx.tensor(2), cx.optional_tensor(3)
    scale, fill = cx.const_float(4), cx.const_float(5)
    causal = False
    if mask is not None:
        mask, causal = _without_constant(cx, 3, mask, fill)
    if mask is not None and not cx.dtype(mask).is_bool and cx.dtype(mask) != cx.dtype(query):
        mask = cx.cast(mask, cx.dtype(query))
    result = kiln.attention(query, key, value, scale, causal, mask, fill)
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
