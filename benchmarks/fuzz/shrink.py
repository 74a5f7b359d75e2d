# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Makes a failing case small while it fails in the same way: lines, results, inputs, sizes, settings."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from benchmarks.fuzz.execute import Setting
from benchmarks.fuzz.generate import Case
from benchmarks.fuzz.program import Input, Program, read_by, renumbered

Fails = Callable[[Case], bool]
_SIZES = (1, 2, 4, 8, 16, 17, 32, 64, 128)
"""What sizes are tried instead of larger ones, besides halves."""


def shrink(case: Case, fails: Fails, seconds: float) -> Case:
    """The smallest case that was found in the time."""
    end = time.monotonic() + seconds
    is_smaller = True
    while is_smaller and time.monotonic() < end:
        is_smaller = False
        for candidate in _candidates(case):
            if time.monotonic() > end:
                break
            if _runs(candidate.program) and fails(candidate):
                case, is_smaller = candidate, True
                break
    return case


def _candidates(case: Case) -> Iterator[Case]:
    """Smaller cases, those that drop most first."""
    program, setting = case.program, case.setting
    for smaller in (*_fewer_lines(program), *_simpler_inputs(program), *_smaller_sizes(program)):
        yield replace(case, program=smaller)
    plain = Setting("static", {k: v for k, v in setting.options.items() if k == "target"}, device=setting.device)
    for simpler in (
        plain,
        replace(setting, training=False),
        replace(setting, dynamic=False),
        replace(setting, partly=False),
        replace(setting, threads=1),
    ):
        if simpler != setting:
            yield replace(case, setting=simpler)


def _fewer_lines(program: Program) -> Iterator[Program]:
    count = len(program.inputs)
    if len(program.results) > 1:
        for result in program.results:
            yield needed(replace(program, results=[result]))
    try:
        values = program.trace(program.make())
    except (RuntimeError, IndexError, ValueError, TypeError):
        return
    for at in reversed(range(len(program.lines))):
        number = count + at
        # A value becomes an input, and what computed it goes; or one of what it reads takes its place.
        value = values[number]
        if at < len(program.lines) - 1 and value.dtype.is_floating_point and not value.is_complex():
            yield needed(_as_input(program, number, Input(tuple(value.shape), value.dtype, 7)))
        for other in sorted(read_by(program.lines[at])):
            if values[other].shape == value.shape and values[other].dtype == value.dtype:
                yield needed(_instead(program, number, other))
        if program.results != [number]:
            yield needed(replace(program, results=[number]))


def needed(program: Program) -> Program:
    """Without the lines and inputs that no result needs (what is written in place is needed)."""
    count = len(program.inputs)
    kept = set(program.results)
    for at in reversed(range(len(program.lines))):
        if count + at in kept or Program([], [program.lines[at]]).has_writes:
            kept |= {count + at, *read_by(program.lines[at])}
    order = sorted(kept)
    numbers = {old: new for new, old in enumerate(order)}
    return Program(
        [x for i, x in enumerate(program.inputs) if i in kept],
        [renumbered(line, numbers) for at, line in enumerate(program.lines) if count + at in kept],
        [numbers[i] for i in program.results],
        numbers=program.numbers,
    )


def _as_input(program: Program, number: int, leaf: Input) -> Program:
    count = len(program.inputs)
    order = [*range(count), number, *(i for i in range(count, count + len(program.lines)) if i != number)]
    numbers = {old: new for new, old in enumerate(order)}
    lines = [line for at, line in enumerate(program.lines) if count + at != number]
    results = sorted(numbers[i] for i in program.results)
    return Program(
        [*program.inputs, leaf], [renumbered(line, numbers) for line in lines], results, numbers=program.numbers
    )


def _instead(program: Program, number: int, other: int) -> Program:
    lines = [renumbered(line, {number: other}) for line in program.lines]
    results = sorted({other if i == number else i for i in program.results})
    return Program(program.inputs, lines, results, numbers=program.numbers)


def _simpler_inputs(program: Program) -> Iterator[Program]:
    for i, x in enumerate(program.inputs):
        for simpler in (
            replace(x, layout="plain", special=False, values="normal"),
            replace(x, layout="plain"),
            replace(x, special=False),
            replace(x, values="normal"),
            replace(x, scale=1.0),
            replace(x, dtype=torch.float32) if x.dtype == torch.float64 else x,
        ):
            if simpler != x:
                yield replace(program, inputs=[*program.inputs[:i], simpler, *program.inputs[i + 1 :]])


def _smaller_sizes(program: Program) -> Iterator[Program]:
    """One size, wherever it is, becomes another one; numbers in the text follow."""
    sizes = sorted({n for x in program.inputs for n in x.shape if n > 1}, reverse=True)
    for size in sizes:
        for new in dict.fromkeys((*(n for n in _SIZES if n <= size // 2), size // 2, size - size // 4)):
            inputs = [replace(x, shape=tuple(new if n == size else n for n in x.shape)) for x in program.inputs]
            inputs = [replace(x, high=min(x.high, new) if x.high == size else x.high) for x in inputs]
            yield replace(program, inputs=inputs)
        for i, x in enumerate(program.inputs):  # of one input only, where it is broadcast
            if size in x.shape:
                one = replace(x, shape=tuple(1 if n == size else n for n in x.shape))
                yield replace(program, inputs=[*program.inputs[:i], one, *program.inputs[i + 1 :]])


def _runs(program: Program) -> bool:
    """Whether eager takes a program."""
    try:
        program.trace(program.make())
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return False
    return True
