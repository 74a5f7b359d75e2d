# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""ResNet-50 with random weights (He et al. 2015, table 1; the stride is in the 3x3 convolution)."""

from collections.abc import Callable

import torch
from torch import nn

__all__ = ["resnet50"]


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.main = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.side: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.side = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.main(x) + self.side(x))


def resnet50(
    *, batch: int = 1, size: int = 224, classes: int = 1000
) -> tuple[nn.Module, Callable[[torch.Generator], tuple[torch.Tensor, ...]]]:
    """Images [batch, 3, size, size] in channels-last memory -> logits [batch, classes]."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(_Bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))

    def images(g: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (torch.randn(batch, 3, size, size, generator=g).to(memory_format=torch.channels_last),)

    model = model.eval()
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return model, images
