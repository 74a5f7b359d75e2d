# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The registry of pattern rewrites, and scopes of it."""

import contextlib
import contextvars
import functools
import importlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kiln import entry_points
from kiln.errors import KilnError

__all__ = ["RewritePattern", "active_patterns", "add", "has_outside_patterns", "outside_patterns", "scope"]

#: Modules with built-in patterns; larger ones first, so that attention is found before the softmax in it.
BUILTIN = ("attention", "norms", "softmax", "activations")


@dataclass(frozen=True, eq=False)
class RewritePattern:
    """One rewrite: see :func:`kiln.patterns.register` for the meaning of the fields."""

    name: str
    pattern: Callable[..., Any]
    replacement: Callable[..., Any]
    examples: tuple[tuple[Any, ...], ...] | Callable[[], Sequence[tuple[Any, ...]]] = field(repr=False)
    condition: Callable[..., str | None] | None = None
    tolerance: float = 1e-5
    whole: bool = False
    needs: frozenset[str] = frozenset()
    """Names of ops (``tanh``), of ops that read others' results (``tanh>add``), and element types (``bf16``) without
    which a function holds no match. A pattern whose needs are not met is not traced, which takes longest."""
    any_rank: bool = False
    """Whether sizes are left to ``condition`` and to the check that the replacement has those of the match."""

    def example_inputs(self) -> tuple[tuple[Any, ...], ...]:
        """The argument tuples the pattern is traced with."""
        return tuple(self.examples() if callable(self.examples) else self.examples)


_REGISTRY: dict[str, RewritePattern] = {}
_scoped: contextvars.ContextVar[dict[str, RewritePattern] | None] = contextvars.ContextVar("patterns", default=None)


def add(entry: RewritePattern) -> None:
    """Add to the innermost scope, or to the registry. Raises KilnError for a name that is taken there."""
    table = _scoped.get()
    table = _REGISTRY if table is None else table
    if entry.name in table:
        raise KilnError(f"a pattern named {entry.name!r} is registered already; unregister it first")
    table[entry.name] = entry


def remove(name: str) -> None:
    """Take a pattern out of the innermost scope, or of the registry. Raises KilnError where it is not."""
    table = _scoped.get()
    table = _REGISTRY if table is None else table
    if name not in table:
        raise KilnError(f"no pattern named {name!r} is registered here; registered: {', '.join(table) or 'none'}")
    del table[name]


@contextlib.contextmanager
def scope(*, builtin: bool = True) -> Generator[None, None, None]:
    """Patterns registered in the block hold in the block only; ``builtin=False`` leaves out all others."""
    outer = dict(_scoped.get() or {}) if builtin else {"": _NO_BUILTINS}
    token = _scoped.set(outer)
    try:
        yield
    finally:
        _scoped.reset(token)


_NO_BUILTINS = RewritePattern("", lambda: None, lambda: None, ())


@functools.cache
def _load_installed() -> None:
    """Have installed packages register their patterns, outside of any scope. Raises KilnError for no such function."""
    for name, value in entry_points.load(entry_points.PATTERNS):
        for register in cast(Sequence[Any], value if isinstance(value, list | tuple) else [value]):
            if not callable(register):
                text = f"entry point {name!r} of {entry_points.PATTERNS} is no function that registers patterns"
                raise KilnError(f"{text}, but {register!r}")
            contextvars.Context().run(register)


def has_outside_patterns() -> bool:
    """Whether `active_patterns` may differ from the built-in ones."""
    _load_installed()
    return bool(_REGISTRY or _scoped.get())


def outside_patterns() -> tuple[list[RewritePattern], bool]:
    """Patterns from outside that are in force, in the order in which they are tried, and whether built-in ones are."""
    _load_installed()
    scoped = _scoped.get() or {}
    found = [entry for name, entry in scoped.items() if name]
    if "" in scoped:
        return found, False
    taken = {entry.name for entry in found}
    return found + [entry for name, entry in _REGISTRY.items() if name not in taken], True


def active_patterns() -> list[RewritePattern]:
    """Patterns in force, in the order in which they are tried: the scope's, registered ones, built-in ones."""
    found, has_builtin = outside_patterns()
    if not has_builtin:
        return found
    taken = {entry.name for entry in found}
    for module in BUILTIN:
        for entry in importlib.import_module(f"{__package__}.{module}").PATTERNS:
            if entry.name not in taken:
                found.append(entry)
    return found
