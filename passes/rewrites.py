# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A counter that every rewrite of a pass goes through, so that one can ask for the first N of them alone.

As LLVM's ``DebugCounter``: a pass asks ``may_rewrite(op, rule)`` before it applies a rewrite that it has found to
apply, and leaves the op as it is where the answer is no. Without a counter in force, which is always but under
``kiln-bisect``, the answer is yes and costs a look at one variable.
"""

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

__all__ = ["Rewrite", "RewriteCounter", "counted_rewrites", "may_rewrite", "uncounted"]


@dataclass(frozen=True)
class Rewrite:
    """One application: ``number`` counts from 1 within the pass, ``op`` is the op's text on one line, shortened.

    ``location``: file, line and column; ``provenance``: the whole location, with the names of FX nodes.
    """

    number: int
    rule: str
    op: str
    location: str
    provenance: str = ""

    def __str__(self) -> str:
        rule = f"{self.rule}: " if self.rule else ""
        where = f" at {self.location}" if self.location else ""
        return f"rewrite {self.number}: {rule}{self.op}{where}"


class RewriteCounter:
    """Allows the first ``limit`` rewrites (all of them: None). ``told`` is called with each one that is allowed."""

    def __init__(self, limit: int | None = None, told: Callable[[Rewrite], None] | None = None) -> None:
        self.limit, self.count = limit, 0
        self._told = told

    def allows(self, op: Any, rule: str) -> bool:
        """Count one more; whether it is among the first."""
        if self.limit is not None and self.count >= self.limit:
            return False
        self.count += 1
        if self._told is not None:
            self._told(_describe(self.count, op, rule))
        return True


_counter: RewriteCounter | None = None


def may_rewrite(op: Any, rule: str = "") -> bool:
    """Whether a pass should apply the rewrite that it is about to apply to ``op`` (an op, or text that says what).

    ``rule`` is the name of the rule or pattern, where the pass has several.
    """
    return _counter is None or _counter.allows(op, rule)


@contextlib.contextmanager
def counted_rewrites(counter: RewriteCounter | None) -> Generator[None, None, None]:
    """Passes that run in the block ask ``counter``. The counter is one for all threads of the process."""
    global _counter
    before, _counter = _counter, counter
    try:
        yield
    finally:
        _counter = before


def uncounted() -> "contextlib.AbstractContextManager[None]":
    """Rewrites in the block are made, and not counted: those of a module that is no part of the pipeline."""
    return counted_rewrites(None)


def _describe(number: int, op: Any, rule: str) -> Rewrite:
    if isinstance(op, str):
        return Rewrite(number, rule, op, "")
    from kiln.dialects.kiln import name_of
    from kiln.errors import location_text

    operation = op.operation
    types = ", ".join(str(result.type) for result in operation.results)
    text = f"{name_of(operation)} -> {types}" if types else name_of(operation)
    location = operation.location
    return Rewrite(number, rule, text[:200], location_text(location), str(location))
