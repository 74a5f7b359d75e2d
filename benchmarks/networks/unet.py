# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Networks that give an image for an image: a U-Net for segmentation, and a small one as diffusion models have it."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.networks.common import Network, conv_norm, images, trained_statistics

__all__ = ["DiffusionUNet", "UNet", "diffusion_unet", "unet"]


def _double(inputs: int, outputs: int) -> nn.Sequential:
    relu = nn.ReLU(inplace=True)
    return nn.Sequential(*conv_norm(inputs, outputs, 3), relu, *conv_norm(outputs, outputs, 3), relu)


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015) that pads its convolutions; ``width`` 64 and ``levels`` 4 are the published."""

    def __init__(self, width: int, levels: int, classes: int) -> None:
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(_double(i, o) for i, o in zip([3, *widths], widths, strict=False))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(w, w // 2, 2, 2) for w in widths[:0:-1])
        self.up = nn.ModuleList(_double(w, w // 2) for w in widths[:0:-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for number, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if number else x)
            kept.append(x)
        kept.pop()
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat((kept.pop(), grow(x)), 1))
        return self.head(x)


class _Timed(nn.Module):
    """Residual block of a diffusion model: group norm, SiLU, convolution, with the time's embedding added between."""

    def __init__(self, inputs: int, outputs: int, timed: int, groups: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, inputs), nn.GroupNorm(groups, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(timed, outputs)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.shortcut(x)


class _Spatial(nn.Module):
    """Self-attention over the places of an image, on the residual."""

    def __init__(self, channels: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(groups, channels)
        self.qkv, self.project = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, 3, self.heads, channels // self.heads, height * width)
        q, k, v = parts.transpose(3, 4).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(x.shape)
        return x + self.project(y)


class DiffusionUNet(nn.Module):
    """Two levels, attention at the lower one, as in DDPM (Ho et al. 2020); images and times [batch] -> noise."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        timed = 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, timed), nn.SiLU(), nn.Linear(timed, timed))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down1, self.shrink = _Timed(width, width, timed, groups), nn.Conv2d(width, width, 3, 2, 1)
        self.down2 = _Timed(width, 2 * width, timed, groups)
        self.attend, self.middle = _Spatial(2 * width, heads, groups), _Timed(2 * width, 2 * width, timed, groups)
        self.grow = nn.Conv2d(2 * width, width, 3, padding=1)
        self.up = _Timed(2 * width, width, timed, groups)
        self.last = nn.Sequential(nn.GroupNorm(groups, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        steps = torch.arange(half, device=x.device, dtype=x.dtype) * (-math.log(10000.0) / half)
        angles = times[:, None] * torch.exp(steps)
        time = self.time(torch.cat((torch.sin(angles), torch.cos(angles)), -1))
        high = self.down1(self.first(x), time)
        low = self.middle(self.attend(self.down2(self.shrink(high), time)), time)
        grown = self.grow(F.interpolate(low, scale_factor=2.0, mode="nearest"))
        return self.last(self.up(torch.cat((grown, high), 1), time))


def unet(*, width: int = 8, levels: int = 2, classes: int = 3, batch: int = 2, size: int = 24) -> Network:
    """U-Net; images [batch, 3, size, size] -> logits [batch, classes, size, size]."""
    return trained_statistics(UNet(width, levels, classes)), images(batch, size)


def diffusion_unet(*, width: int = 16, heads: int = 2, groups: int = 4, batch: int = 2, size: int = 12) -> Network:
    """Diffusion U-Net; images [batch, 3, size, size] and times [batch] -> noise [batch, 3, size, size]."""

    def make(g: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (*images(batch, size)(g), torch.rand(batch, generator=g) * 10)

    return DiffusionUNet(width, heads, groups).eval(), make
