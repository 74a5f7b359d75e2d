# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Types of functions that take any number of operands of one kind.

`Callable[..., R]` says nothing of what is passed, so a type checker knows no type of a lambda's parameters. These
aliases list the numbers of operands that occur, and end with any other.
"""

from collections.abc import Callable
from typing import TypeVar

__all__ = ["Fn", "FnWith"]

_A = TypeVar("_A")
_B = TypeVar("_B")
_R = TypeVar("_R")

Fn = (
    Callable[[_A], _R]
    | Callable[[_A, _A], _R]
    | Callable[[_A, _A, _A], _R]
    | Callable[[_A, _A, _A, _A], _R]
    | Callable[[_A, _A, _A, _A, _A], _R]
    | Callable[[*tuple[_A, ...]], _R]
)
"""`Fn[Tensor, bool]`: a function of tensors, of one number of them, that returns a bool."""

FnWith = (
    Callable[[_B], _R]
    | Callable[[_B, _A], _R]
    | Callable[[_B, _A, _A], _R]
    | Callable[[_B, _A, _A, _A], _R]
    | Callable[[_B, _A, _A, _A, _A], _R]
    | Callable[[_B, _A, _A, _A, _A, _A], _R]
    | Callable[[_B, *tuple[_A, ...]], _R]
)
"""`FnWith[Builder, bool, Value]`: a function of a builder and of values, of one number of them, that returns a bool."""
