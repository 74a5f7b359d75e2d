# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""From a number to a program and the way in which it is compiled. The same number always gives the same case."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import torch

from benchmarks.fuzz.execute import Setting
from benchmarks.fuzz.families import (
    any_rank,
    attention,
    images,
    indices,
    lengths,
    memory,
    movement,
    numbers,
    rows,
    small_networks,
    special,
    training,
)
from benchmarks.fuzz.families.sizes import (
    BATCHES,
    CHANNELS,
    FEATURES,
    FLOATS,
    IMAGES,
    ODD,
    ROWS,
    SMALL,
    TOKENS,
    WORDS,
)
from benchmarks.fuzz.growing import Budget, Grower
from benchmarks.fuzz.program import Input, Program
from kiln.lowering.cpu import isa

Family = Callable[[Grower], None]

SMALL_FLOATS = (torch.float32,) * 3 + (torch.float64, torch.bfloat16, torch.float16)
OTHERS = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool)  # fmt: skip

_MOVES = (movement.move, movement.mix, movement.scatter, movement.scan, movement.recur, movement.mutate,
          movement.look_up, movement.part, movement.part, movement.take_apart, memory.in_memory,
          memory.read_copies)  # fmt: skip
_ROWS: tuple[Family, ...] = (
    *[rows.linear] * 6, *[rows.norm] * 3, rows.softmax, rows.softmax, rows.siblings, rows.batched, rows.residual,
    rows.residual, rows.reduce_rows, rows.sum_part, rows.loss, attention.heads_of_rows, movement.rotate, movement.move,
    movement.move, any_rank.unary, *_MOVES,
)  # fmt: skip
_IMAGES: tuple[Family, ...] = (
    *[images.convolve] * 8, images.learned, images.slide, images.channel_norm, images.channel_norm, images.pool,
    images.squeeze_and_excite, images.sample,
    images.rearrange, images.rearrange, images.rearrange, rows.residual, rows.residual, rows.softmax, rows.linear,
    attention.heads_of_rows, any_rank.unary, movement.mutate, rows.reduce_rows, movement.part, movement.part,
)  # fmt: skip
_VECTORS: tuple[Family, ...] = (
    *[any_rank.unary] * 2, any_rank.binary, any_rank.where, any_rank.compare, rows.reduce_rows, rows.reduce_rows,
    rows.sum_part, rows.softmax, rows.norm, *_MOVES, *_MOVES,
)  # fmt: skip
_SMALL: tuple[Family, ...] = (
    *[any_rank.unary] * 3, *[any_rank.binary] * 3, *[any_rank.view] * 3, any_rank.reduce, any_rank.reduce,
    any_rank.normalise, any_rank.product, any_rank.join, any_rank.compare, any_rank.where, any_rank.cast,
    any_rank.lookup, any_rank.integer, any_rank.scan, any_rank.attend, small_networks.pool, any_rank.create,
    small_networks.convolve, small_networks.convolve, small_networks.pool, small_networks.channel_norm,
    small_networks.product_with_bias, small_networks.attend_to, indices.scatter, indices.accumulate,
    indices.advanced_index, indices.order, indices.scans, indices.parts, indices.parts, indices.write_in_place,
)  # fmt: skip


@dataclass(frozen=True)
class Theme:
    """What programs are about. `leaves` makes the first inputs; `first`, then up to `lines` lines of `families`, within
    a budget (a part of it, where `is_scaled`)."""

    families: Sequence[Family]
    leaves: Callable[[Random, Budget], list[Input]]
    lines: int
    work: float
    elements: int
    first: tuple[Family, ...] = ()
    is_scaled: bool = True


@dataclass(frozen=True)
class Case:
    """A program, how it is compiled, and the number that both were drawn from."""

    number: int
    program: Program
    setting: Setting


def generate(number: int, target: str) -> Case:
    """The case of a number, for a target: "cpu", "tt-cpu" or "cuda"."""
    random = Random(number)
    theme = random.choices(list(THEMES), [weight for weight, _ in _WEIGHTS[target]])[0]
    program = grow(random, THEMES[theme], _SHARE[target], target == "cuda")
    drawn = setting(random, theme, target, program)
    return Case(number, program, replace(drawn, dynamic=drawn.dynamic or program.is_dynamic))


def grow(random: Random, theme: Theme, share: tuple[float, float] = (1.0, 1.0), for_gpu: bool = False) -> Program:
    """A program; `share` of the theme's work and elements, for the target."""
    size = random.choice(_SCALES) if theme.is_scaled else 1.0
    budget = Budget(theme.work * share[0] * size, int(theme.elements * share[1] * size))
    g = Grower(random, theme.leaves(random, budget), budget, for_gpu)
    for family in theme.first:
        family(g)
    for _ in range(random.randint(1, theme.lines)):
        random.choice(theme.families)(g)
    if not g.made:
        g.add(f"{g.values[0].name} * 1")
    extra = [random.choice(g.made if random.randrange(8) else g.values) for _ in range(random.choice((0, 0, 0, 1, 2)))]
    return g.finish(extra)


_PAIRS = "x86-64-v4+avx512bf16"
_PROCESSORS: tuple[dict[str, object], ...] = (
    *[dict[str, object]()] * 8, {"cpu": "x86-64-v3"}, {"cpu": _PAIRS if isa.host().has("avx512bf16") else "x86-64-v3"},
    {"tf32": True},
)  # fmt: skip
"""Now and then another processor than the host, or products of f32 by tiles of bf16, where a host has these."""


def setting(random: Random, theme: str, target: str, program: Program) -> Setting:
    """How a program of a theme is compiled for a target."""
    options: dict[str, object] = {} if target == "cuda" else {"target": target}
    kinds = {"static": 12, "dynamic": 2 + 4 * (theme == "small"), "training": 0 if program.is_for_inference else 3}
    if target == "cpu":
        kinds |= {"freezing": 3}
    kind = "training" if program.is_for_training else random.choices(list(kinds), list(kinds.values()))[0]
    if kind == "freezing":
        options["freezing"] = True
    if target == "cpu":
        options |= random.choice(_PROCESSORS)
    if target != "cpu":
        if random.randrange(8) == 0:
            options["tensor_maps"] = False
        if random.randrange(8) == 0:
            options["deterministic"] = True
    return Setting(
        kind,
        options,
        dynamic=kind == "dynamic" or kind == "training" and random.randrange(5) == 0,
        training=kind == "training",
        device="cuda" if target == "cuda" else "cpu",
        threads=random.choice((1, 1, 2, 3)) if target == "cpu" else 1,
        partly=random.randrange(2) == 0,
    )


def _drawn(random: Random, shape: Sequence[int], dtype: torch.dtype | None = None, layout: str = "") -> Input:
    """A first leaf; odd layouts and values now and then."""
    layouts = ("plain",) * 12 + ("transposed", "strided", "expanded", "shifted")
    values = ("normal",) * 12 + ("large", "small", "denormal", "equal", "few")
    return Input(
        tuple(shape),
        dtype or random.choice(FLOATS),
        random.randrange(8),
        layout or random.choice(layouts),
        random.randrange(40) == 0,
        values=random.choice(values),
    )


def _fitting(random: Random, options: Sequence[int], limit: float) -> int:
    return random.choice([n for n in options if n <= limit] or [min(options)])


def _of_rows(random: Random, budget: Budget) -> list[Input]:
    width = random.choice(ODD if random.randrange(8) == 0 else FEATURES)
    count = _fitting(random, ROWS, budget.elements / width)
    shape = (count, width)
    if random.randrange(2):
        batch = random.choice(BATCHES)
        shape = (batch, _fitting(random, TOKENS, budget.elements / width / batch), width)
    return [_drawn(random, shape)]


def _of_images(random: Random, budget: Budget) -> list[Input]:
    channels = random.choice(CHANNELS)
    side = _fitting(random, IMAGES, (budget.elements / channels) ** 0.5)
    other = side if random.randrange(5) else _fitting(random, IMAGES, budget.elements / channels / side)
    images_ = _fitting(random, BATCHES, budget.elements / channels / side / other)
    layout = random.choice(("plain", "channels_last", "channels_last", "channels_last"))
    return [_drawn(random, (images_, channels, side, other), layout=layout)]


def _of_vectors(random: Random, budget: Budget) -> list[Input]:
    width = random.choice((*FEATURES, *ODD, *WORDS))
    shape = (_fitting(random, ROWS, budget.elements / width), width)
    dtype = random.choice((*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool))
    return [_drawn(random, shape, dtype), _drawn(random, shape[random.randrange(2) :])]


def _few(random: Random, budget: Budget) -> list[Input]:
    """One to three leaves with related shapes: the first of float type, one in four of the others of any type."""
    rank = random.randint(1, 4)
    shape = tuple(random.choice(SMALL if rank < 4 else SMALL[:9]) for _ in range(rank))
    while torch.Size(shape).numel() > budget.elements // 4:
        shape = tuple(max(1, n // 2) for n in shape)
    if random.randrange(12) == 0:
        at = random.randrange(rank)
        shape = (*shape[:at], 0, *shape[at + 1 :])
    first = random.choice(SMALL_FLOATS)
    found = []
    for i in range(random.randint(1, 3)):
        mine = shape if i == 0 else tuple(n if random.randrange(3) else 1 for n in shape)
        mine = mine[random.randrange(rank) if i and random.randrange(2) else 0 :]
        dtype = random.choice(OTHERS) if i and random.randrange(4) == 0 else first
        layout = random.choice(("plain", "plain", "transposed", "strided", "expanded"))
        found.append(Input(mine, dtype, random.randrange(6) + 10 * i, layout, random.randrange(10) == 0))
    return found


def _none(random: Random, budget: Budget) -> list[Input]:
    return [_drawn(random, (random.choice(ROWS[:12]), random.choice(FEATURES[:12])))]


THEMES = {
    "rows": Theme(_ROWS, _of_rows, 5, 6e8, 5 << 20, (rows.linear,)),
    "images": Theme(_IMAGES, _of_images, 5, 4e8, 3 << 20, (images.convolve,)),
    "attention": Theme(_ROWS, _none, 2, 3e8, 3 << 20, (attention.attend,)),
    "vectors": Theme(_VECTORS, _of_vectors, 5, 1e8, 1 << 21),
    "special": Theme(
        (*special.FAMILIES, *training.FAMILIES, *lengths.FAMILIES, *numbers.FAMILIES),
        _none,
        1,
        7e8,
        6 << 20,
        is_scaled=False,
    ),
    "small": Theme(_SMALL, _few, 10, 1e8, 1 << 14, is_scaled=False),
}
_EVEN = tuple(zip((4, 4, 2, 2, 2, 3), THEMES, strict=True))
_WEIGHTS = {"cpu": _EVEN, "tt-cpu": _EVEN, "cuda": tuple(zip((4, 4, 2, 2, 2, 1), THEMES, strict=True))}
_SHARE = {"cpu": (1.0, 1.0), "tt-cpu": (1.0, 1.0), "cuda": (10.0, 2.0)}
"""Of the themes' budgets: of work, of elements."""
_SCALES = (0.03, 0.06, 0.06, 0.12, 0.12, 0.12, 0.25, 0.25, 0.5, 1.0)
"""How much of it one program gets: many are small, and quick."""
