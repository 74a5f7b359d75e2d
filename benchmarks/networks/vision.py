# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Classifiers of images past plain convolutions and plain attention: ConvNeXt, Swin and MLP-Mixer, written out."""

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.networks.common import Network, images

__all__ = ["ConvNeXt", "Mixer", "Swin", "convnext", "mixer", "swin"]


class _ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of [batch, channels, height, width]."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, then a perceptron over the channels, scaled, on the residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.body = nn.Sequential(
            nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(self.depthwise(x).permute(0, 2, 3, 1)) * self.scale
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """ConvNeXt (Liu et al. 2022); ``widths`` (96, 192, 384, 768), ``blocks`` (3, 3, 9, 3) are those of ConvNeXt-T."""

    def __init__(self, widths: tuple[int, ...], blocks: tuple[int, ...], classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), _ChannelNorm(widths[0], eps=1e-6)]
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            if stage:
                before = widths[stage - 1]
                layers += [_ChannelNorm(before, eps=1e-6), nn.Conv2d(before, width, 2, 2)]
            layers += [_ConvNeXtBlock(width) for _ in range(count)]
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(widths[-1], eps=1e-6), nn.Linear(widths[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(x).mean((2, 3))))


class _Window(nn.Module):
    """Swin's block: attention within windows, which every second block shifts by half a window, then a perceptron.

    Shapes: [batch, size, size, width] -> the same.
    """

    offset: torch.Tensor
    mask: torch.Tensor | None

    def __init__(self, width: int, heads: int, size: int, window: int, shift: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        rows = torch.arange(window)
        places = torch.stack(torch.meshgrid(rows, rows, indexing="ij")).flatten(1)
        offsets = places[:, :, None] - places[:, None, :] + window - 1
        self.register_buffer("offset", offsets[0] * (2 * window - 1) + offsets[1])
        self.register_buffer("mask", self._mask(size) if shift else None)

    def _mask(self, size: int) -> torch.Tensor:
        """What a shifted window joins from opposite ends of the image does not see each other; [windows, w*w, w*w]."""
        regions = torch.zeros(size, size)
        bounds = (slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None))
        for row, vertical in enumerate(bounds):
            for column, horizontal in enumerate(bounds):
                regions[vertical, horizontal] = 3 * row + column
        parts = self._split(regions[None, :, :, None]).squeeze(-1)
        return (parts[:, None, :] != parts[:, :, None]).float() * -100.0

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, size, size, width] -> [batch * windows, window * window, width]."""
        batch, size, _, width = x.shape
        count, window = size // self.window, self.window
        x = x.view(batch, count, window, count, window, width).transpose(2, 3)
        return x.reshape(batch * count * count, window * window, width)

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, size, _, width = x.shape
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        parts = self._split(x)
        shape = (parts.shape[0], parts.shape[1], 3, self.heads, width // self.heads)
        q, k, v = self.qkv(parts).view(shape).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.bias[self.offset].permute(2, 0, 1)[None]
        if self.mask is not None:
            bias = bias + self.mask[None, :, None].to(bias.dtype).expand(batch, -1, -1, -1, -1).flatten(0, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        y = self.project(y.transpose(1, 2).reshape(parts.shape))
        count, window = size // self.window, self.window
        y = y.view(batch, count, count, window, window, width).transpose(2, 3).reshape(x.shape)
        return torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self._attend(self.norm1(x))
        return x + self.body(self.norm2(x))


class _Merge(nn.Module):
    """Four neighbours become one place of twice the width; [batch, size, size, width] -> half the size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduce(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    """Swin transformer (Liu et al. 2021); width 96, (2, 2, 6, 2) blocks and windows of 7 at size 224 are Swin-T's."""

    def __init__(
        self, width: int, blocks: tuple[int, ...], heads: tuple[int, ...], window: int, size: int, classes: int
    ) -> None:
        super().__init__()
        self.embed, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        size //= 4
        layers: list[nn.Module] = []
        for stage, (count, head) in enumerate(zip(blocks, heads, strict=True)):
            if stage:
                layers.append(_Merge(width))
                width, size = 2 * width, size // 2
            shift = window // 2 if size > window else 0
            layers += [_Window(width, head, size, window, shift if block % 2 else 0) for block in range(count)]
        self.layers = nn.Sequential(*layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embed(x).permute(0, 2, 3, 1))
        return self.head(self.layers(x).mean((1, 2)))


class _MixerBlock(nn.Module):
    """A perceptron across the patches, then one across the channels."""

    def __init__(self, patches: int, width: int, token_width: int, channel_width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(patches, token_width), nn.GELU(), nn.Linear(token_width, patches))
        self.channels = nn.Sequential(nn.Linear(width, channel_width), nn.GELU(), nn.Linear(channel_width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al. 2021); widths 512, 256 and 2048, patches of 16, 8 layers are those of S/16."""

    def __init__(
        self, layers: int, width: int, token_width: int, channel_width: int, size: int, patch: int, classes: int
    ) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, patch)
        patches = (size // patch) ** 2
        blocks = [_MixerBlock(patches, width, token_width, channel_width) for _ in range(layers)]
        self.layers = nn.Sequential(*blocks, nn.LayerNorm(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(x).flatten(2).transpose(1, 2)).mean(1))


def convnext(
    *,
    widths: tuple[int, ...] = (16, 24),
    blocks: tuple[int, ...] = (1, 2),
    classes: int = 10,
    batch: int = 2,
    size: int = 32,
) -> Network:
    """ConvNeXt; images [batch, 3, size, size] -> logits [batch, classes]."""
    return ConvNeXt(widths, blocks, classes).eval(), images(batch, size)


def swin(
    *,
    width: int = 16,
    blocks: tuple[int, ...] = (2, 1),
    heads: tuple[int, ...] = (2, 4),
    window: int = 4,
    classes: int = 10,
    batch: int = 2,
    size: int = 32,
) -> Network:
    """Swin; images [batch, 3, size, size] -> logits [batch, classes]."""
    return Swin(width, blocks, heads, window, size, classes).eval(), images(batch, size)


def mixer(
    *,
    layers: int = 2,
    width: int = 48,
    token_width: int = 24,
    channel_width: int = 96,
    patch: int = 8,
    classes: int = 10,
    batch: int = 2,
    size: int = 40,
) -> Network:
    """MLP-Mixer; images [batch, 3, size, size] -> logits [batch, classes]."""
    return Mixer(layers, width, token_width, channel_width, size, patch, classes).eval(), images(batch, size)
