# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is measured: whole models, and small graphs of which each is one or a few kernels."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import networks
from benchmarks.networks import Network

__all__ = ["CASES", "Case", "select"]


@dataclass(frozen=True)
class Case:
    """One row: ``build()`` gives the full size, ``build_small()`` the one for a quick look."""

    name: str
    group: str
    describe: str
    build: Callable[[], Network]
    build_small: Callable[[], Network]


class _Function(nn.Module):
    """A function as a module; ``weights`` become parameters, which it gets behind its inputs."""

    def __init__(self, function: Callable[..., torch.Tensor], *weights: torch.Tensor) -> None:
        super().__init__()
        self.function, self.weights = function, nn.ParameterList(nn.Parameter(w) for w in weights)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs, *self.weights)


def _micro(
    name: str,
    describe: str,
    function: Callable[..., torch.Tensor],
    inputs: tuple[tuple[int, ...], ...],
    weights: tuple[tuple[int, ...], ...] = (),
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Case:
    """A case of normally distributed tensors of these shapes; the quick one has an eighth of the rows."""

    def build(divisor: int) -> Network:
        shapes = [(max(1, shape[0] // divisor), *shape[1:]) if shape[0] > 8 else shape for shape in inputs]
        parameters = [torch.randn(w) / max(1, w[-1] if len(w) > 1 else 1) ** 0.5 for w in weights]

        def make(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
            tensors = [torch.randn(shape, generator=generator) for shape in shapes]
            return tuple(t.to(memory_format=memory_format) if t.dim() == 4 else t for t in tensors)

        return _Function(function, *parameters).to(memory_format=memory_format).eval(), make

    return Case(name, "micro", describe, lambda: build(1), lambda: build(8))


def _model(name: str, describe: str, full: dict[str, int], small: dict[str, int]) -> Case:
    builder = networks.BUILDERS[name]
    return Case(name, "model", describe, lambda: builder(**full), lambda: builder(**small))


_BASE = {"width": 768, "heads": 12, "batch": 1}
_SMALL = {"layers": 1, "width": 128, "heads": 4, "batch": 1}
_PUBLISHED = {"stages": networks.MOBILENET_STAGES, "last": 1280, "classes": 1000, "batch": 1, "size": 224}

_MODELS = [
    _model(
        "bert",
        "4 layers of width 768, 1 x 128 tokens",
        _BASE | {"layers": 4, "length": 128, "vocabulary": 30522},
        _SMALL | {"length": 64},
    ),
    _model(
        "gpt2",
        "4 layers of width 768, 1 x 128 tokens, vocabulary 8000",
        _BASE | {"layers": 4, "length": 128, "vocabulary": 8000},
        _SMALL | {"length": 64},
    ),
    _model(
        "llama",
        "4 layers of width 512, 8 heads on 4, 1 x 128 tokens, vocabulary 8000",
        {"layers": 4, "width": 512, "heads": 8, "key_heads": 4, "hidden": 1408}
        | {"batch": 1, "length": 128, "vocabulary": 8000},
        _SMALL | {"length": 64},
    ),
    _model(
        "t5",
        "2 + 2 layers of width 512, 1 x 128 and 64 tokens, vocabulary 8000",
        {"layers": 2, "width": 512, "heads": 8, "batch": 1, "length": 128, "vocabulary": 8000},
        _SMALL | {"length": 64},
    ),
    _model(
        "vit",
        "4 layers of width 768, one 224 x 224 image",
        _BASE | {"layers": 4, "size": 224, "patch": 16, "classes": 1000},
        _SMALL | {"size": 64},
    ),
    _model(
        "resnet18",
        "published size, one 224 x 224 image",
        {"width": 64, "classes": 1000, "batch": 1, "size": 224},
        {"width": 16, "batch": 1, "size": 64},
    ),
    _model("mobilenet_v2", "published size, one 224 x 224 image", _PUBLISHED, {"batch": 1, "size": 64}),
]


def _chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(torch.relu(x * y + 1.0) * 0.5)


def _gelu_rows(m: int, n: int, k: int) -> Case:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, w, b))

    return _micro(f"linear_gelu_{m}x{n}x{k}", f"gelu([{m}, {k}] @ [{k}, {n}] + b)", function, ((m, k),), ((n, k), (n,)))


def _conv(channels: int, size: int, memory_format: torch.memory_format) -> Case:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, padding=1)

    last = memory_format is torch.channels_last
    name = f"conv3x3_{channels}x{size}{'_channels_last' if last else ''}"
    shape, weight = (1, channels, size, size), (channels, channels, 3, 3)
    describe = f"3x3, {channels} channels, {size} x {size}{', channels last' if last else ''}"
    return _micro(name, describe, function, (shape,), (weight,), memory_format)


def _sdpa(batch: int, length: int, causal: bool = False) -> Case:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    name = f"sdpa_{batch}x{length}{'_causal' if causal else ''}"
    shape = (batch, 12, length, 64)
    return _micro(name, f"12 heads of 64, {batch} x {length}{', causal' if causal else ''}", function, (shape,) * 3)


_WIDE, _ROWS = (4096, 4096), (4096, 1024)

_MICRO = [
    _micro("chain", "sigmoid(relu(x * y + 1) / 2), 4096^2", _chain, (_WIDE, _WIDE)),
    _micro("bias_gelu", "gelu(x + b), exact, 4096^2", lambda x, b: F.gelu(x + b), (_WIDE,), ((4096,),)),
    _micro(
        "bias_gelu_tanh",
        "gelu(x + b), tanh, 4096^2",
        lambda x, b: F.gelu(x + b, approximate="tanh"),
        (_WIDE,),
        ((4096,),),
    ),
    _micro("softmax", "over rows, 4096 x 1024", lambda x: torch.softmax(x, -1), (_ROWS,)),
    _micro(
        "layernorm",
        "over rows, 4096 x 1024",
        lambda x, w, b: F.layer_norm(x, (1024,), w, b),
        (_ROWS,),
        ((1024,), (1024,)),
    ),
    _micro("rmsnorm", "over rows, 4096 x 1024", lambda x, w: F.rms_norm(x, (1024,), w, 1e-5), (_ROWS,), ((1024,),)),
    # Squares: a sum of normal numbers is near zero, and its relative error is chance.
    _micro("sum_all", "squares of 4096^2 to a scalar", lambda x: (x * x).sum(), (_WIDE,)),
    _micro("column_sum", "4096^2 over its rows", lambda x: x.sum(0), (_WIDE,)),
    *(_gelu_rows(*s) for s in ((1, 3072, 768), (32, 4096, 4096), (64, 3072, 768), (128, 768, 768), (128, 3072, 768))),
    *(_gelu_rows(*s) for s in ((200, 2304, 768), (512, 3072, 768), (1024, 1024, 1024))),
    _sdpa(1, 128),
    _sdpa(4, 1024),
    _sdpa(4, 1024, causal=True),
    *(_conv(channels, size, torch.contiguous_format) for channels, size in ((64, 56), (128, 28), (256, 14))),
    _conv(128, 28, torch.channels_last),
]

CASES = {case.name: case for case in [*_MODELS, *_MICRO]}


def select(names: list[str]) -> list[Case]:
    """Cases by name, by a prefix of names, or by group ("model", "micro"); all for no names.

    Raises:
        KeyError: a name that nothing begins with.
    """
    chosen: dict[str, Case] = {}
    for wanted in names or ["model", "micro"]:
        found = {n: c for n, c in CASES.items() if wanted == c.group or n.startswith(wanted)}
        if not found:
            raise KeyError(wanted)
        chosen |= {wanted: CASES[wanted]} if wanted in CASES else found
    return list(chosen.values())
