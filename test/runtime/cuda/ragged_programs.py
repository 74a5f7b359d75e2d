# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Programs whose sizes no tile divides, and blocks of networks that are made of such: on a GPU, or as loops.

As a script it runs programs with `target="tt-cpu"`, which a mistake may end: `python ragged_programs.py DTYPE NAME...`
prints a line for each before and behind it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import kiln
from benchmarks.gpu.breadth.contender import run, to
from benchmarks.gpu.breadth.families import conv_blocks as conv
from benchmarks.gpu.breadth.families import token_blocks as token
from benchmarks.gpu.breadth.judge import judge
from benchmarks.gpu.breadth.parameters import randomize

__all__ = ["DTYPES", "PROGRAMS", "Program", "verdict"]

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A module and the shapes of its inputs; `small`: shapes for loops on the CPU, where the others take too long."""

    module: Callable[[], nn.Module]
    shapes: tuple[Shape, ...]
    small: tuple[Shape, ...] = ()
    channels_last: bool = False


class Function(nn.Module):
    """A function of the inputs alone."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def _linear(rows: int, columns: int, k: int, activation: Callable[[], nn.Module] = nn.ReLU) -> Program:
    return Program(lambda: token.Activated(k, columns, activation()), ((rows, k),))


PROGRAMS = {
    **{f"relu(linear) to {n} columns": _linear(8192, n, 64) for n in (96, 128, 160, 192, 200, 224, 256, 320, 448)},
    "gelu(linear) to 192 columns": _linear(8192, 192, 64, nn.GELU),
    "relu(linear) of 4000 rows": _linear(4000, 192, 64),
    "relu(linear) of 768 inputs": _linear(8192, 192, 768),
    "gelu(linear) of 20000 rows, 136 inputs": Program(
        lambda: token.Activated(136, 576, nn.GELU()), ((20000, 136),), ((10000, 136),)
    ),
    "linear of 20000 rows, 136 inputs": Program(lambda: nn.Linear(136, 576), ((20000, 136),), ((10000, 136),)),
    "soft-capped logits": Program(lambda: token.SoftCapped(1024, 16000, 30.0), ((512, 1024),), ((130, 1024),)),
    "exp of a product less one": Program(
        lambda: Function(lambda x, y: torch.exp(0.003 * (x @ y)) - 1), ((64, 128, 96), (64, 96, 200))
    ),
    "relu(conv 1x1) of 48 channels": Program(
        lambda: conv.activated(48, 192), ((2, 48, 64, 64),), channels_last=True
    ),
    "gated conv 1x1": Program(
        lambda: conv.Gated(672, 192), ((128, 672, 7, 7), (128, 672, 1, 1)), ((64, 672, 7, 7), (64, 672, 1, 1))
    ),
    "gated conv 1x1, channels last": Program(
        lambda: conv.Gated(672, 192), ((128, 672, 7, 7), (128, 672, 1, 1)), ((64, 672, 7, 7), (64, 672, 1, 1)), True
    ),
    "mbconv": Program(lambda: conv.MBConv(112, 192, 5, 2), ((128, 112, 14, 14),), ((8, 112, 14, 14),)),
    "mbconv, channels last": Program(
        lambda: conv.MBConv(112, 192, 5, 2), ((128, 112, 14, 14),), ((8, 112, 14, 14),), True
    ),
    "mobilenet v3": Program(
        lambda: conv.MBConv(80, 112, 3, 1, nn.Hardswish), ((128, 80, 14, 14),), ((8, 80, 14, 14),), True
    ),
    "inverted residual": Program(
        lambda: conv.MBConv(24, 24, 3, 1, nn.ReLU6), ((64, 24, 56, 56),), ((2, 24, 56, 56),), True
    ),
    "shuffle": Program(lambda: conv.Shuffle(116), ((128, 116, 28, 28),), ((8, 116, 28, 28),)),
    "shuffle, channels last": Program(lambda: conv.Shuffle(116), ((128, 116, 28, 28),), ((8, 116, 28, 28),), True),
    "fire": Program(lambda: conv.Fire(96, 16, 64), ((64, 96, 54, 54),), ((4, 96, 54, 54),)),
    "fire, channels last": Program(lambda: conv.Fire(96, 16, 64), ((64, 96, 54, 54),), ((4, 96, 54, 54),), True),
    "swin mlp": Program(lambda: token.WindowMlp(96, 56, 7, 3), ((32, 3136, 96),), ((2, 3136, 96),)),
    "swin v2 attention": Program(
        lambda: token.CosineWindowAttention(96, 64, 8, 3), ((8, 4096, 96),), ((1, 4096, 96),)
    ),
}  # fmt: skip


def verdict(name: str, dtype: torch.dtype, device: str, **options: Any) -> str:
    """What is wrong with `PROGRAMS[name]`, empty if nothing is: at two calls, against float64 and beside eager."""
    program = PROGRAMS[name]
    torch.manual_seed(0)
    module = program.module()
    randomize(module)
    module = module.to(device, dtype).eval()
    shapes = program.small if device == "cpu" and program.small else program.shapes
    generator = torch.Generator().manual_seed(0)
    inputs = to([torch.randn(shape, generator=generator) for shape in shapes], device, dtype)
    if program.channels_last:
        module = module.to(memory_format=torch.channels_last)
        inputs = [x.to(memory_format=torch.channels_last) for x in inputs]
    eager = run(module, inputs)
    exact = run(module.double(), to(inputs, device, torch.float64))
    module = module.to(dtype)
    torch._dynamo.reset()
    call = torch.compile(module, backend=kiln.backend, fullgraph=True, options={"fallback": False, **options})
    for number in range(2):
        finding = judge(run(call, inputs), eager, exact, dtype)
        if finding.reason:
            return f"call {number}: {finding.reason}"
    return ""


if __name__ == "__main__":
    for given in sys.argv[2:]:
        print(f"begin\t{given}", flush=True)
        print(f"end\t{given}\t{verdict(given, DTYPES[sys.argv[1]], 'cpu', target='tt-cpu', cache=False)}", flush=True)
