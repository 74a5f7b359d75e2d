# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sums of error terms, each a float64 tensor with the shape of the values or None, which stands for zeros."""

from collections.abc import Sequence

import torch

__all__ = ["alike", "doubtful", "is_repeated", "plus", "root_of_squares", "zeros"]

Tensor = torch.Tensor


def plus(*terms: Tensor | None) -> Tensor | None:
    """The sum of the terms that there are; None if there are none."""
    found = [t for t in terms if t is not None]
    return None if not found else sum(found[1:], found[0])


def root_of_squares(*terms: Tensor | None) -> Tensor | None:
    """The root of the sum of squares."""
    squares = plus(*(None if t is None else t * t for t in terms))
    return None if squares is None else squares.sqrt()


def is_repeated(x: Tensor, dims: Sequence[int] | None = None) -> bool:
    """Whether elements lie at several indices along some dims."""
    return any(x.stride(d) == 0 and x.shape[d] > 1 for d in (range(x.dim()) if dims is None else dims))


def zeros(x: Tensor) -> Tensor:
    """A float64 zero for each element, in the memory of one."""
    return torch.zeros((), dtype=torch.float64, device=x.device).expand(x.shape)


def alike(value: Tensor, noise: Tensor) -> Tensor:
    """Roundings in one direction, seen from zero: those of nearly equal numbers are alike."""
    return noise * value.sign().nan_to_num(0.0)


def doubtful(a: tuple[Tensor, Tensor | None], b: tuple[Tensor, Tensor | None]) -> Tensor:
    """Whether two values, each with how far off it may be, may compare otherwise than their elements do."""
    reach = plus(a[1], b[1])
    assert reach is not None
    apart = (a[0].double() - b[0].double()).abs()
    return (reach > 0) & ((apart <= reach) | torch.isinf(reach))
