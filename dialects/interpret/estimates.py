# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How far off a call of ATen may be, of which nothing is known but that it can be called again.

The call is repeated on copies of its operands in row-major order: in float64, so that another kernel computes it than
the one that is looked at, and in the operands' own types, by which PyTorch's kernel for these may be less exact. How
far the results move when the floats move by less than their rounding says how well conditioned each element is.
"""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import torch
from torch_mlir import ir

from kiln.dialects.interpret.error_rules import Format, format_of
from kiln.dialects.interpret.types import is_float
from kiln.errors import UnsupportedError

__all__ = ["MARGIN", "Call", "estimated", "row_major"]

Tensor = torch.Tensor
Call = Callable[[Sequence[Tensor]], list[Any]]
"""From the operands of a call to what it returns, its tensors first."""

MARGIN = 8.0
"""How many roundings of the size of an element's terms the element may be off."""
_DRAWS = 3
_F32_UNIT = 2.0**-24


def row_major(x: Tensor) -> Tensor:
    """A copy with the strides of its sizes, along sizes of 1, too: by these ATen tells one layout from another."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x)


def estimated(
    wide: Call,
    own: Call,
    operands: Sequence[Tensor],
    dtypes: Sequence[torch.dtype],
    formats: Sequence[Format | None],
    results: Sequence[ir.Type],
) -> list[tuple[Tensor, Tensor | None]]:
    """Of each tensor that a call returns the elements, and how far off each may be: infinitely where nothing is known,
    None where all are exact.

    wide, own: the call in float64, and in the types of its operands.
    operands: floats in float64, in row-major order. dtypes: what they are stored in, and formats: how exact that is;
    None for integers. results: element types.

    Raises UnsupportedError where the op has no kernel for float64 or refuses moved operands, and IndexError for indices
    out of bounds.
    """
    units = [f.unit for f in formats if f is not None]
    try:
        exact = wide(operands)[: len(results)]
        moved = [wide(_moved(operands, formats, draw)) for draw in range(_DRAWS)] if units else []
        stored = own([x.to(dtype) for x, dtype in zip(operands, dtypes, strict=True)])
    except IndexError:
        raise
    except Exception as error:  # what ops raise that have no kernel for float64 differs
        said = str(error).partition("\n")[0] or type(error).__name__
        raise UnsupportedError("kiln.aten", "", f"the call again, in float64: {said}") from error
    terms = max((x.numel() for x in operands), default=1)
    found: list[tuple[Tensor, Tensor | None]] = []
    for k, (x, element) in enumerate(zip(exact, results, strict=True)):
        others = [m[k] for m in moved]
        if is_float(element) and x.dtype == torch.float64:
            limit = _bound(x, others, max(units, default=0.0), terms, format_of(element))
            apart = (stored[k].double() - x).abs().nan_to_num(float("inf"), posinf=float("inf"))
            # A kernel that is less exact adds up in another order the next time, on a GPU.
            found.append((x, limit + torch.where(apart > limit, apart, 0.0) + MARGIN * _level(apart)))
        elif others:
            # Positions among nearly equal numbers, and the like.
            differs = torch.stack([other != x for other in [*others, stored[k].to(x.dtype)]]).any(0)
            found.append((x, torch.where(differs, float("inf"), 0.0)))
        else:
            found.append((x, None))
    return found


def _moved(operands: Sequence[Tensor], formats: Sequence[Format | None], draw: int) -> list[Tensor]:
    """The operands with their floats moved by up to their rounding; in the last draw zeros move as well."""
    found: list[Tensor] = []
    for i, (x, form) in enumerate(zip(operands, formats, strict=True)):
        if form is None or not x.numel():
            found.append(x)
            continue
        generator = torch.Generator(x.device).manual_seed(1000 * draw + i)
        noise = 2 * torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device) - 1
        size = x if draw < _DRAWS - 1 else x.abs() + _finite(x).square().mean().sqrt()
        found.append(torch.where(torch.isfinite(x), x + form.unit * noise * size, x))
    return found


def _bound(x: Tensor, others: Sequence[Tensor], unit: float, terms: int, form: Format) -> Tensor:
    """unit: the roundoff of the least exact operand. terms: how many an element may be the sum of."""
    if not x.numel():
        return torch.zeros_like(x)
    spread = torch.stack([(other - x).abs() / unit for other in others] or [x.abs()]).square().mean(0).sqrt()
    # A draw may leave an element where it is by chance; elements at the same index of one dim are alike.
    size = torch.maximum(_level(spread), torch.maximum(spread, _level(x)))
    limit = MARGIN * (max(unit, form.unit) + min(form.unit, _F32_UNIT) * sqrt(terms)) * size + form.least
    unknown = ~torch.isfinite(x) | ~torch.isfinite(spread) | (x.abs() + limit > form.largest)
    return torch.where(unknown, float("inf"), limit)


def _level(x: Tensor) -> Tensor:
    """Of each element its size or the root mean square of the elements at its index of a dim, whichever is the most."""
    squares = _finite(x).square()
    found = torch.maximum(squares, squares.mean())
    for dim in range(x.dim() if x.dim() > 1 else 0):
        rest = [d for d in range(x.dim()) if d != dim]
        found = torch.maximum(found, squares.mean(rest, keepdim=True))
    return found.sqrt()


def _finite(x: Tensor) -> Tensor:
    return x.nan_to_num(0.0, posinf=0.0, neginf=0.0)
