# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutional classifiers, written out."""

import torch
from torch import nn

from benchmarks.networks.common import Network, conv_norm, images, trained_statistics

__all__ = [
    "EFFICIENTNET_STAGES",
    "MOBILENET_STAGES",
    "EfficientNet",
    "MobileNetV2",
    "ResNet18",
    "ResNet50",
    "VGG11",
    "efficientnet",
    "mobilenet_v2",
    "resnet18",
    "resnet50",
    "vgg11",
]


class _Basic(nn.Module):
    """ResNet's two-convolution block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *conv_norm(inputs, outputs, 3, stride), nn.ReLU(inplace=True), *conv_norm(outputs, outputs, 3)
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv_norm(inputs, outputs, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.body(x) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 (He et al. 2015); ``width`` 64 is the published one."""

    def __init__(self, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_norm(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        inputs = width
        for stage in range(4):
            outputs = width << stage
            for block in range(2):
                layers.append(_Basic(inputs, outputs, 2 if stage and not block else 1))
                inputs = outputs
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class _Inverted(nn.Module):
    """MobileNetV2's inverted residual: expand, depthwise, project."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        layers: list[nn.Module] = [*conv_norm(inputs, hidden, 1), nn.ReLU6(inplace=True)] if expand > 1 else []
        layers += [
            *conv_norm(hidden, hidden, 3, stride, hidden),
            nn.ReLU6(inplace=True),
            *conv_norm(hidden, outputs, 1),
        ]
        self.body, self.residual = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


#: (expansion, channels, blocks, stride) of the published MobileNetV2 (Sandler et al. 2018).
MOBILENET_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class MobileNetV2(nn.Module):
    """MobileNetV2 with the given stages."""

    def __init__(
        self, stages: tuple[tuple[int, int, int, int], ...] = MOBILENET_STAGES, last: int = 1280, classes: int = 1000
    ) -> None:
        super().__init__()
        inputs = 32
        layers: list[nn.Module] = [*conv_norm(3, inputs, 3, 2), nn.ReLU6(inplace=True)]
        for expand, outputs, blocks, stride in stages:
            for block in range(blocks):
                layers.append(_Inverted(inputs, outputs, 1 if block else stride, expand))
                inputs = outputs
        layers += [*conv_norm(inputs, last, 1), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class _Bottleneck(nn.Module):
    """ResNet's three-convolution block; the stride is in the 3x3 convolution."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        relu = nn.ReLU(inplace=True)
        self.body = nn.Sequential(
            *conv_norm(inputs, width, 1),
            relu,
            *conv_norm(width, width, 3, stride),
            relu,
            *conv_norm(width, 4 * width, 1),
        )
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv_norm(inputs, 4 * width, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet50(nn.Module):
    """ResNet-50 (He et al. 2015); ``width`` 64 and ``blocks`` (3, 4, 6, 3) are the published ones."""

    def __init__(self, width: int = 64, blocks: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_norm(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        inputs = width
        for stage, count in enumerate(blocks):
            for block in range(count):
                layers.append(_Bottleneck(inputs, width << stage, 2 if stage and not block else 1))
                inputs = 4 * (width << stage)
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class VGG11(nn.Module):
    """VGG-11 without batch norm (Simonyan and Zisserman 2014); ``width`` 64, ``hidden`` 4096 are the published ones."""

    def __init__(self, width: int = 64, hidden: int = 4096, pooled: int = 7, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for scale in (1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0):
            if scale:
                layers += [nn.Conv2d(inputs, scale * width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = scale * width
            else:
                layers.append(nn.MaxPool2d(2))
        layers += [nn.AdaptiveAvgPool2d(pooled), nn.Flatten()]
        for size in (inputs * pooled * pooled, hidden):
            layers += [nn.Linear(size, hidden), nn.ReLU(inplace=True), nn.Dropout()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class _Excite(nn.Module):
    """Squeeze and excitation: each channel is scaled by what its means over the image say."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, hidden, 1), nn.Conv2d(hidden, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = nn.functional.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.expand(nn.functional.silu(self.reduce(means))))


class _MobileExcite(nn.Module):
    """EfficientNet's block: expand, depthwise, excite, project."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        layers: list[nn.Module] = [*conv_norm(inputs, hidden, 1), nn.SiLU(inplace=True)] if expand > 1 else []
        layers += [*conv_norm(hidden, hidden, kernel, stride, hidden), nn.SiLU(inplace=True)]
        layers += [_Excite(hidden, max(1, inputs // 4)), *conv_norm(hidden, outputs, 1)]
        self.body, self.residual = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


#: (expansion, channels, blocks, stride, kernel) of EfficientNet-B0 (Tan and Le 2019).
EFFICIENTNET_STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


class EfficientNet(nn.Module):
    """EfficientNet with the given stages."""

    def __init__(
        self,
        stages: tuple[tuple[int, int, int, int, int], ...] = EFFICIENTNET_STAGES,
        last: int = 1280,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        inputs = 32
        layers: list[nn.Module] = [*conv_norm(3, inputs, 3, 2), nn.SiLU(inplace=True)]
        for expand, outputs, blocks, stride, kernel in stages:
            for block in range(blocks):
                layers.append(_MobileExcite(inputs, outputs, kernel, 1 if block else stride, expand))
                inputs = outputs
        layers += [*conv_norm(inputs, last, 1), nn.SiLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def resnet18(*, width: int = 16, classes: int = 10, batch: int = 2, size: int = 32) -> Network:
    """ResNet-18; images [batch, 3, size, size] -> logits [batch, classes]."""
    return trained_statistics(ResNet18(width, classes)), images(batch, size)


def mobilenet_v2(
    *,
    stages: tuple[tuple[int, int, int, int], ...] = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 2)),
    last: int = 64,
    classes: int = 10,
    batch: int = 2,
    size: int = 32,
) -> Network:
    """MobileNetV2; images [batch, 3, size, size] -> logits [batch, classes]."""
    return trained_statistics(MobileNetV2(stages, last, classes)), images(batch, size)


def resnet50(
    *,
    width: int = 8,
    blocks: tuple[int, ...] = (2, 1, 1, 1),
    classes: int = 10,
    batch: int = 2,
    size: int = 32,
) -> Network:
    """ResNet-50; images [batch, 3, size, size] -> logits [batch, classes]."""
    return trained_statistics(ResNet50(width, blocks, classes)), images(batch, size)


def vgg11(
    *, width: int = 8, hidden: int = 48, pooled: int = 1, classes: int = 10, batch: int = 2, size: int = 32
) -> Network:
    """VGG-11; images [batch, 3, size, size] -> logits [batch, classes]."""
    return VGG11(width, hidden, pooled, classes).eval(), images(batch, size)


def efficientnet(
    *,
    stages: tuple[tuple[int, int, int, int, int], ...] = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 5)),
    last: int = 64,
    classes: int = 10,
    batch: int = 2,
    size: int = 32,
) -> Network:
    """EfficientNet; images [batch, 3, size, size] -> logits [batch, classes]."""
    return trained_statistics(EfficientNet(stages, last, classes)), images(batch, size)
