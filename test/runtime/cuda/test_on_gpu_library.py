# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products and convolutions of NVIDIA's libraries on a GPU against float64; skipped where there is none."""

import pytest
import torch
import torch.nn.functional as F
from on_gpu_support import check, check_in_streams, randn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_products_of_the_library() -> None:
    """Biases, GELU, weights either way round, batches and parts of rows, in all types."""
    limits = {torch.bfloat16: 6e-3, torch.float16: 1e-3, torch.float32: 1e-5, torch.float64: 1e-12}
    for dtype, limit in limits.items():
        x, w, b = randn(2, 1024, 520, dtype=dtype), randn(768, 520, dtype=dtype) / 16, randn(768, dtype=dtype)
        check(lambda x, w, b: F.linear(x, w, b), x, w, b, limit=limit)
        check(lambda x, w, b: F.linear(x[:, :, 8:], w[:, 8:]) * 2, x, w, b, limit=limit)
        u = randn(512, 2048, dtype=dtype) / 16
        check(lambda x, u, b: F.gelu(torch.addmm(b, x, u), approximate="tanh"), x.view(2048, 520)[:, :512].contiguous(),
              u, randn(2048, dtype=dtype), limit=limit)  # fmt: skip
        a = randn(8, 512, 264, dtype=dtype)
        check(lambda a: a.mT @ a, a, limit=limit)


def test_products_of_the_library_in_several_streams_and_recorded() -> None:
    w, u, b = randn(1024, 1024) / 32, randn(1024, 1024) / 32, randn(1024)
    w, u, b = w.bfloat16(), u.bfloat16(), b.bfloat16()

    def model(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.linear(torch.relu(F.linear(x, w, b)), u, b), (1024,))

    def exact(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(F.linear(x.double(), w.double(), b.double()))
        return F.layer_norm(F.linear(y, u.double(), b.double()), (1024,))

    inputs = [randn(640, 1024).bfloat16() for _ in range(8)]
    check_in_streams(model, exact, inputs)


def images(*shape: int, dtype: torch.dtype, last: bool) -> torch.Tensor:
    found = randn(*shape, dtype=dtype)
    return found.contiguous(memory_format=torch.channels_last) if last and found.dim() == 4 else found


def test_convolutions_of_the_library() -> None:
    """Strides, padding, dilation, groups, one to three dims, either layout, all types."""
    limits = {torch.bfloat16: 6e-3, torch.float16: 1e-3, torch.float32: 1e-5, torch.float64: 1e-12}
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for dtype, limit in limits.items():
            for last in (True, False):
                x, w = images(3, 32, 29, 31, dtype=dtype, last=last), images(48, 32, 3, 3, dtype=dtype, last=last) / 16
                b = randn(48, dtype=dtype)
                check(
                    lambda x, w, b: torch.relu(F.conv2d(torch.relu(x), w, b, (2, 1), 1, (1, 2))), x, w, b, limit=limit
                )
                check(lambda x, w: F.conv2d(x, w[:, :8], None, 1, 1, 1, 4), x, w, limit=limit)
            x, w = randn(2, 16, 100, dtype=dtype), randn(8, 16, 5, dtype=dtype) / 8
            check(lambda x, w: F.conv1d(x, w, None, 2, 2), x, w, limit=limit)
            x, w = randn(2, 16, 9, 10, 11, dtype=dtype), randn(8, 16, 3, 3, 3, dtype=dtype) / 16
            check(lambda x, w: F.conv3d(x, w, None, 1, 1), x, w, limit=limit)


def test_convolutions_of_the_library_in_several_streams_and_recorded() -> None:
    w, u = (images(64, 64, 3, 3, dtype=torch.bfloat16, last=True) / 16 for _ in range(2))

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(F.conv2d(torch.relu(F.conv2d(x, w, None, 1, 1)), u, None, 2, 1))

    def exact(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(F.conv2d(torch.relu(F.conv2d(x.double(), w.double(), None, 1, 1)), u.double(), None, 2, 1))

    inputs = [images(4, 64, 28, 28, dtype=torch.bfloat16, last=True) for _ in range(8)]
    check_in_streams(model, exact, inputs)
