# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Softmax over long columns takes several kernels. The one that stored the maxima rounded its operand to 16 bits, and
the one that added up the exponentials computed the operand again, without that rounding: sums of a softmax were 1.1."""

import pytest
import torch

from kiln.lowering import paths


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_softmax_of_rounded_columns(dtype):
    torch.manual_seed(0)
    x = (50 * torch.randn(3072, 56)).to(dtype)

    def columns(x):
        return torch.softmax(x * 0.3, 0, dtype=torch.float32)

    paths.reset()
    found = torch.compile(columns, backend="kiln", options={"fallback": False, "target": "tt-cpu"})(x)
    assert paths.taken()["any drop-roundings: in another kernel"]
    torch.testing.assert_close(found.sum(0), torch.ones(56))
    torch.testing.assert_close(found, columns(x), rtol=1e-5, atol=1e-7)
