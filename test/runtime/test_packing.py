# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Constants in the order that kernels read, one copy for all."""

import gc

import pytest
import torch

from kiln.runtime.packing import packed, shared


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("transposed", [False, True])
def test_elements_lie_where_the_layout_says(dtype, transposed):
    x = torch.randint(-9, 9, (7, 5, 3)).to(dtype)
    if transposed:
        x = x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    flat = packed(x, "((s0 floordiv 4) * 15 + s1 * 3 + s2) * 4 + s0 mod 4", 120)
    assert (flat.shape, flat.dtype) == ((120,), dtype)
    blocks = flat.reshape(2, 5, 3, 4)
    assert torch.equal(blocks.permute(0, 3, 1, 2).reshape(8, 5, 3)[:7], x)
    assert not blocks[1, :, :, 3].any()


def test_a_layout_that_does_not_depend_on_a_dim_of_size_one():
    assert packed(torch.tensor([[5.0, 6.0]]), "s1 * 2", 4).tolist() == [5, 0, 6, 0]
    assert packed(torch.tensor([[5.0]]), "3", 4).tolist() == [0, 0, 0, 5]


def test_equal_contents_share_a_copy():
    x = torch.randn(64, 32)
    first = packed(x, "s0 * 32 + s1", 2048)
    assert packed(x.clone(), "s0 * 32 + s1", 2048) is first
    assert packed(x, "s0 + s1 * 64", 2048) is not first
    assert packed(x + 1, "s0 * 32 + s1", 2048) is not first
    x[0, 0] += 1
    assert packed(x, "s0 * 32 + s1", 2048)[0] == x[0, 0]


def test_shared_tensors_are_equal_in_everything():
    x = torch.randn(8, 4)
    assert shared(x) is x
    assert shared(x.clone()) is x
    assert shared(x.t().contiguous().t()) is not x
    assert shared(x.view(4, 8)).shape == (4, 8)
    assert shared(x.view(torch.int32)).dtype == torch.int32


def test_copies_die_with_their_last_user():
    x = torch.randn(16)
    copy = shared(x)
    del x, copy
    gc.collect()
    y = torch.zeros(16)
    assert shared(y) is y
