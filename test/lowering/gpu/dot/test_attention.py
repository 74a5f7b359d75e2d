# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention in Triton IR: its numbers (run on the CPU) against float64, and machine code."""

import pytest
import torch
from dot_support import attention

from kiln.dialects.schedules.gpu import FlashSchedule

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


def expected(q, k, v, scale, causal=False, mask=None):
    """Straight from the definition, in float64; a row without keys gives zeros."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.double().repeat_interleave(group, 1) for t in (k, v))
    scores = q.double() @ k.mT * scale
    kept = torch.ones(scores.shape, dtype=torch.bool)
    if causal:
        kept &= torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        kept &= mask
    elif mask is not None:
        scores = scores + mask.double()
    scores = scores.masked_fill(~kept, -torch.inf)
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v


def check(q, k, v, causal=False, mask=None, dynamic="", schedule=None):
    out = torch.full((*q.shape[:3], v.shape[3]), 7.0, dtype=q.dtype)
    scale = q.shape[-1] ** -0.5
    attention(q, k, v, out, scale, causal, mask, dynamic, schedule).run()
    want = expected(q, k, v, scale, causal, mask)
    error = (out.double() - want).norm() / want.norm().clamp_min(1e-30)
    assert error < TOLERANCE[q.dtype]
    return out


def inputs(heads, groups, queries, keys, qk_size, v_size, dtype=torch.float32, batch=2):
    shapes = (heads, queries, qk_size), (groups, keys, qk_size), (groups, keys, v_size)
    return [torch.randn(batch, *shape).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys", "size"), [(70, 70, 64), (33, 130, 20), (130, 33, 128), (1, 100, 64)])
def test_sizes(queries, keys, size, causal, dtype):
    check(*inputs(2, 2, queries, keys, size, size, dtype), causal)


@pytest.mark.parametrize("blocks", [(16, 32), (32, 16), (64, 64)])
@pytest.mark.parametrize("causal", [False, True])
def test_blocks_of_any_shape(blocks, causal):
    schedule = FlashSchedule(block_m=blocks[0], block_n=blocks[1], num_warps=4, num_stages=2)
    check(*inputs(1, 1, 100, 100, 16, 16), causal, schedule=schedule)


def test_grouped_heads_and_other_value_size():
    check(*inputs(6, 2, 40, 50, 24, 40), causal=True)


def test_strides_as_a_projection_leaves_them():
    q, k, v = torch.randn(2, 50, 3, 4, 32).permute(2, 0, 3, 1, 4)
    check(q, k, v, causal=True)


@pytest.mark.parametrize("causal", [False, True])
def test_added_masks(causal):
    q, k, v = inputs(2, 2, 40, 70, 32, 32)
    mask = torch.randn(2, 1, 40, 70)
    mask[0, 0, 3, :] = -torch.inf
    mask[1, 0, :, :64] = -torch.inf
    out = check(q, k, v, causal, mask)
    assert (out[0, :, 3] == 0).all()


def test_the_least_number_as_a_mask():
    """Keys are removed by the least number, which is finite: where it removes all of them, they weigh the same."""
    q, k, v = inputs(1, 1, 20, 40, 16, 16)
    mask = torch.zeros(20, 40).masked_fill(torch.rand(20, 40) > 0.5, torch.finfo(torch.float32).min)
    mask[3] = torch.finfo(torch.float32).min
    out = torch.full((2, 1, 20, 16), 7.0)
    attention(q, k, v, out, 0.25, mask=mask).run()
    others = [i for i in range(20) if i != 3]
    want = expected(q, k, v, 0.25, mask=mask)
    torch.testing.assert_close(out.double()[:, :, others], want[:, :, others], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(out[:, 0, 3], v[:, 0].mean(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fill", [-10.0, torch.finfo(torch.float32).min, -torch.inf])
def test_removed_keys_with_a_score(fill):
    q, k, v = inputs(1, 1, 20, 40, 16, 16)
    mask = torch.rand(20, 40) > 0.5
    mask[3] = False
    out = torch.full((2, 1, 20, 16), 7.0)
    attention(q, k, v, out, 0.25, mask=mask, fill=fill).run()
    scores = (q.double() @ k.double().mT * 0.25).masked_fill(~mask, fill)
    want = torch.softmax(scores, -1) @ v.double()
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_boolean_masks():
    q, k, v = inputs(2, 1, 40, 70, 32, 32)
    mask = torch.rand(40, 70) > 0.5
    mask[5] = False
    out = check(q, k, v, mask=mask)
    assert (out[:, :, 5] == 0).all()


@pytest.mark.parametrize(("queries", "keys"), [(50, 64), (64, 50), (1, 1), (5, 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_sizes_known_at_run_time(queries, keys, causal):
    check(*inputs(2, 2, queries, keys, 32, 32), causal, dynamic="st")


def test_large_scores_do_not_overflow():
    q, k, v = inputs(1, 1, 32, 64, 16, 16)
    # Scores of a few hundred, whose exponentials are Inf; of integers, since f32 would round others by 1e-5.
    check((q * 10).round(), (k * 10).round(), v)


def test_huge_scores_do_not_overflow():
    """Scores of 1e5 would be off by 0.01 in f32, and softmax by 1 %: these are integers, which are exact."""
    q, k = (100 * torch.randint(-3, 4, (2, 1, n, 16)).float() for n in (32, 64))
    check(q, k, torch.randn(2, 1, 64, 16))
