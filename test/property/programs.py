# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Programs of PyTorch ops, as Python source that a person can read and rerun."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

IN_PLACE = re.compile(r"\.\w*[a-z]_\(")
NAMESPACE: dict[str, Any] = {"torch": torch, "F": F, "inf": float("inf"), "nan": float("nan")}


@dataclass(frozen=True)
class Input:
    """A leaf tensor: data are drawn from `seed` so that a program is a few numbers.

    layout: "plain", "transposed" (the last two dims swapped in memory), "strided" (every second element),
    "expanded" (stride 0 along dim 0). special: some elements are NaN, infinite or -0.0. high: integers lie in
    [0, high).
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    seed: int
    layout: str = "plain"
    special: bool = False
    high: int = 8

    def make(self) -> torch.Tensor:
        """The tensor."""
        g = torch.Generator().manual_seed(self.seed)
        shape = list(self.shape)
        if self.layout == "transposed" and len(shape) >= 2:
            shape[-1], shape[-2] = shape[-2], shape[-1]
        if self.layout == "strided" and shape:
            shape[-1] *= 2
        if self.layout == "expanded" and shape:
            shape[0] = min(shape[0], 1)
        if self.dtype == torch.bool:
            x = torch.rand(shape, generator=g) < 0.5
        elif not self.dtype.is_floating_point:
            x = torch.randint(0, self.high, shape, generator=g, dtype=self.dtype)
        else:
            x = torch.randn(shape, generator=g, dtype=torch.float64)
            if self.special and x.numel():
                flat = x.view(-1)
                for i, value in enumerate((float("nan"), float("inf"), -float("inf"), -0.0)):
                    flat[(self.seed + 7 * i) % flat.numel()] = value
            x = x.to(self.dtype)
        if self.layout == "transposed" and len(shape) >= 2:
            return x.transpose(-1, -2)
        if self.layout == "strided" and shape:
            return x[..., ::2]
        if self.layout == "expanded" and shape:
            return x.expand(self.shape)
        return x


@dataclass
class Program:
    """Inputs `v0`, `v1`, ...; then one value a line; the values returned."""

    inputs: list[Input]
    lines: list[str] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    @property
    def has_writes(self) -> bool:
        """Whether a line changes a value in place."""
        return any(IN_PLACE.search(line) for line in self.lines)

    def source(self) -> str:
        """Python text of the function `f`."""
        count = len(self.inputs)
        head = f"def f({', '.join(f'v{i}' for i in range(count))}):"
        body = [f"    v{count + i} = {line}" for i, line in enumerate(self.lines)]
        returned = ", ".join(f"v{i}" for i in self.results)
        return "\n".join([head, *body, f"    return ({returned},)"])

    def function(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The function `f`."""
        space = dict(NAMESPACE)
        exec(self.source(), space)  # noqa: S102 - our own text
        return space["f"]

    def trace(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """All values in order, in eager."""
        values = list(inputs)
        for line in self.lines:
            values.append(eval(line, {**NAMESPACE, **{f"v{i}": v for i, v in enumerate(values)}}))  # noqa: S307
        return values

    def wide(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """All values with every float type replaced by float64."""
        lines = [re.sub(r"torch\.(b?float)(16|32)\b", "torch.float64", line) for line in self.lines]
        torch.set_default_dtype(torch.float64)
        try:
            return Program(self.inputs, lines).trace(inputs)
        finally:
            torch.set_default_dtype(torch.float32)

    def __repr__(self) -> str:
        return "\n".join([*(f"# v{i} = {x}" for i, x in enumerate(self.inputs)), self.source()])
