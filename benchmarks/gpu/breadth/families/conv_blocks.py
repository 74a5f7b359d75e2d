# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Blocks of convolutional networks."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Tensor = torch.Tensor


def normed(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Convolution without bias, padded to keep the size, and its batch norm."""
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]


def activated(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.ReLU())


class Gated(nn.Module):
    """1x1 convolution of what a squeeze-and-excite gate scales."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, 1, 1) / inputs**0.5)

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return F.conv2d(x * torch.sigmoid(gate), self.weight)


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, hidden, 1), nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.silu(self.reduce(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.expand(gate))


class MBConv(nn.Module):
    """Expand by 6, depthwise, squeeze-and-excite, project; a residual where the shape stays."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, activation: Callable[[], nn.Module] = nn.SiLU
    ) -> None:
        super().__init__()
        width = 6 * inputs
        self.keeps = inputs == outputs and stride == 1
        self.expand = nn.Sequential(*normed(inputs, width, 1), activation())
        self.depth = nn.Sequential(*normed(width, width, kernel, stride, width), activation())
        self.excite = SqueezeExcite(width, max(1, inputs // 4))
        self.project = nn.Sequential(*normed(width, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.excite(self.depth(self.expand(x))))
        return x + y if self.keeps else y


class Shuffle(nn.Module):
    """ShuffleNetV2's unit: half of the channels pass, then all are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            *normed(half, half, 1), nn.ReLU(), *normed(half, half, 3, 1, half), *normed(half, half, 1), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, 1)
        return shuffled(torch.cat((kept, self.branch(changed)), 1), 2)


class GroupShuffle(nn.Module):
    """ShuffleNet's unit: grouped 1x1 convolutions and a shuffle between them."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        hidden = channels // 4
        self.groups = groups
        self.first = nn.Sequential(*normed(channels, hidden, 1, 1, groups), nn.ReLU())
        self.rest = nn.Sequential(*normed(hidden, hidden, 3, 1, hidden), *normed(hidden, channels, 1, 1, groups))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.rest(shuffled(self.first(x), self.groups)))


def shuffled(x: Tensor, groups: int) -> Tensor:
    batch, channels, height, width = x.shape
    return x.view(batch, groups, channels // groups, height, width).transpose(1, 2).reshape(x.shape)


class Fire(nn.Module):
    """SqueezeNet's module: squeeze, then 1x1 and 3x3 side by side."""

    def __init__(self, inputs: int, squeezed: int, each: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.one, self.three = nn.Conv2d(squeezed, each, 1), nn.Conv2d(squeezed, each, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x))
        return torch.cat((F.relu(self.one(x)), F.relu(self.three(x))), 1)


class Inception(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.one = nn.Sequential(*normed(inputs, 64, 1), nn.ReLU())
        self.three = nn.Sequential(*normed(inputs, 96, 1), nn.ReLU(), *normed(96, 128, 3), nn.ReLU())
        self.five = nn.Sequential(*normed(inputs, 16, 1), nn.ReLU(), *normed(16, 32, 5), nn.ReLU())
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), *normed(inputs, 32, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.one(x), self.three(x), self.five(x), self.pooled(x)), 1)


class Dense(nn.Module):
    """DenseNet's layers: each sees all before it."""

    def __init__(self, inputs: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for width in range(inputs, inputs + layers * growth, growth):
            narrow = [nn.BatchNorm2d(width), nn.ReLU(), *normed(width, 4 * growth, 1), nn.ReLU()]
            self.layers.append(nn.Sequential(*narrow, nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat((x, layer(x)), 1)
        return x


class Ghost(nn.Module):
    """GhostNet's module: half of the outputs are cheap depthwise copies."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.primary = nn.Sequential(*normed(inputs, half, 1), nn.ReLU())
        self.cheap = nn.Sequential(*normed(half, half, 3, 1, half), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        first = self.primary(x)
        return torch.cat((first, self.cheap(first)), 1)


class ConvNeXt(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.expand, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.scale * self.shrink(F.gelu(self.expand(y)))
        return x + y.permute(0, 3, 1, 2)


class LargeKernel(nn.Module):
    """VAN's attention: a decomposed 21x21 kernel as a gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.near = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.far = nn.Conv2d(width, width, 7, padding=9, groups=width, dilation=3)
        self.mix = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mix(self.far(self.near(x)))


class Res2(nn.Module):
    """Res2Net's hierarchy of 3x3 convolutions inside of one block."""

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        each = width // parts
        self.convs = nn.ModuleList(nn.Sequential(*normed(each, each, 3), nn.ReLU()) for _ in range(parts - 1))
        self.last = nn.Sequential(*normed(width, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = x.chunk(self.parts, 1)
        found, current = [first], torch.zeros_like(first)
        for part, conv in zip(rest, self.convs, strict=True):
            current = conv(part + current)
            found.append(current)
        return F.relu(x + self.last(torch.cat(found, 1)))


class SpatialGate(nn.Module):
    """CBAM's: means and maxima over channels make a gate for each place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, 7, padding=3)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return x * torch.sigmoid(self.conv(torch.cat((x.mean(1, True), x.amax(1, True)), 1)))


class PyramidPooling(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.sizes = (1, 2, 3, 6)
        self.convs = nn.ModuleList(nn.Sequential(*normed(width, width // 4, 1), nn.ReLU()) for _ in self.sizes)

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape[2:]
        pooled = [conv(F.adaptive_avg_pool2d(x, size)) for size, conv in zip(self.sizes, self.convs, strict=True)]
        grown = [F.interpolate(y, shape, mode="bilinear", align_corners=False) for y in pooled]
        return torch.cat((x, *grown), 1)


class Atrous(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(inputs, outputs, 3, padding=rate, dilation=rate, bias=False) for rate in (1, 6, 12, 18)
        )
        self.mix = nn.Sequential(*normed(4 * outputs, outputs, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(torch.cat([conv(x) for conv in self.convs], 1))


class Timed(nn.Module):
    """A diffusion model's residual block: group norms, and a time that shifts."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(32, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.time = nn.Linear(1280, outputs)
        self.second = nn.Sequential(nn.GroupNorm(32, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.first(x) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.second(y)


class UpConcatenate(nn.Module):
    def __init__(self, low: int, high: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(low, high, 2, 2)
        self.conv = nn.Sequential(*normed(2 * high, high, 3), nn.ReLU())

    def forward(self, low: Tensor, high: Tensor) -> Tensor:
        return self.conv(torch.cat((self.up(low), high), 1))


class PixelShuffle(nn.Module):
    def __init__(self, width: int, factor: int) -> None:
        super().__init__()
        self.factor = factor
        self.conv, self.last = nn.Conv2d(width, 3 * factor**2, 3, padding=1), nn.PReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.pixel_shuffle(self.conv(x), self.factor))


class Transfer(nn.Module):
    """Reflected edges and instance norms, as in networks for style transfer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3), nn.Conv2d(width, width, 3)
        self.norm1, self.norm2 = nn.InstanceNorm2d(width, affine=True), nn.InstanceNorm2d(width, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(F.pad(x, (1, 1, 1, 1), mode="reflect"))))
        return x + self.norm2(self.conv2(F.pad(y, (1, 1, 1, 1), mode="reflect")))


class Causal(nn.Module):
    """WaveNet's gated convolutions with growing dilation."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**i) for i in range(layers))
        self.mixes = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for i, (conv, mix) in enumerate(zip(self.convs, self.mixes, strict=True)):
            left, right = conv(F.pad(x, (2**i, 0))).chunk(2, 1)
            x = x + mix(torch.tanh(left) * torch.sigmoid(right))
        return x


class Upsampler(nn.Module):
    """HiFi-GAN's: a transposed convolution, then residual dilated ones with leaky activations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(width, width // 2, 16, 8, 4)
        self.convs = nn.ModuleList(
            nn.Conv1d(width // 2, width // 2, 3, dilation=rate, padding=rate) for rate in (1, 3, 5)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(F.leaky_relu(x, 0.1))
        for conv in self.convs:
            x = x + conv(F.leaky_relu(x, 0.1))
        return torch.tanh(x)


class Volumetric(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.space = nn.Conv3d(width, 2 * width, (1, 3, 3), padding=(0, 1, 1), bias=False)
        self.time = nn.Conv3d(2 * width, width, (3, 1, 1), padding=(1, 0, 0), bias=False)
        self.norm1, self.norm2 = nn.BatchNorm3d(2 * width), nn.BatchNorm3d(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.norm2(self.time(F.relu(self.norm1(self.space(x))))))


class Depthwise(nn.Module):
    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.block = nn.Sequential(*normed(width, width, kernel, 1, width), nn.GELU(), *normed(width, 2 * width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)
