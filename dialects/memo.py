# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What has been found out about attributes, types and affine expressions of a context, for as long as it lives.

All are unique objects of their context, which keeps them to its end: their hash is their address, and says which one
it is. (Locations have no such hash.) Answers must be plain data: one that holds on to an object of the context would
keep the context alive.
"""

import weakref
from collections.abc import Callable
from typing import Any

from torch_mlir import ir

__all__ = ["PerContext", "type_text"]


class PerContext:
    """One dict for each context, made when it is first asked for."""

    def __init__(self) -> None:
        self._all: weakref.WeakKeyDictionary[ir.Context, dict[Any, Any]] = weakref.WeakKeyDictionary()
        # The one asked for last, without a look into all: that takes longer than most look-ups in the dict itself.
        self._last: tuple[Callable[[], ir.Context | None], dict[Any, Any]] = (_nothing, {})

    def of(self, context: ir.Context) -> dict[Any, Any]:
        """The dict of `context`."""
        last, found = self._last
        if last() is not context:
            found = self._all.setdefault(context, {})
            self._last = weakref.ref(context), found
        return found


def _nothing() -> None:
    """A reference to no context."""


_TYPES = PerContext()


def type_text(type_: ir.Type) -> str:
    """``str(type_)``, which takes long: MLIR writes it to a Python file."""
    known = _TYPES.of(type_.context)
    key = hash(type_)
    found = known.get(key)
    if found is None:
        found = known[key] = str(type_)
    return found
