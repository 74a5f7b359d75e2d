# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What installed packages add to Kiln, by entry points. Needs no MLIR, unless a package's module does.

| group | each value |
|---|---|
| ``kiln.passes`` | a ``kiln.Insert``, or a list of them |
| ``kiln.patterns`` | a function that calls ``kiln.patterns.register``, or a list of them |
| ``kiln.lowerings`` | a rule with the decorator ``@lowers``, or the module that holds some |
| ``kiln.schedules`` | a rule (``kiln.schedules``) that chooses schedules, or a list of them |
| ``kiln.targets`` | a class of a target |
"""

import functools
import importlib.metadata
import sys
from pathlib import Path

from kiln.errors import KilnError

__all__ = ["LOWERINGS", "PASSES", "PATTERNS", "SCHEDULES", "is_named", "load"]

PASSES, PATTERNS, LOWERINGS, SCHEDULES = "kiln.passes", "kiln.patterns", "kiln.lowerings", "kiln.schedules"


def load(group: str) -> list[tuple[str, object]]:
    """The values of a group with their names.

    Raises KilnError, naming the entry point, for one that cannot be loaded.
    """
    if not is_named(group):
        return []
    found: list[tuple[str, object]] = []
    for point in importlib.metadata.entry_points(group=group):
        try:
            found.append((point.name, point.load()))
        except Exception as error:
            text = f"entry point {point.name!r} of {group} cannot be loaded: {type(error).__name__}: {error}"
            raise KilnError(text) from error
    return found


def is_named(group: str) -> bool:
    """Whether a package has entry points of a group. To have all of them parsed, as `load` does, takes 20 ms."""
    return f"[{group}]".encode() in _named()


@functools.cache
def _named() -> bytes:
    """The entry points of packages that name Kiln."""
    found: list[bytes] = []
    for entry in dict.fromkeys(sys.path):
        for pattern in ("*.dist-info/entry_points.txt", "*.egg-info/entry_points.txt"):
            texts = (file.read_bytes() for file in Path(entry).glob(pattern))
            found += [text for text in texts if b"[kiln." in text]
    return b"\n".join(found)
