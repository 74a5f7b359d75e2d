# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Inputs on which modules are compared: random numbers of several kinds, at sizes that fit together.

A sample is made from a function's signature and a seed alone, so that whoever reads a reproducer gets the same one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch_mlir import ir

from kiln.dialects import affine
from kiln.errors import KilnError
from kiln.passes.numerics.signature import Argument, Signature

__all__ = ["KINDS", "SPECIALS", "Sample", "load_sample", "random_samples"]

KINDS = ("normal", "positive")
"""Samples without special values. Positive ones keep `sqrt`, `log` and variances from being NaN everywhere."""

SPECIALS = "specials"
"""Zeros of both signs, equal values, infinities, NaN, denormals and large values among normal ones."""

_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class Sample:
    """Arguments for a function: ``tensors`` in order, ``symbols`` by name. ``kind`` says how they were made."""

    kind: str
    tensors: list[torch.Tensor]
    symbols: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def has_specials(self) -> bool:
        """Whether values are among the inputs for which a rewrite may hold only with `fast_math`."""
        return self.kind == SPECIALS

    def without_infinities(self) -> "Sample":
        """The same sample with large numbers in place of infinities: what is NaN on it comes from a NaN."""
        tensors = [
            t.clone().copy_(torch.where(t.isinf(), t.sign() * math.sqrt(torch.finfo(t.dtype).max), t))
            if t.is_floating_point() and t.dtype.itemsize > 1
            else t
            for t in self.tensors
        ]
        return Sample(self.kind, tensors, dict(self.symbols))

    def save(self, path: Path) -> None:
        """Writes a file that `load_sample` reads."""
        torch.save({"kind": self.kind, "tensors": self.tensors, "symbols": self.symbols}, path)


def load_sample(path: Path) -> Sample:
    """Reads what `Sample.save` wrote; a bare list of tensors will do. Raises KilnError for any other file."""
    try:
        data: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise KilnError(f"cannot read inputs from {path}: {error}") from error
    if isinstance(data, (list, tuple)):
        return Sample("given", list(cast(Sequence[Any], data)), {})
    if not isinstance(data, dict) or not {"kind", "tensors", "symbols"} <= cast(dict[str, Any], data).keys():
        raise KilnError(f"{path} holds no inputs: expected a list of tensors")
    given = cast(dict[str, Any], data)
    return Sample(given["kind"], list(given["tensors"]), dict(given["symbols"]))


def random_samples(
    signature: Signature, kinds: Sequence[str] = (*KINDS, SPECIALS), seed: int = 0
) -> Iterator[list[Sample]]:
    """Ever tamer draws of one sample per kind: a caller takes the first that the module runs on.

    Indices of the first draw count from the end as well, where the module's ops take that; those of later ones are
    smaller, and sizes are equal to each other: what a module asserts is not in its IR. Numbers of 8 bits may be values,
    which are drawn with both signs at first, or places in the windows of a pooling.
    """
    first = [(-4, 4, _different)] if any(a.may_count_from_end for a in signature.tensors) else []
    tries = [*first, (0, 4, _different)]
    tamer = [(0, 4, _different), (0, 2, _different), (0, 4, _equal), (0, 1, _equal)]
    has_bytes = any(a.dtype == "int8" for a in signature.tensors)
    draws = [*((*each, True) for each in tries), *((*each, False) for each in tamer[0 if has_bytes else 1 :])]
    for low, bound, sizes, signed in draws:
        symbols = _symbols(signature, sizes)
        if symbols is not None:
            yield [_sample(signature, kind, symbols, range(low, bound), seed, signed) for kind in kinds]


def _different(number: int) -> int:
    return (5, 7, 6, 9, 8, 11)[number % 6]


def _equal(number: int) -> int:
    return 8


def _symbols(signature: Signature, size: Callable[[int], int]) -> dict[str, int] | None:
    """A value for each symbol. Names that are expressions over others (`s0*s1`) get their value from these."""
    names = list(dict.fromkeys([*signature.symbols, *(a.symbol for a in signature.arguments if a.symbol)]))
    values = {name: size(k) for k, name in enumerate(n for n in names if n.isidentifier())}
    for name in names:
        if name not in values:
            try:
                values[name] = _derived(name, values)
            except Exception:  # an expression that is none of sympy's
                return None
    return values


def _derived(text: str, values: Mapping[str, int]) -> int:
    import sympy
    from torch.utils._sympy import functions

    known = {name: getattr(functions, name) for name in functions.__all__}
    expr = sympy.sympify(text, locals={**known, **{name: sympy.Integer(value) for name, value in values.items()}})
    return int(expr)


def _sample(
    signature: Signature, kind: str, symbols: dict[str, int], integers: range, seed: int, signed: bool
) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    numbers = [symbols[name] for name in signature.symbols]
    tensors = [_tensor(argument, kind, numbers, integers, generator, signed) for argument in signature.tensors]
    return Sample(kind, tensors, dict(symbols))


def _evaluated(expr: ir.AffineExpr | int | None, numbers: Sequence[int]) -> int:
    if expr is None:
        return 8
    return expr if isinstance(expr, int) else affine.evaluate(expr, (), numbers)


def _tensor(
    argument: Argument, kind: str, numbers: Sequence[int], integers: range, generator: torch.Generator, signed: bool
) -> torch.Tensor:
    shape = [_evaluated(e, numbers) for e in argument.shape]
    if math.prod(shape) > _ELEMENTS:
        raise KilnError(f"an input of {math.prod(shape)} elements is too large to compare numbers on")
    if not argument.may_count_from_end:
        integers = range(0, integers.stop)
    values = _values(getattr(torch, argument.dtype), shape, kind, integers, generator, signed)
    if argument.strides is None:
        return values
    strides = [_evaluated(e, numbers) for e in argument.strides]
    return torch.empty_strided(shape, strides, dtype=values.dtype).copy_(values)


def _values(
    dtype: torch.dtype, shape: Sequence[int], kind: str, integers: range, generator: torch.Generator, signed: bool
) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if not dtype.is_floating_point and not dtype.is_complex:
        low = -integers.stop if signed and dtype == torch.int8 else integers.start
        return torch.randint(low, integers.stop, shape, generator=generator).to(dtype)
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, generator=generator)
    normal = torch.randn(shape, dtype=torch.float64, generator=generator)
    if kind in ("positive", "negative"):
        normal = torch.rand(shape, dtype=torch.float64, generator=generator)
        # Beyond 1 and 0, with either of which a maximum of negative numbers might start.
        normal = -1.5 - normal if kind == "negative" else normal + 0.5
    elif kind == "wide":
        normal = normal * 2.0 ** torch.randint(-4, 5, shape, generator=generator).double()
    elif kind == SPECIALS:
        places = torch.rand(shape, dtype=torch.float64, generator=generator)
        chosen = torch.randint(0, 9, shape, generator=generator)
        normal = torch.where(places < 0.02, _specials(dtype)[chosen], normal)
    return normal.to(dtype)


def _specials(dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    values = [0.0, -0.0, 1.0, 1.0, math.inf, -math.inf, math.nan, info.tiny / 4, info.max / 8]
    return torch.tensor(values, dtype=torch.float64)
