# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Integers in sizes, positions and elements: arguments of either sign, and what is computed from sizes."""

import torch

from benchmarks.fuzz.growing import Grower

__all__ = ["FAMILIES"]

_PLACES = (
    "{x}[:, {n} // 2 - 2 : {n} // 2 + 3]",
    "{x}[:, {n} // 3 : 2 * {n} // 3]",
    "{x}[:, {n} - 5 : {n} - 1]",
    "{x}[:, {n} - 5 :: 4]",
    "{x}[:, -({n} // 2) : -2]",
    "{x}[:, {n} // 4 :: 2]",
    "{x}[:, {n} // 2 : {n} + 3 : 3]",
    "{x}[{x}.shape[0] // 2 :, 1 : {n} - 1]",
    "{x}.narrow(1, {n} // 2 - 1, 2)",
    "torch.slice_scatter({x}, {x}[:, :5].cos(), 1, {n} // 2 - 2, {n} // 2 + 3)",
    "torch.fft.fftshift({x})",
    "torch.fft.ifftshift({x}, 1)",
    "{x}.roll(({n} // 3, -({x}.shape[0] // 2)), (1, 0))",
    "{x}.roll({n} // 2)",
    "{x}.roll({x}.shape[0] // 2 + 1, 1)",
)

_SIZES = (
    "{x}[:, {n}:]",
    "{x}[{n}:]",
    "{x}[:, :{n}]",
    "{x}[:, {n} // 2:]",
    "{x}[:, {n} % 5:]",
    "{x}[:, min({n} - 5, 3):]",
    "{x}[:, :max({n}, -3)]",
    "F.pad({x}, ({n}, -{n}))",
    "F.pad({x}, (1, 2, {n}, 3))",
    "torch.cat([{x}[:, {n}:], {x}[:, :{n}]], 1)",
    "torch.cat([{x}[{n}:].exp(), {x}[:{n}], {x}])",
    "{x}.roll({n}, 1)",
    "{x}.roll(({n}, -{n}), (0, 1))",
    "{x}.diagonal({n})",
    "{x}.unfold(1, abs({n}), 2)",
    "{x}.repeat(abs({n}), 1)",
    "{x}.flip(0)[{n}:]",
    "{x}.new_full(({x}.shape[0] + {n}, 3), {n})",
)
_ELEMENTS = (
    "{x} * {n} + {n}",
    "{x} / {n}",
    "{x}.triu({n})",
    "{x}.tril({n} + 1)",
    "{x}.clamp({n}, {n} + 2)",
    "{x}.masked_fill(torch.arange({x}.shape[-1], device={x}.device) < {n} + 4, 0.5)",
    "torch.where(torch.arange({x}.shape[-1], device={x}.device) + {n} > 0, {x}, 2 * {x})",
    "{x} + torch.arange({n}, {n} + {x}.shape[-1], device={x}.device)",
    "{x}.select(1, {n})",
    "{x}.cumsum(0) + {n}",
)
_BEHIND = (
    "{x}.sin()",
    "{x}.softmax(-1)",
    "{x}.sum(-1)",
    "{x}.mean(0)",
    "F.layer_norm({x}, {x}.shape[-1:])",
    "{x} @ {x}.mT",
    "{x} - {x}.amax(-1, keepdim=True)",
)


def arguments(g: Grower) -> None:
    """One or two integers, what depends on them, and ops behind that."""
    g.is_dynamic, g.is_for_training = True, g.chance(3)
    shape = (g.one_of((7, 9, 12, 40)), g.one_of((17, 33, 40, 64, 130)))
    x = g.input(shape, g.one_of((torch.float32, torch.float32, torch.bfloat16)))
    names = [g.argument(g.one_of((-7, -5, -4, -3, -2, 2, 3, 4, 6))) for _ in range(g.number(1, 2))]
    for texts in (_SIZES, g.one_of((_SIZES, _ELEMENTS, _BEHIND)), _BEHIND):
        text = g.one_of(texts).replace("{n}", g.one_of(names))
        x = g.add(text.replace("{x}", x.name)) or x


def places(g: Grower) -> None:
    """Slices and rolls whose place is computed from sizes, and ops in front of them and behind."""
    g.is_dynamic, g.is_for_training = True, g.chance(3)
    x = g.input((g.one_of((7, 9, 12, 40)), g.one_of((17, 33, 40, 64, 130))), g.one_of((torch.float32, torch.bfloat16)))
    for texts in (("{x}.sin()", "{x} * 2"), _PLACES, g.one_of((_PLACES, _BEHIND)), _BEHIND):
        text = g.one_of(texts).replace("{n}", "{x}.shape[1]")
        x = g.add(text.replace("{x}", x.name)) or x


FAMILIES = (arguments, arguments, places)
