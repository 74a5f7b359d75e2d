# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pattern rewrites from outside: a subgraph and what replaces it, both as PyTorch functions.

A pattern from outside, in full::

    import torch, kiln.patterns

    def pattern(x, y, eps):
        return torch.log(torch.exp(x) + torch.exp(y) + eps)

    def replacement(x, y, eps):
        return torch.logaddexp(x, y)

    with kiln.patterns.scope():
        kiln.patterns.register("logaddexp", pattern, replacement, (torch.empty(4, 8), torch.empty(4, 8), 1e-6))
        model = torch.compile(..., backend="kiln")
        ...  # the first call compiles
"""

from collections.abc import Callable, Sequence
from typing import Any

from kiln.errors import KilnError
from kiln.passes.patterns.check import check
from kiln.passes.patterns.registry import RewritePattern, active_patterns, add, remove, scope

__all__ = ["active", "register", "scope", "unregister"]


def register(
    name: str,
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    examples: tuple[Any, ...] | Sequence[tuple[Any, ...]],
    *,
    condition: Callable[..., str | None] | None = None,
    tolerance: float = 1e-5,
    whole: bool = False,
) -> None:
    """Register a rewrite of every subgraph that computes ``pattern`` into ``replacement``.

    Args:
        name: its name in statistics and notes.
        pattern: a function of tensors, numbers and lists of tensors; returns a tensor or a tuple of tensors. Argument
            names do not matter. Intermediates that the rest of the graph uses as well prevent a match.
        replacement: a function of the same arguments, called for each match with fake tensors of the sizes and dtypes
            found and with the numbers found; it must return tensors of the same sizes and dtypes.
        examples: arguments to trace the pattern with, or a list of such tuples where sizes decide which ops the
            pattern consists of (a matrix product of 3 or of 4 dimensions, a mask that broadcasts). Equal sizes in an
            example must be equal in a match; a pattern of pointwise ops and reductions matches tensors of any rank.
            A number stands for any number in its place.
        condition: called like the replacement; returns the reason not to rewrite, or None.
        tolerance: relative, for the numbers that the pattern itself contains.
        whole: keep compound ops of the replacement (``aten.rms_norm``, ``aten.scaled_dot_product_attention``) as they
            are; otherwise it is taken apart as AOTAutograd would.

    Raises:
        KilnError: the name is taken; with the examples the pattern or the replacement fails, reads an element
            (``.item()``), or they give results of other numbers, sizes or dtypes.
    """
    if not isinstance(examples, list | tuple):
        found = type(examples).__name__
        raise KilnError(
            f"pattern {name!r}: examples must be a tuple of arguments, or a list of tuples, found a {found}"
        )
    several = isinstance(examples, list) or (len(examples) > 0 and all(isinstance(e, tuple) for e in examples))
    listed = tuple(examples) if several else (tuple(examples),)
    for example in listed:
        if not isinstance(example, tuple):
            raise KilnError(f"pattern {name!r}: a list of examples must hold tuples, found a {type(example).__name__}")
    entry = RewritePattern(name, pattern, replacement, listed, condition, tolerance, whole)
    check(entry)
    add(entry)


def unregister(name: str) -> None:
    """Take back :func:`register`. Raises KilnError for a name that is not registered here."""
    remove(name)


def active() -> list[str]:
    """Names of the patterns in force, in the order in which they are tried."""
    return [entry.name for entry in active_patterns()]
