# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reductions over sizes known at run time only: long ones, which are split, and rows that programs hold."""

import torch

from benchmarks.fuzz.growing import Grower

_NARROW = (torch.bfloat16, torch.float16)
_LONG = (
    ((70_000,), ("{}.sum()", "{}.mean()", "{}.amax()", "{}.square().sum().sqrt()", "({} > 0).sum()", "{}.argmax()")),
    ((3000, 50), ("{}.sum()", "{}.mean(0)", "{}.var(0)", "F.relu({}).mean()", "{}.t().mean()")),
    ((300, 500), ("{}.sum()", "{}.amin()", "{}.logsumexp((0, 1))", "{}.std()", "torch.linalg.vector_norm({})")),
    ((3, 70_001), ("{}.sum(1)", "{}.var(1)", "{}.amax(1)", "{}.sum(0)", "{}.softmax(1).amax(1)")),
    ((24, 40, 96), ("{}.sum((0, 1))", "{}.mean((0, 2))", "{}.var((0, 1))", "F.layer_norm({}, (96,)).mean((0, 1))")),
    ((48, 3, 40, 41), ("{}.sum((0, 2, 3))", "F.batch_norm({}, None, None, training=True)", "F.instance_norm({})")),
    ((40, 5, 700), ("{}.sum((0, 2))", "F.batch_norm({}, None, None, training=True)", "{}.mean((1, 2))")),
)
_ROWS = (
    "{}.softmax(-1)",
    "{}.log_softmax(-1)",
    "{} - {}.mean(-1, keepdim=True)",
    "{} / (1 + {}.std(-1, keepdim=True))",
    "{}.masked_fill({} > 1, -1e4).softmax(-1) * 2",
    "{} / {}.abs().amax(-1, keepdim=True).clamp(min=0.1)",
    "{}.flatten().softmax(0)",
    "F.layer_norm({}, {}.shape[-1:])",
)


def sums_of_any_length(g: Grower) -> None:
    """Long reductions with few results."""
    g.is_dynamic, g.is_for_training = True, g.chance(2)
    shape, texts = g.one_of(_LONG)
    x = g.input(shape, g.one_of((torch.float32, torch.float32, *_NARROW)))
    for text in g.random.sample(texts, g.number(1, 2)):
        g.add(text.format(x.name))


def rows_of_any_length(g: Grower) -> None:
    """What follows a reduction along the same rows."""
    g.is_dynamic, g.is_for_training = True, g.chance(2)
    shape = (g.one_of((3, 17, 64)), g.one_of((7, 64, 100, 127, 128, 500, 1023, 3000)))
    x = g.input(shape, g.one_of((torch.float32, *_NARROW)))
    for text in g.random.sample(_ROWS, g.number(1, 2)):
        g.add(text.format(*[x.name] * text.count("{}")))


FAMILIES = (sums_of_any_length, sums_of_any_length, rows_of_any_length)

__all__ = ["FAMILIES"]
