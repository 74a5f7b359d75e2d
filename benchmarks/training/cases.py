# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Networks that are trained, with their losses and sizes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.networks import BUILDERS, Network
from benchmarks.training.networks import mamba2, mixture

__all__ = ["Case", "Loss", "cases"]


@dataclass(frozen=True)
class Case:
    """One row. loss: "classes" (cross-entropy of logits' last dim, or dim 1 of images), "values" (mean squared)."""

    name: str
    build: Callable[..., Network]
    sizes: dict[str, Any]
    loss: str = "classes"


class Loss(nn.Module):
    """A network and its loss: inputs and then the target -> a number, in f32, or f64 where the network is."""

    def __init__(self, network: nn.Module, kind: str) -> None:
        super().__init__()
        self.network, self.kind = network, kind

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        *given, target = inputs
        found = self.network(*given)
        found = found if found.dtype == torch.float64 else found.float()
        if self.kind == "values":
            return F.mse_loss(found, target)
        return F.cross_entropy(found if found.dim() == 4 else found.flatten(0, -2), target)

    def target(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Random classes or values of the network's result."""
        with torch.no_grad():
            found = self.network(*inputs)
        if self.kind == "values":
            return torch.rand_like(found, dtype=torch.float32)
        shape = (found.shape[0], *found.shape[2:]) if found.dim() == 4 else found.shape[:-1]
        classes = found.shape[1] if found.dim() == 4 else found.shape[-1]
        return torch.randint(0, classes, shape, device=found.device).flatten(0 if found.dim() != 4 else -1)


_GPU: dict[str, dict[str, Any]] = {
    "gpt2": dict(layers=6, width=768, heads=12, length=1024, vocabulary=50257, batch=(1, 16)),
    "llama": dict(
        layers=4, width=1024, heads=16, key_heads=8, hidden=3072, length=1024, vocabulary=32000, batch=(1, 8)
    ),
    "bert": dict(layers=6, width=768, heads=12, length=512, vocabulary=30522, batch=(1, 16)),
    "vit": dict(layers=6, width=768, heads=12, size=224, patch=16, classes=1000, batch=(4, 64)),
    "resnet50": dict(width=64, blocks=(3, 4, 6, 3), classes=1000, size=224, batch=(4, 64)),
    "convnext": dict(widths=(96, 192, 384, 768), blocks=(3, 3, 9, 3), classes=1000, size=224, batch=(4, 64)),
    "unet": dict(width=64, levels=4, classes=3, size=256, batch=(1, 8)),
    "mixture": dict(layers=4, width=512, hidden=1024, experts=8, length=512, vocabulary=16000, batch=(1, 8)),
    "mamba2": dict(layers=4, width=512, heads=8, state=64, block=64, length=1024, vocabulary=16000, batch=(1, 8)),
    "dlrm": dict(rows=(100000, 100000, 50000, 1000), width=64, hidden=512, bag=20, batch=(128, 4096)),
}
_CPU: dict[str, dict[str, Any]] = {
    "gpt2": dict(layers=2, width=256, heads=4, length=128, vocabulary=5000, batch=(1, 4)),
    "llama": dict(layers=2, width=256, heads=4, key_heads=2, hidden=768, length=128, vocabulary=5000, batch=(1, 4)),
    "bert": dict(layers=2, width=256, heads=4, length=128, vocabulary=5000, batch=(1, 4)),
    "vit": dict(layers=2, width=256, heads=4, size=96, patch=16, classes=100, batch=(1, 8)),
    "resnet50": dict(width=32, blocks=(1, 1, 1, 1), classes=100, size=96, batch=(1, 8)),
    "convnext": dict(widths=(48, 96, 192), blocks=(1, 1, 2), classes=100, size=96, batch=(1, 8)),
    "unet": dict(width=16, levels=3, classes=3, size=96, batch=(1, 4)),
    "mixture": dict(layers=2, width=128, hidden=256, experts=4, length=128, vocabulary=1000, batch=(1, 4)),
    "mamba2": dict(layers=2, width=128, heads=4, state=32, block=32, length=128, vocabulary=1000, batch=(1, 4)),
    "dlrm": dict(rows=(10000, 10000, 1000), width=32, hidden=128, bag=10, batch=(64, 1024)),
}
_OTHERS: dict[str, Callable[..., Network]] = {"mixture": mixture, "mamba2": mamba2}
_VALUES = ("bert", "dlrm")


def cases(device: str) -> Iterator[Case]:
    """The networks at a size for the device ("cpu" or "cuda"), each with a small and a large batch."""
    for name, given in (_GPU if device == "cuda" else _CPU).items():
        sizes = dict(given)
        for batch in sizes.pop("batch"):
            build = _OTHERS.get(name) or BUILDERS[name]
            loss = "values" if name in _VALUES else "classes"
            yield Case(f"{name} x{batch}", build, {**sizes, "batch": batch}, loss)
