# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Long sums stay near PyTorch's cascade summation: an error that grows with the length would show here first."""

import pytest
import torch


class Sum(torch.nn.Module):
    def __init__(self, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.dims = dims
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(self.dims) * self.scale


@pytest.mark.parametrize(
    ("shape", "dims"),
    [((4096, 256), (0,)), ((64, 8192), (1,)), ((4, 2000, 96), (1,)), ((16, 64, 28, 28), (0, 2, 3))],
    ids=["columns", "rows", "middle", "batch-norm"],
)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_long_sum(shape, dims, dynamic, check_model):
    check_model(Sum(dims), (torch.randn(shape),), dynamic=dynamic)


def test_long_sum_channels_last(check_model):
    check_model(Sum((0, 2, 3)), (torch.randn(16, 64, 28, 28).to(memory_format=torch.channels_last),))
