# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Parts of networks, written out: each ends in an epilogue or begins with a prologue that some kernel takes in."""

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.gpu.breadth.entry import Built, Entry
from benchmarks.gpu.breadth.families import conv_blocks as conv
from benchmarks.gpu.breadth.families import token_blocks as token

__all__ = ["ENTRIES"]

Shape = tuple[int, ...]


def _block(
    name: str, make: Callable[[], nn.Module], *shapes: Shape, batch: int = 8, trains: bool = True, images: bool = False
) -> Entry:
    """`shapes`: of the inputs, without the batch; `images`: channels last."""

    def build(batch: int) -> Built:
        def inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
            found = [torch.randn(batch, *shape, generator=generator) for shape in shapes]
            return tuple(x.to(memory_format=torch.channels_last) if images and x.dim() == 4 else x for x in found)

        module = make()
        return module.to(memory_format=torch.channels_last) if images else module, inputs

    return Entry(f"block {name}", "block", build, batch, trains, 0.5)


_TOKENS = [
    _block("relu linear 64x192", lambda: token.Activated(64, 192, nn.ReLU()), (64,), batch=8192),
    _block("gelu linear 64x192", lambda: token.Activated(64, 192, nn.GELU()), (64,), batch=8192),
    *(
        _block(f"relu linear 64x{n}", lambda n=n: token.Activated(64, n, nn.ReLU()), (64,), batch=8192, trains=False)
        for n in (96, 128, 160, 200, 224, 256, 320, 448)
    ),
    _block("linear 136x576", lambda: token.Activated(136, 576, nn.GELU()), (136,), batch=20000),
    _block("soft-capped logits", lambda: token.SoftCapped(1024, 16000, 30.0), (1024,), batch=512),
    _block("exp of a product less one", lambda: token.ExpOfProduct(), (64, 96), (96, 80), batch=64),
    _block("mlp", lambda: token.mlp(512, 2048), (197, 512), batch=32),
    _block("gated mlp", lambda: token.GatedMlp(1024, 2816), (256, 1024)),
    _block("swin mlp", lambda: token.WindowMlp(96, 56, 7, 3), (56 * 56, 96), batch=32),
    _block("cosine window attention", lambda: token.CosineWindowAttention(96, 64, 8, 3), (64 * 64, 96), batch=8),
    _block("rotary attention", lambda: token.RotaryAttention(1024, 16, 4), (256, 1024)),
    _block("capped attention", lambda: token.CappedAttention(1024, 8, 50.0), (256, 1024)),
    _block("alibi attention", lambda: token.AlibiAttention(768, 12), (200, 768)),
    _block("linear attention", lambda: token.LinearAttention(512, 8), (256, 512)),
    _block("cross attention", lambda: token.CrossAttention(320, 768, 8), (1024, 320), (77, 768)),
    _block("mixture of experts", lambda: token.Experts(512, 1024, 8), (128, 512)),
    _block("selective scan", lambda: token.SelectiveScan(256, 16), (48, 256)),
    _block("rwkv time mix", lambda: token.TimeMix(512), (48, 512)),
    _block("lstm cell", lambda: token.Recurrent(nn.LSTMCell(256, 256), 256), (24, 256), batch=64),
    _block("gru cell", lambda: token.Recurrent(nn.GRUCell(256, 256), 256), (24, 256), batch=64),
    _block("graph attention", lambda: token.GraphAttention(64, 4), (200, 64), (200, 200)),
    _block("adaptive norm", lambda: token.AdaptiveNormBlock(384, 6), (256, 384), (384,)),
    _block("perceiver", lambda: token.Latents(64, 256, 512), (512, 512)),
]

_IMAGES = [
    _block("relu conv 1x1 48x192", lambda: conv.activated(48, 192), (48, 64, 64), batch=2, images=True),
    _block("gated conv 1x1 672x192", lambda: conv.Gated(672, 192), (672, 7, 7), (672, 1, 1), batch=128, images=True),
    _block("gated conv planar", lambda: conv.Gated(672, 192), (672, 7, 7), (672, 1, 1), batch=128),
    _block("mbconv", lambda: conv.MBConv(112, 192, 5, 2), (112, 14, 14), batch=128, images=True),
    _block("mbconv planar", lambda: conv.MBConv(112, 192, 5, 2), (112, 14, 14), batch=128),
    _block("mobilenet v3", lambda: conv.MBConv(80, 112, 3, 1, nn.Hardswish), (80, 14, 14), batch=128, images=True),
    _block("inverted residual", lambda: conv.MBConv(24, 24, 3, 1, nn.ReLU6), (24, 56, 56), batch=64, images=True),
    _block("shuffle", lambda: conv.Shuffle(116), (116, 28, 28), batch=128, images=True),
    _block("shuffle planar", lambda: conv.Shuffle(116), (116, 28, 28), batch=128),
    _block("group shuffle", lambda: conv.GroupShuffle(240, 3), (240, 28, 28), batch=64),
    _block("fire", lambda: conv.Fire(96, 16, 64), (96, 54, 54), batch=64, images=True),
    _block("fire planar", lambda: conv.Fire(128, 32, 128), (128, 27, 27), batch=64),
    _block("inception", lambda: conv.Inception(192), (192, 28, 28), batch=32, images=True),
    _block("dense", lambda: conv.Dense(64, 32, 4), (64, 28, 28), batch=32),
    _block("ghost", lambda: conv.Ghost(40, 80), (40, 28, 28), batch=64),
    _block("convnext block", lambda: conv.ConvNeXt(96), (96, 56, 56), batch=16, images=True),
    _block("large kernel attention", lambda: conv.LargeKernel(64), (64, 56, 56), batch=16),
    _block("res2", lambda: conv.Res2(64, 4), (64, 28, 28), batch=32),
    _block("squeeze excite", lambda: conv.SqueezeExcite(256, 16), (256, 28, 28), batch=64),
    _block("spatial attention", lambda: conv.SpatialGate(128), (128, 28, 28), batch=32),
    _block("pyramid pooling", lambda: conv.PyramidPooling(256), (256, 32, 32), batch=8),
    _block("atrous pyramid", lambda: conv.Atrous(256, 64), (256, 32, 32), batch=8),
    _block("diffusion residual", lambda: conv.Timed(320, 640), (320, 32, 32), (1280,), batch=4),
    _block("up and concatenate", lambda: conv.UpConcatenate(128, 64), (128, 28, 28), (64, 56, 56), batch=16),
    _block("pixel shuffle", lambda: conv.PixelShuffle(64, 2), (64, 48, 48), batch=8),
    _block("instance norm transfer", lambda: conv.Transfer(128), (128, 64, 64), batch=8),
    _block("dilated causal", lambda: conv.Causal(64, 4), (64, 2000), batch=8),
    _block("weight normed transpose", lambda: conv.Upsampler(256), (256, 100), batch=8),
    _block("volumetric", lambda: conv.Volumetric(32), (32, 8, 28, 28), batch=4),
    _block("depth wise 7x7", lambda: conv.Depthwise(96, 7), (96, 56, 56), batch=32, images=True),
]

ENTRIES = [*_TOKENS, *_IMAGES]
