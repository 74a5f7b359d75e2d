# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matrix products in Triton IR: their numbers (run on the CPU) against float64, and machine code for GPUs."""

import pytest
import torch
from dot_support import described_product, product

from kiln.dialects.schedules.gpu import TmaSchedule

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 5e-3, torch.float16: 6e-4}


def check(out, x, w):
    if not out.dtype.is_floating_point:
        wide = (x.to(torch.int64) @ w.to(torch.int64)).to(out.dtype)
        assert torch.equal(out, wide)
        return
    expected = x.double() @ w.double()
    # The size that sums of random numbers as large as these have: a single one may be near zero by chance.
    rows, columns = x.double().square().mean(-1, keepdim=True).nan_to_num(), w.double().square().sum(-2, keepdim=True)
    size = (rows @ columns).sum().sqrt()
    error = (out.double() - expected).norm() / size.clamp_min(1e-30)
    assert error < TOLERANCE[out.dtype]


def in_tf32(x):
    """What tensor cores read of f32 operands in tf32: not the lower 13 bits."""
    return (x.contiguous().view(torch.int32) & -(1 << 13)).view(torch.float32) if x.dtype == torch.float32 else x


def matrix(rows, columns, dtype, transposed=False, batch=()):
    shape = (*batch, columns, rows) if transposed else (*batch, rows, columns)
    x = torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(-100, 100, shape, dtype=dtype)
    return x.mT if transposed else x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(17, 33, 65), (64, 64, 64), (1, 70, 130), (70, 1, 130), (1, 1, 50), (100, 7, 19)]
)
def test_sizes(m, n, k, dtype):
    x, w = matrix(m, k, dtype), matrix(k, n, dtype, transposed=True)
    out = torch.full((m, n), 7.0, dtype=dtype)
    product(x, w, out).run()
    check(out, x, w)


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(("m", "n", "k"), [(17, 33, 65), (1, 70, 130), (70, 1, 130)])
def test_strides(m, n, k, transposed):
    x, w = matrix(m, k, torch.float32, transposed[0]), matrix(k, n, torch.float32, transposed[1])
    out = torch.full((m, n), 7.0)
    product(x, w, out).run()
    check(out, x, w)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("m", [1, 20])
def test_integers_wrap(dtype, m):
    x, w = matrix(m, 37, dtype), matrix(37, 19, dtype, True)
    out = torch.full((m, 19), 7, dtype=dtype)
    product(x, w, out).run()
    check(out, x, w)


@pytest.mark.parametrize(("m", "n", "k"), [(5, 40, 70), (64, 128, 64), (130, 20, 3), (3, 4, 0), (0, 4, 8)])
def test_sizes_known_at_run_time(m, n, k):
    x, w = torch.randn(m, k), torch.randn(n, k).mT
    out = torch.full((m, n), 7.0)
    product(x, w, out, dynamic="mnk").run()
    check(out, x, w)


def test_nothing_is_written_outside_of_the_result():
    x, w = torch.randn(13, 21), torch.randn(21, 9)
    memory = torch.full((15, 11), 7.0)
    out = memory[:13, :9]
    product(x, w, out).run()
    check(out, x, w)
    memory[:13, :9] = 7.0
    assert (memory == 7.0).all()


def test_batches_and_shared_weights():
    x, w = torch.randn(3, 2, 20, 30), torch.randn(3, 2, 30, 10)
    out = torch.empty(3, 2, 20, 10)
    product(x, w, out).run()
    check(out, x, w)
    shared = torch.randn(30, 10)
    product(x, shared, out).run()
    check(out, x, shared)


def test_padding_of_the_reduction_is_not_read():
    """Rows behind each other in memory: what follows a row must not enter its sums, NaN least of all."""
    memory = torch.full((8, 64), torch.nan)
    memory[:, :37] = torch.randn(8, 37)
    x, w = memory[:, :37], torch.randn(37, 5)
    out = torch.empty(8, 5)
    product(x, w, out).run()
    check(out, x, w)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("persistent", "pieces"), [(False, 2), (True, 2), (True, 4)])
def test_descriptors(dtype, transposed, persistent, pieces):
    x, w = matrix(200, 192, dtype), matrix(192, 320, dtype, transposed or dtype == torch.float32)
    out = torch.full((200, 320), 7.0, dtype=dtype)
    schedule = TmaSchedule(
        block_m=64, block_n=64, block_k=32, group_m=2, num_warps=4, num_stages=2, epilogue_pieces=pieces,
        persistent=persistent, programs=3,
    )  # fmt: skip
    described_product(x, w, out, schedule).run()
    check(out, in_tf32(x), in_tf32(w))


def test_descriptors_of_rows_that_are_no_whole_lines():
    """Operands' rows of 16 bytes, of the result any: logits."""
    x, w = matrix(200, 200, torch.bfloat16), matrix(200, 321, torch.bfloat16, True)
    out = torch.full((200, 321), 7.0, dtype=torch.bfloat16)
    schedule = TmaSchedule(
        block_m=64, block_n=64, block_k=64, group_m=2, num_warps=4, num_stages=2, epilogue_pieces=1,
        persistent=False, programs=3,
    )  # fmt: skip
    described_product(x, w, out, schedule).run()
    check(out, x, w)
