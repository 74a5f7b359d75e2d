# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The networks of `benchmarks/networks`, written out, at real sizes."""

from collections.abc import Callable
from typing import Any

from benchmarks import networks
from benchmarks.gpu.breadth.entry import Built, Entry
from benchmarks.networks.convolutional import (
    EFFICIENTNET_STAGES,
    MOBILENET_STAGES,
    efficientnet,
    mobilenet_v2,
    resnet50,
    vgg11,
)
from benchmarks.networks.tables import dlrm, lstm
from benchmarks.networks.unet import diffusion_unet, unet
from benchmarks.networks.vision import convnext, mixer, swin

__all__ = ["ENTRIES"]


def _written(
    name: str, builder: Callable[..., Any], batch: int, trains: bool = True, cost: float = 2.0, **sizes: Any
) -> Entry:
    def build(batch: int) -> Built:
        return builder(batch=batch, **sizes)

    return Entry(f"written {name}", "network (written out)", build, batch, trains, cost)


_IMAGE = {"size": 224, "classes": 1000}

ENTRIES = [
    _written("resnet18", networks.resnet18, 64, width=64, **_IMAGE),
    _written("resnet50", resnet50, 32, cost=4.0, width=64, blocks=(3, 4, 6, 3), **_IMAGE),
    _written("vgg11", vgg11, 8, width=64, hidden=4096, pooled=7, **_IMAGE),
    _written("mobilenet_v2", mobilenet_v2, 64, cost=4.0, stages=MOBILENET_STAGES, last=1280, **_IMAGE),
    _written("efficientnet_b0", efficientnet, 128, cost=4.0, stages=EFFICIENTNET_STAGES, last=1280, **_IMAGE),
    _written("convnext", convnext, 32, widths=(96, 192, 384, 768), blocks=(1, 1, 1, 1), **_IMAGE),
    _written("swin", swin, 32, width=96, blocks=(2, 2, 2, 2), heads=(3, 6, 12, 24), window=7, **_IMAGE),
    _written("mixer", mixer, 64, width=512, token_width=256, channel_width=2048, patch=16, **_IMAGE),
    _written("unet", unet, 4, width=32, levels=3, classes=3, size=256),
    _written("diffusion_unet", diffusion_unet, 4, width=128, heads=4, groups=32, size=32),
    _written("lstm", lstm, 16, width=512, length=24, vocabulary=10000),
    _written("dlrm", dlrm, 2048, rows=(100000, 5000, 1000, 100), width=64, hidden=256, bag=8),
]
