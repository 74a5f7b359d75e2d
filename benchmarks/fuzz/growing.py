# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random programs, grown op by op.

Each new line is run in eager on the way, so that the generator knows every value's shape and dtype without rules of
its own, and drops lines that eager rejects. It runs on the CPU whatever the target is: a number gives the same program
everywhere, and no line can break a GPU for the process.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from benchmarks.fuzz.device import LikeOnGpu
from benchmarks.fuzz.program import NAMESPACE, Input, Program

LARGEST = 1e3
"""A value above which roundings of later lines say nothing."""


@dataclass
class Budget:
    """What a program may cost: multiplications of products and convolutions, elements of one value."""

    work: float
    elements: int


@dataclass
class Value:
    """A value of a growing program. exact: equal in every precision, so that comparing or rounding it is safe."""

    name: str
    tensor: torch.Tensor
    exact: bool

    @property
    def is_float(self) -> bool:
        return self.tensor.dtype.is_floating_point

    @property
    def is_bool(self) -> bool:
        return self.tensor.dtype == torch.bool

    @property
    def rank(self) -> int:
        return self.tensor.dim()

    @property
    def shape(self) -> torch.Size:
        return self.tensor.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype


class Grower:
    """Adds ops to a program; `random` chooses. With `for_gpu` there is none that breaks a GPU in eager."""

    def __init__(self, random: Random, inputs: Sequence[Input], budget: Budget, for_gpu: bool = False) -> None:
        self.random, self.budget, self.for_gpu = random, budget, for_gpu
        self.is_for_training = self.is_for_inference = self.is_dynamic = False
        self.values: list[Value] = []
        self.numbers: list[int] = []
        self._inputs: list[Input] = []
        self._texts: dict[str, str] = {}  # of lines, by the name of the value
        self._kept: list[Value] = []
        for leaf in inputs:
            self._new(leaf, leaf.make(), True)

    def one_of(self, options: Sequence[Any]) -> Any:
        return self.random.choice(list(options))

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def chance(self, one_in: int) -> bool:
        """True once in so many times."""
        return self.random.randrange(one_in) == 0

    def at_most(self, options: Sequence[int], limit: float) -> int:
        """One of the options that are no larger; the smallest if there is none."""
        fitting = [n for n in options if n <= limit]
        return self.one_of(fitting) if fitting else min(options)

    def pick(self, wanted: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value, late ones first, so that programs are chains more often than forests."""
        found = [v for v in reversed(self.values) if wanted(v)]
        if found and not self.chance(3):
            return found[0]
        return self.one_of(found) if found else None

    def input(self, shape: Sequence[int], dtype: torch.dtype, **more: Any) -> Value:
        """A further leaf."""
        leaf = Input(tuple(shape), dtype, len(self._inputs) + 100, **more)
        return self._new(leaf, leaf.make(), True)

    def argument(self, number: int) -> str:
        """The name of a further integer argument."""
        self.numbers.append(number)
        return f"n{len(self.numbers) - 1}"

    def weight(self, shape: Sequence[int], dtype: torch.dtype, terms: int = 1, **more: Any) -> Value:
        """A leaf with which sums of so many terms stay near 1; an odd layout now and then."""
        layouts = ("plain",) * 8 + ("transposed", "shifted")
        return self.input(shape, dtype, **{"scale": max(1, terms) ** -0.5, "layout": self.one_of(layouts), **more})

    def fits(self, source: Value, target: Value) -> bool:
        """Whether `source` broadcasts to the shape of `target`."""
        pairs = zip(reversed(source.shape), reversed(target.shape), strict=False)
        return source.rank <= target.rank and all(a in (1, b) for a, b in pairs)

    def spend(self, work: float) -> bool:
        """Whether there is so much left; it is gone then."""
        if work > self.budget.work:
            return False
        self.budget.work -= work
        return True

    def add_in_place(self, text: str, target: Value) -> None:
        """A line that changes `target`: it and what shares its memory are not exact any more."""
        before = [v.tensor.clone() for v in self.values]
        if self.add(text) is None:
            for v, old in zip(self.values, before, strict=True):
                if not torch.equal(v.tensor, old) and not torch.isnan(old).any():
                    v.tensor.copy_(old)
            return
        memory = target.tensor.untyped_storage().data_ptr()
        for v in self.values:
            if v.tensor.untyped_storage().data_ptr() == memory:
                v.exact = False

    def add(self, text: str, exact: bool = False) -> Value | None:
        """A line, unless eager rejects it or its result is too large."""
        numbers = {f"n{i}": number for i, number in enumerate(self.numbers)}
        space = {**NAMESPACE, **numbers, **{v.name: v.tensor for v in self.values}}
        try:
            with LikeOnGpu() if self.for_gpu else nullcontext():
                result = eval(text, space)  # noqa: S307 - our own text
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            return None
        if not isinstance(result, torch.Tensor) or result.numel() > self.budget.elements or result.dtype.is_complex:
            return None
        if result.dtype.is_floating_point and result.numel():
            largest = result.nan_to_num(0.0, 0.0, 0.0).abs().max()
            if largest > LARGEST:
                return None
        return self._new(text, result, exact)

    def _new(self, made: Input | str, tensor: torch.Tensor, exact: bool) -> Value:
        """Names count what was made; inputs, which come first in a program, are made at any time."""
        value = Value(f"u{len(self.values)}", tensor, exact)
        if isinstance(made, str):
            self._texts[value.name] = made
        else:
            self._inputs.append(made)
        self.values.append(value)
        return value

    def keep(self, value: Value) -> None:
        """The program returns it, also where lines read it."""
        self._kept.append(value)

    @property
    def made(self) -> list[Value]:
        """The values of lines."""
        return [v for v in self.values if v.name in self._texts]

    def finish(self, extra: Sequence[Value]) -> Program:
        """The program, which returns every value that no line reads, and some more."""
        order = [v.name for v in self.values if v.name not in self._texts] + list(self._texts)
        numbers = {name: i for i, name in enumerate(order)}
        lines = [_NAME.sub(lambda m: f"v{numbers[m[0]]}", text) for text in self._texts.values()]
        used = {name for text in self._texts.values() for name in _NAME.findall(text)}
        returned = [v.name for v in self.made if v.name not in used] + [v.name for v in (*self._kept, *extra)]
        results = sorted({numbers[name] for name in returned})
        return Program(
            self._inputs,
            lines,
            results,
            self.is_for_training,
            self.is_dynamic,
            self.is_for_inference,
            tuple(self.numbers),
        )


_NAME = re.compile(r"\bu\d+\b")
