# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random programs, grown op by op.

Each new line is run in eager on the way, so that the generator knows every value's shape and dtype without rules of
its own, and drops lines that eager rejects.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from programs import NAMESPACE, Input, Program

SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 64, 70)
MAX_ELEMENTS = 1 << 14
OTHERS = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool)  # fmt: skip
FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)


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


class Grower:
    """Adds ops to a program; `draw` is hypothesis' choice."""

    def __init__(self, draw: Callable[..., Any], program: Program):
        self.draw, self.program = draw, program
        self.values = [Value(f"v{i}", x.make(), True) for i, x in enumerate(program.inputs)]

    def one_of(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, wanted: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value, late ones first, so that programs are chains more often than forests."""
        found = [v for v in reversed(self.values) if wanted(v)]
        return self.one_of(found) if found else None

    def input(self, shape: Sequence[int], dtype: torch.dtype, **more: Any) -> Value:
        """A further leaf, placed before the lines written so far."""
        leaf = Input(tuple(shape), dtype, len(self.program.inputs) + 100, **more)
        position = len(self.program.inputs)
        self.program.inputs.append(leaf)
        # Lines name values by number: those behind the inputs move up by one.
        self.program.lines = [_renumber(line, position) for line in self.program.lines]
        for v in self.values:
            v.name = _renumber(v.name, position)
        value = Value(f"v{position}", leaf.make(), True)
        self.values.insert(position, value)
        return value

    def fits(self, source: Value, target: Value) -> bool:
        """Whether `source` broadcasts to the shape of `target`."""
        pairs = zip(reversed(source.tensor.shape), reversed(target.tensor.shape), strict=False)
        return source.rank <= target.rank and all(a in (1, b) for a, b in pairs)

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
        space = {**NAMESPACE, **{v.name: v.tensor for v in self.values}}
        try:
            result = eval(text, space)  # noqa: S307 - our own text
        except (RuntimeError, IndexError, ValueError, TypeError):
            return None
        if not isinstance(result, torch.Tensor) or result.numel() > MAX_ELEMENTS or result.dtype.is_complex:
            return None
        if result.dtype.is_floating_point and result.numel():
            finite = result.double()[torch.isfinite(result)]
            if finite.numel() and finite.abs().max() > 1e3:
                return None
        self.program.lines.append(text)
        value = Value(f"v{len(self.values)}", result, exact)
        self.values.append(value)
        return value


def _renumber(text: str, position: int) -> str:
    return re.sub(r"\bv(\d+)\b", lambda m: f"v{int(m[1]) + (int(m[1]) >= position)}", text)


def leaves(draw: Callable[..., Any]) -> list[Input]:
    """One to three leaves with related shapes: the first of float type, one in four of the others of any type."""
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(st.sampled_from(SIZES if rank < 4 else SIZES[:9])) for _ in range(rank))
    while torch.Size(shape).numel() > MAX_ELEMENTS // 4:
        shape = tuple(max(1, n // 2) for n in shape)
    if draw(st.integers(0, 11)) == 0:
        at = draw(st.integers(0, rank - 1))
        shape = (*shape[:at], 0, *shape[at + 1 :])
    found = []
    for i in range(draw(st.integers(1, 3))):
        mine = shape if i == 0 else tuple(n if draw(st.integers(0, 2)) else 1 for n in shape)
        mine = mine[draw(st.integers(0, rank - 1)) if i and draw(st.booleans()) else 0 :]
        found.append(
            Input(
                mine,
                draw(st.sampled_from(FLOATS))
                if i == 0
                else draw(st.sampled_from(OTHERS))
                if draw(st.integers(0, 3)) == 0
                else found[0].dtype,
                draw(st.integers(0, 5)) + 10 * i,
                draw(st.sampled_from(("plain", "plain", "transposed", "strided", "expanded"))),
                draw(st.integers(0, 9)) == 0,
            )
        )
    return found
