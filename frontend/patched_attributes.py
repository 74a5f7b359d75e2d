# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A context manager that patches attributes of modules and classes, and restores them."""

import contextlib
from collections.abc import Generator
from typing import Any, cast

__all__ = ["patched_attributes"]


@contextlib.contextmanager
def patched_attributes(*places: tuple[Any, str, Any]) -> Generator[None, None, None]:
    """Set ``(owner, name, value)`` for the time of the block, and put back what was there, however the block ends.

    Raises:
        AttributeError: an owner (a module or class) has no attribute of its own of that name; nothing is set then.
    """
    before: list[tuple[Any, str, Any]] = []
    for owner, name, _ in places:
        if name not in vars(owner):
            raise AttributeError(f"{owner.__name__} has no {name}")
        before.append((owner, name, cast(Any, vars(owner)[name])))  # a static method as such, not the function in it
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)
