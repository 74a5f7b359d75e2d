# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparing what a kernel wrote with the numbers of its reference and their bounds."""

from dataclasses import dataclass
from typing import Any

import torch
from torch_mlir import ir

from kiln.dialects.interpret.bounds import Bounded
from kiln.dialects.interpret.error_rules import format_of
from kiln.dialects.interpret.types import as_element, dtype_of, is_float

__all__ = ["Difference", "compare"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Difference:
    """Where a result is off: how many of its elements, and the one that is furthest beyond its bound."""

    result: int
    count: int
    total: int
    index: tuple[int, ...]
    found: float
    expected: float
    allowed: float

    def __str__(self) -> str:
        allowed = f"{self.expected:.8g} +- {self.allowed:.2g}" if self.allowed else f"{self.expected:.8g}"
        return (
            f"result {self.result}: {self.count:,} of {self.total:,} elements are off; "
            f"at {list(self.index)}: {self.found:.8g}, expected {allowed}"
        )


def compare(number: int, found: Tensor, expected: Bounded, element: ir.Type) -> Difference | None:
    """The difference between result `number` and its reference, if there is one.

    Numbers may be as far apart as the bound says and, where anything was computed, a rounding to the result's type;
    what was only moved, integers and booleans must be equal. NaN equals NaN.
    """
    if not found.numel():
        return None
    value, limit = expected.value, expected.total
    mine = as_element(found, element)
    if mine.dtype.is_complex:
        return _judged(number, torch.view_as_real(mine), torch.view_as_real(value.to(mine.dtype)), None)
    mine = mine.double() if is_float(element) else mine
    value = value.double() if is_float(element) else value.to(dtype_of(element))
    if limit is not None:
        limit = limit.expand(value.shape)
        if is_float(element):
            form = format_of(element)
            limit = limit + form.unit * value.abs().nan_to_num(0.0, posinf=0.0) + form.least
    return _judged(number, mine, value, limit)


def _judged(number: int, found: Tensor, expected: Tensor, limit: Tensor | None) -> Difference | None:
    same = (found == expected) | (torch.isnan(found) & torch.isnan(expected))
    if bool(same.all()):
        return None
    if limit is None:
        excess = torch.where(same, 0.0, 1.0).double()
        allowed = torch.zeros((), dtype=torch.float64)
    else:
        apart = (found.double() - expected.double()).abs().nan_to_num(float("inf"), posinf=float("inf"))
        within = same | (apart <= limit) | torch.isinf(limit)
        excess = torch.where(within, 0.0, apart / limit.clamp(min=1e-300))
        excess = torch.where(~within & (excess == 0), 1.0, excess)
        allowed = limit
    count = int((excess > 0).sum())
    if not count:
        return None
    flat = int(excess.reshape(-1).argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), excess.shape))

    def at(x: torch.Tensor) -> Any:
        return x.expand(excess.shape)[index].item()

    return Difference(
        number,
        count,
        excess.numel(),
        index,
        float(at(found)),
        float(at(expected)),
        float(at(allowed.to(excess.device))),
    )
