# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Windows that move by two: lanes along columns, loaded in pairs of vectors, and the masks of padding."""

import pytest
import torch
import torch.nn.functional as F

CASES = {
    "max, padded": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 17, 40)),
    "max, whole": (lambda x: F.max_pool2d(x, 2, 2), (1, 5, 8, 34)),
    "max, ceiling": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), (1, 3, 8, 16)),
    "max, dilated": (lambda x: F.max_pool2d(x, 2, 2, 1, dilation=3), (1, 3, 9, 21)),
    "average": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (2, 3, 9, 31)),
    "three dims": (lambda x: F.max_pool3d(x, 3, 2, 1), (1, 2, 5, 9, 23)),
    "every other element": (lambda x: x[..., 1::2] * 2 + F.pad(x[..., ::2], (3, 4)).sum(1, keepdim=True).mean(), (3, 5, 38)),
    "narrow": (lambda x: F.max_pool2d(x, 2, 2), (1, 2, 4, 6)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_against_eager(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    function, shape = CASES[name]
    # The input ends where its memory does, so that a load past the last element could be seen by a sanitizer; NaN
    # before it would be seen in the results.
    memory = torch.full((torch.Size(shape).numel() + 7,), torch.nan, dtype=dtype)
    memory[7:] = torch.randn(torch.Size(shape).numel())
    x = memory[7:].view(shape)
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(function, backend="kiln")(x)
    exact = function(x.double())
    tolerance = 0.0 if name.startswith(("max", "three", "narrow")) else torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("padding", [0, 1])
def test_sizes_known_at_run_time(padding: int) -> None:
    torch._dynamo.reset()
    pool = torch.compile(lambda x: F.max_pool2d(x, 3, 2, padding), backend="kiln", dynamic=True)
    for shape in ((2, 3, 9, 35), (1, 4, 8, 70), (3, 2, 5, 6)):
        x = torch.randn(shape)
        with torch.no_grad():
            assert torch.equal(pool(x), F.max_pool2d(x, 3, 2, padding))
