# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random parameters of a real scale.

A new model hides mistakes: its norms scale by 1 and shift by 0, its batch norms have mean 0 and variance 1, its layer
scales are 1e-6 and some weights are zeros.
"""

import torch
from torch import nn

__all__ = ["randomize"]


@torch.no_grad()
def randomize(module: nn.Module) -> None:
    """Replace what a new model has as constants, and what it leaves uninitialized; other parameters stay."""
    for parameter in module.parameters():
        if parameter.is_floating_point() and parameter.numel():
            _parameter(parameter)
    for part in module.modules():
        mean, variance = getattr(part, "running_mean", None), getattr(part, "running_var", None)
        if isinstance(mean, torch.Tensor) and isinstance(variance, torch.Tensor):
            mean.normal_(0, 0.2)
            variance.uniform_(0.5, 1.5)


def _parameter(parameter: torch.Tensor) -> None:
    least, most = parameter.min().item(), parameter.max().item()
    if not (abs(least) < 1e4 and abs(most) < 1e4):  # NaN as well: never initialized
        parameter.normal_(0, 0.02)
    elif least != most or parameter.numel() == 1:
        return
    elif least == 1.0:
        parameter.uniform_(0.5, 1.5)
    elif abs(least) >= 0.05:  # a temperature, the logarithm of a scale
        parameter.mul_(torch.empty_like(parameter).uniform_(0.9, 1.1))
    elif parameter.dim() <= 1 or parameter.numel() == max(parameter.shape):
        parameter.normal_(0, 0.1)  # a bias; layer scales, which begin as 1e-6
    else:
        parameter.normal_(0, 0.02)
