# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention kernels against float64: masks, causality, grouped queries, head sizes, dynamic sizes, dtypes."""

import sys
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))

from matmul_support import DTYPES, Kernel, Machine, StoreEpilogue

from kiln.lowering.cpu.attention import (
    AttentionBuffers,
    AttentionProblem,
    attention_scratch_bytes,
    choose_attention_schedule,
    emit_attention,
)

AVX2 = Machine()


def reference(q, k, v, mask, causal, scale, dtype):
    """Eager attention in the dtype, with grouped queries repeated."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.to(dtype).repeat_interleave(groups, 1) for x in (k, v))
    mask = mask.to(dtype) if mask is not None and mask.dtype != torch.bool else mask
    return F.scaled_dot_product_attention(q.to(dtype), k, v, attn_mask=mask, is_causal=causal, scale=scale)


def check(out, q, k, v, mask=None, causal=False, scale=None) -> None:
    """Error against float64 at most 3 times that of f32 eager, up to the rounding of the result."""
    exact = reference(q, k, v, mask, causal, scale, torch.float64)
    eager = reference(q, k, v, mask, causal, scale, torch.float32)
    eps = torch.finfo(out.dtype).eps
    bound = 3 * (eager - exact).abs().max().item() + 2 * eps * exact.abs().max().item()
    error = (out.double() - exact).abs().max().item()
    assert error <= bound, f"error {error:.3e}, bound {bound:.3e}"


def run(q, k, v, mask=None, causal=False, scale=None, machine=AVX2, threads=2, fill=None) -> torch.Tensor:
    """Compiles for exactly these shapes and strides."""
    (batch, heads, queries, size), keys = q.shape, k.shape[2]
    out = torch.full((batch, heads, queries, v.shape[3]), torch.nan, dtype=q.dtype)
    mask_strides = () if mask is None else mask.expand(batch, heads, queries, keys).stride()
    dtype = DTYPES[q.dtype]
    problem = AttentionProblem(
        (batch,), heads, k.shape[1], queries, keys, size, v.shape[3], q.stride(), k.stride(), v.stride(),
        size**-0.5 if scale is None else scale, causal, mask_strides,
        None if mask is None else DTYPES[mask.dtype], dtype, fill,
    )  # fmt: skip
    schedule = choose_attention_schedule(problem, machine)
    tensors = [q, k, v, *([] if mask is None else [mask]), out]

    def emit(b, buffers, symbols, ctx):
        operands = AttentionBuffers(*buffers[:3], mask=None if mask is None else buffers[3])
        emit_attention(b, problem, schedule, operands, StoreEpilogue(buffers[-1], out.stride()[:-1]), ctx)

    types = [DTYPES[t.dtype] for t in tensors]
    Kernel(types, 0, attention_scratch_bytes(problem, schedule), emit, kind="attention")(*tensors, threads=threads)
    return out


def heads(batch, count, length, size, layout="bhse", dtype=torch.float32):
    """Random [batch, count, length, size], contiguous or as models make it: a transpose of [b, s, h, e]."""
    if layout == "bshe":
        return torch.randn(batch, length, count, size).to(dtype).transpose(1, 2)
    return torch.randn(batch, count, length, size).to(dtype)


@pytest.mark.parametrize("size", [33, 64])
@pytest.mark.parametrize("kind", ["plain", "causal", "float mask", "bool mask"])
def test_masks_and_head_sizes(kind: str, size: int) -> None:
    torch.manual_seed(0)
    q, k, v = heads(2, 3, 70, size), heads(2, 3, 150, size), heads(2, 3, 150, size)
    mask = {"float mask": torch.randn(2, 1, 70, 150), "bool mask": torch.rand(70, 150) > 0.4}.get(kind)
    if mask is not None and mask.dtype == torch.bool:
        mask[5] = False  # a row without keys gives zeros
    out = run(q, k, v, mask, causal=kind == "causal")
    check(out, q, k, v, mask, kind == "causal")
    if kind == "bool mask":
        assert not out[:, :, 5].any()


@pytest.mark.parametrize("queries,causal", [(1, False), (2, True), (4, False)])
def test_few_queries(queries: int, causal: bool) -> None:
    torch.manual_seed(0)
    q, k, v = heads(2, 4, queries, 40), heads(2, 2, 133, 40), heads(2, 2, 133, 40)
    check(run(q, k, v, causal=causal), q, k, v, causal=causal)


def test_grouped_queries_and_strided_operands() -> None:
    torch.manual_seed(0)
    q, k, v = heads(2, 6, 50, 32, "bshe"), heads(2, 2, 50, 32, "bshe"), heads(2, 2, 50, 48, "bshe")
    check(run(q, k, v, causal=True, scale=0.3), q, k, v, causal=True, scale=0.3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q, k, v = (heads(1, 2, 45, 36, dtype=dtype) for _ in range(3))
    check(run(q, k, v), q, k, v)
    few = q[:, :, :1]
    check(run(few, k, v), few, k, v)


def test_wide_vectors() -> None:
    """The AVX-512 tiles give the same results where they are legalised to narrower registers."""
    torch.manual_seed(0)
    q, k, v = heads(1, 2, 100, 64), heads(1, 2, 140, 64), heads(1, 2, 140, 64)
    check(run(q, k, v, causal=True, machine=Machine(64, 32)), q, k, v, causal=True)


def test_infinite_mask_blocks() -> None:
    """Whole blocks of keys at -inf, first and last: the running maximum starts and stays at -inf there."""
    torch.manual_seed(0)
    q, k, v, mask = heads(1, 1, 9, 16), heads(1, 1, 400, 16), heads(1, 1, 400, 16), torch.zeros(9, 400)
    mask[:5, :200], mask[5:, 200:], mask[2] = -torch.inf, -torch.inf, -torch.inf
    out = run(q, k, v, mask)
    check(out, q, k, v, mask)
    assert not out[:, :, 2].any()


def test_nan_reaches_its_row_only() -> None:
    torch.manual_seed(0)
    q, k, v = heads(1, 1, 9, 16), heads(1, 1, 30, 16), heads(1, 1, 30, 16)
    q[0, 0, 4, 3] = torch.nan
    out = run(q, k, v)
    assert out[0, 0, 4].isnan().all() and not out[0, 0, [0, 1, 2, 3, 5, 6, 7, 8]].isnan().any()


@cache
def dynamic_kernel(causal: bool, masked: bool) -> Kernel:
    """Batch, heads, groups, queries and keys at run time; contiguous operands, head size 24."""

    def emit(b, buffers, symbols, ctx):
        batch, heads, groups, queries, keys = symbols

        def strides(count, length, size):
            return (b.muli(count, b.muli(length, size)), b.muli(length, size), size, 1)

        problem = AttentionProblem(
            (batch,), heads, groups, queries, keys, 24, 24,
            strides(heads, queries, 24), strides(groups, keys, 24), strides(groups, keys, 24), 0.2, causal,
            (b.muli(queries, keys), 0, keys, 1) if masked else (), "f32" if masked else None,
        )  # fmt: skip
        operands = AttentionBuffers(*buffers[:3], mask=buffers[3] if masked else None)
        epilogue = StoreEpilogue(buffers[4], strides(heads, queries, 24)[:-1])
        emit_attention(b, problem, choose_attention_schedule(problem, AVX2), operands, epilogue, ctx)

    size = AttentionProblem((None,), None, None, None, None, 24, 24, (1,), (1,), (1,), 0.2, causal)
    scratch = attention_scratch_bytes(size, choose_attention_schedule(size, AVX2))
    return Kernel(["f32"] * 5, 5, scratch, emit, kind="attention")


@pytest.mark.parametrize("causal,masked", [(False, False), (True, False), (False, True)])
def test_dynamic_sizes(causal: bool, masked: bool) -> None:
    torch.manual_seed(0)
    kernel = dynamic_kernel(causal, masked)
    for batch, count, groups, queries, keys in [
        (1, 1, 1, 1, 1), (2, 4, 2, 7, 9), (1, 2, 1, 130, 129), (1, 1, 1, 200, 64), (3, 2, 2, 1, 300), (2, 0, 1, 4, 4),
        (0, 2, 1, 4, 4), (1, 2, 2, 4, 0),
    ]:  # fmt: skip
        q, k, v = heads(batch, count, queries, 24), heads(batch, groups, keys, 24), heads(batch, groups, keys, 24)
        mask, out = torch.randn(batch, 1, queries, keys), torch.full_like(q, torch.nan)
        for threads in (1, 2):
            kernel(q, k, v, mask, out, symbols=(batch, count, groups, queries, keys), threads=threads)
            if out.numel() and keys:
                check(out, q, k, v, mask if masked else None, causal, 0.2)
            else:
                assert not out.any()


@pytest.mark.parametrize("queries", [1, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("which", ["query", "key", "value", "transposed query", "transposed key", "transposed value"])
def test_strided_heads(which: str, dtype: torch.dtype, queries: int) -> None:
    wide = {name: torch.randn(2, 3, n, 22).to(dtype) for name, n in (("query", queries), ("key", 37), ("value", 37))}
    q, k, v = (x[..., ::2] if name == which else x[..., :11] for name, x in wide.items())
    if which.startswith("transposed"):
        turned = which.split()[1]
        q, k, v = (x.mT.contiguous().mT if name == turned else x for name, x in zip(wide, (q, k, v), strict=True))
    for machine in (AVX2, Machine(vector_bytes=64, vector_registers=32)):
        check(run(q, k, v, machine=machine), q, k, v)


@pytest.mark.parametrize("fill", [float("-inf"), -1e9, -2.0])
def test_fill_is_the_score_of_hidden_keys(fill: float) -> None:
    """As softmax written out: NaN for a row of -inf, the mean for a row of equal scores."""
    q, k, v = heads(1, 2, 5, 16), heads(1, 2, 37, 16), heads(1, 2, 37, 16)
    mask = torch.rand(5, 37) > 0.5
    mask[3] = False
    expected = torch.softmax((q @ k.mT * 0.25).masked_fill(~mask, fill), -1) @ v
    torch.testing.assert_close(run(q, k, v, mask, fill=fill), expected, equal_nan=True)


def test_the_lowest_finite_mask_is_not_infinite() -> None:
    q, k, v = heads(1, 2, 5, 16), heads(1, 2, 37, 16), heads(1, 2, 37, 16)
    mask = torch.zeros(5, 37)
    mask[:, 20:] = torch.finfo(torch.float32).min
    mask[3] = torch.finfo(torch.float32).min
    check(run(q, k, v, mask), q, k, v, mask)
