# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Programs of PyTorch ops, as Python source that a person can read and rerun."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch._higher_order_ops.associative_scan import generic_associative_scan

IN_PLACE = re.compile(r"\.\w*[a-z]_\(")
NAMESPACE: dict[str, Any] = {
    "torch": torch, "F": F, "inf": float("inf"), "nan": float("nan"),
    "generic_associative_scan": generic_associative_scan,
}  # fmt: skip
VALUES = ("normal", "large", "small", "denormal", "equal", "few")
"""How the elements of a float leaf are drawn; see `Input`."""
_DENORMAL = {torch.float16: 1e-7, torch.float64: 1e-310}


@dataclass(frozen=True)
class Input:
    """A leaf tensor: data are drawn from `seed` so that a program is a few numbers.

    layout: "plain", "transposed" (the last two dims swapped in memory), "strided" (every second element), "expanded"
    (stride 0 along dim 0), "channels_last" (dim 1 is the last in memory), "shifted" (it starts one element behind an
    aligned address). special: some elements are NaN, infinite or -0.0. Integers lie in [0, high). values: "normal",
    times 50 or 1/1000, denormal numbers, all equal, or few different ones; all times `scale`.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    seed: int
    layout: str = "plain"
    special: bool = False
    high: int = 8
    values: str = "normal"
    scale: float = 1.0

    def make(self, device: str = "cpu") -> torch.Tensor:
        """The tensor."""
        shape = list(self.shape)
        if self.layout == "transposed" and len(shape) >= 2:
            shape[-1], shape[-2] = shape[-2], shape[-1]
        elif self.layout == "strided" and shape:
            shape[-1] *= 2
        elif self.layout == "expanded" and shape:
            shape[0] = min(shape[0], 1)
        elif self.layout == "channels_last" and len(shape) >= 3:
            shape = [shape[0], *shape[2:], shape[1]]
        elif self.layout == "shifted":
            shape = [torch.Size(shape).numel() + 1]
        x = self._data(shape).to(device)
        if self.layout == "transposed" and len(shape) >= 2:
            return x.transpose(-1, -2)
        if self.layout == "strided" and shape:
            return x[..., ::2]
        if self.layout == "expanded" and shape:
            return x.expand(self.shape)
        if self.layout == "channels_last" and len(shape) >= 3:
            return x.movedim(-1, 1)
        if self.layout == "shifted":
            return x[1:].view(self.shape)
        return x

    def _data(self, shape: list[int]) -> torch.Tensor:
        g = torch.Generator().manual_seed(self.seed)
        if self.dtype == torch.bool:
            return torch.rand(shape, generator=g) < 0.5
        if not self.dtype.is_floating_point:
            return torch.randint(0, self.high, shape, generator=g, dtype=self.dtype)
        wide = torch.float64 if self.dtype == torch.float64 else torch.float32
        x = torch.randn(shape, generator=g, dtype=wide)
        if self.values == "few":
            x = x.round()
        elif self.values == "equal":
            x = torch.full_like(x, 0.75)
        elif self.values == "denormal":
            x = x.double() * _DENORMAL.get(self.dtype, 1e-40)
        else:
            x *= {"large": 50.0, "small": 1e-3}.get(self.values, 1.0)
        if self.scale != 1.0:
            x *= self.scale
        if self.special and x.numel():
            flat = x.view(-1)
            for i, value in enumerate((float("nan"), float("inf"), -float("inf"), -0.0)):
                flat[(self.seed + 7 * i) % flat.numel()] = value
        return x.to(self.dtype)


@dataclass
class Program:
    """Inputs `v0`, `v1`, ...; then one value a line; the values returned. is_for_training: it tests gradients;
    is_for_inference: it has none to test, as PyTorch's are wrong; is_dynamic: it tests sizes known at run time only.
    numbers: of the integer arguments `n0`, `n1`, ..., which follow the inputs."""

    inputs: list[Input]
    lines: list[str] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    is_for_training: bool = False
    is_dynamic: bool = False
    is_for_inference: bool = False
    numbers: tuple[int, ...] = ()

    @property
    def has_writes(self) -> bool:
        """Whether a line changes a value in place."""
        return any(IN_PLACE.search(line) for line in self.lines)

    def source(self) -> str:
        """Python text of the function `f`, whose integer arguments have the program's numbers where none are given."""
        count = len(self.inputs)
        numbers = [f"n{i}={n}" for i, n in enumerate(self.numbers)]
        head = f"def f({', '.join([*(f'v{i}' for i in range(count)), *numbers])}):"
        body = [f"    v{count + i} = {line}" for i, line in enumerate(self.lines)]
        returned = ", ".join(f"v{i}" for i in self.results)
        return "\n".join([head, *body, f"    return ({returned},)"])

    def function(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The function `f`."""
        space = dict(NAMESPACE)
        exec(self.source(), space)  # noqa: S102 - our own text
        return space["f"]

    def with_numbers(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, of the inputs and the integer arguments, with those of the program."""
        return (lambda *inputs: function(*inputs, *self.numbers)) if self.numbers else function

    def make(self, device: str = "cpu") -> list[torch.Tensor]:
        """The inputs' tensors."""
        return [x.make(device) for x in self.inputs]

    def trace(self, inputs: Sequence[torch.Tensor], evaluate: "Evaluate | None" = None) -> list[torch.Tensor]:
        """All values in order, in eager; evaluate(line, values before it) gives one."""
        values = list(inputs)
        for line in self.lines:
            text = re.sub(r"\bn(\d+)\b", lambda m: f"({self.numbers[int(m[1])]})", line)
            values.append((evaluate or value_of)(text, values))
        return values

    def wide(self, inputs: Sequence[torch.Tensor], evaluate: "Evaluate | None" = None) -> list[torch.Tensor]:
        """All values with every float type replaced by float64."""
        lines = [re.sub(r"torch\.(b?float)(16|32)\b", "torch.float64", line) for line in self.lines]
        lines = [re.sub(r"\.(float|half|bfloat16)\(\)", ".double()", line) for line in lines]
        torch.set_default_dtype(torch.float64)
        try:
            return Program(self.inputs, lines, numbers=self.numbers).trace(inputs, evaluate)
        finally:
            torch.set_default_dtype(torch.float32)

    def __repr__(self) -> str:
        return "\n".join([*(f"# v{i} = {x}" for i, x in enumerate(self.inputs)), self.source()])


Evaluate = Callable[[str, list[torch.Tensor]], torch.Tensor]


def value_of(line: str, values: Sequence[torch.Tensor]) -> torch.Tensor:
    """The value of a line behind the others."""
    return eval(line, {**NAMESPACE, **{f"v{i}": v for i, v in enumerate(values)}})  # noqa: S307 - our own text


def read_by(line: str) -> set[int]:
    """The numbers of the values that a line reads."""
    return {int(n) for n in re.findall(r"\bv(\d+)\b", line)}


def renumbered(line: str, numbers: dict[int, int]) -> str:
    """The line with other numbers of values; those that are not in the table stay."""
    return re.sub(r"\bv(\d+)\b", lambda m: f"v{numbers.get(int(m[1]), int(m[1]))}", line)
