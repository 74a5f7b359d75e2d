# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs that are compiled for training, for what is rewritten in joint graphs."""

import torch

from benchmarks.fuzz.growing import Grower

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def block(g: Grower) -> None:
    """A convolution, a norm by its own statistics, an activation, and what reads sizes alone on its way back."""
    g.is_for_training = True
    dtype, channels, out = g.one_of(_DTYPES), g.one_of((1, 3, 8, 17)), g.one_of((4, 8, 24))
    images, size = g.one_of((1, 2, 4)), g.one_of((7, 14, 23, 32))
    layout = g.one_of(("plain", "channels_last"))
    x = g.input((images, channels, size, size + g.number(0, 1)), dtype, layout=layout)
    w = g.weight((out, channels, 3, 3), dtype, channels * 9, layout=layout)
    scale, shift = (g.input((out,), dtype).name for _ in range(2))
    if not g.spend(images * channels * out * size * size * 9):
        return
    text = f"F.conv2d({x.name}, {w.name}, None, {g.number(1, 2)}, 1)"
    text = g.one_of((
        f"F.batch_norm({text}, None, None, {scale}, {shift}, training=True)",
        f"F.batch_norm({text}, None, None, {scale}, {shift}, training=True)",
        f"F.instance_norm({text}, weight={scale}, bias={shift})",
        f"F.group_norm({text}, {g.one_of((1, 2, 4))}, {scale}, {shift})",
    ))  # fmt: skip
    text = f"{g.one_of(('torch.relu', 'F.silu', 'F.leaky_relu'))}({text})"
    g.add(g.one_of((
        f"F.max_pool2d({text}, 3, 2, 1)",
        f"F.max_pool2d({text}, 2)",
        f"F.avg_pool2d({text}, 2)",
        f"F.adaptive_avg_pool2d({text}, 2)",
        f"F.pad({text}, (1, 1, 1, 1), mode={g.one_of(('reflect', 'replicate'))!r})",
    )))  # fmt: skip


_SMOOTH = (
    ("lambda a, b: a * b", 1),
    ("lambda a, b: torch.logaddexp(a, b)", 1),
    ("lambda a, b, c, d: (a * c, c * b + d)", 2),
    ("lambda a, b, c, d: (a * c, c * b + d)", 2),
)


def recurrence(g: Grower) -> None:
    """An associative scan with a smooth function, of one tensor or of two."""
    g.is_for_training = True
    combine, count = g.one_of(_SMOOTH)
    dtype = g.one_of((torch.float32, torch.float32, torch.bfloat16))
    shape = (g.one_of((1, 3, 8)), g.one_of((4, 7, 33, 100)), g.one_of((1, 5, 16)))
    names = [f"torch.sigmoid({g.input(shape, dtype).name})", g.input(shape, dtype).name][:count]
    scan = f"generic_associative_scan({combine}, [{', '.join(names)}], {g.number(0, 2)})"
    g.add(f"{scan}[{count - 1}]")


FAMILIES = (block, block, recurrence)
