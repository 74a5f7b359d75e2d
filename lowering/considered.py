# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What cost models choose among, for the trace. Costs a look at one variable where nobody records a trace."""

import contextlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

__all__ = ["Choice", "cheapest", "considered", "considering"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Choice:
    """``what`` was chosen, for the op of a location: candidates with their costs, the cheapest first, in ``unit``."""

    what: str
    unit: str
    candidates: tuple[tuple[str, float], ...]
    location: str = ""


class _Collected:
    def __init__(self) -> None:
        self.choices: list[Choice] = []
        self.location = ""


_collected: _Collected | None = None


def cheapest(
    what: str,
    unit: str,
    candidates: Iterable[_T],
    cost: Callable[[_T], Any],
    fits: Callable[[_T], bool] = lambda _: True,
) -> _T:
    """The candidate with the least cost of those that fit, the first among equals.

    A cost may be a tuple, whose first element is the one that is shown. ``fits`` is asked as rarely as possible.
    """
    ordered = sorted(candidates, key=cost)
    chosen = next(candidate for candidate in ordered if fits(candidate))
    if _collected is not None:
        shown = [(candidate, cost(candidate)) for candidate in ordered if candidate == chosen or fits(candidate)]
        costs = tuple((str(candidate), _shown(c)) for candidate, c in shown)
        _collected.choices.append(Choice(what, unit, costs, _collected.location))
    return chosen


def _shown(cost: Any) -> float:
    return float(cast(tuple[Any, ...], cost)[0] if isinstance(cost, tuple) else cost)


@contextlib.contextmanager
def considering(location: object) -> Generator[None, None, None]:
    """Choices inside the block are for the op of that location."""
    if _collected is None:
        yield
        return
    before, _collected.location = _collected.location, str(location)
    try:
        yield
    finally:
        _collected.location = before


@contextlib.contextmanager
def considered() -> Generator[list[Choice], None, None]:
    """The choices that are made inside the block."""
    global _collected
    before, _collected = _collected, _Collected()
    try:
        yield _collected.choices
    finally:
        _collected = before
