# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the networks share: wrappers of transformers' models, makers of inputs, and statistics of batch norms."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = ["First", "Inputs", "Network", "conv_norm", "images", "tokens", "trained_statistics"]

Inputs = Callable[[torch.Generator], tuple[torch.Tensor, ...]]
Network = tuple[nn.Module, Inputs]


class First(nn.Module):
    """A transformers model that returns the first field of its output alone (hidden states or logits)."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True)), **self.fixed)[0]


def tokens(vocabulary: int, batch: int, *lengths: int) -> Inputs:
    return lambda g: tuple(torch.randint(0, vocabulary, (batch, length), generator=g) for length in lengths)


def images(batch: int, size: int) -> Inputs:
    return lambda g: (torch.randn(batch, 3, size, size, generator=g),)


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Convolution without bias, padded to keep the size, and its batch norm."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


@torch.no_grad()
def trained_statistics(model: nn.Module) -> nn.Module:
    """Give batch norms the statistics and weights of a trained network's order, not the (0, 1, 1, 0) of a new one."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.uniform_(0.5, 1.5)
            module.bias.normal_(0, 0.2)
    return model.eval()
