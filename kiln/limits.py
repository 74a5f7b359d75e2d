# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The limits that decisions compare sizes and times with, as data: files of `choices` folders.

A file is read into a dataclass, and has a table for each of its fields, which says what the number is and where it was
measured::

    [origins.rows]                        # see origins.py
    ...

    [dot_rows]
    what = "up to which a product with a rhs [n, k] is made of dot products"
    unit = "rows"
    value = { 32 = 12, 64 = 32 }          # by the bytes of a vector, where it depends on them
    origin = "rows"                       # or measured = false: no measurement is recorded

What bounds the code that is emitted, an error of rounding, and what formats and instructions are, are constants beside
their use.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, cast

from kiln.errors import KilnError
from kiln.origins import read_origins

__all__ = ["Choices", "read_rules"]

Group = TypeVar("Group")


class Choices:
    """The limits of a folder: `files` has the class of each file, by its name without ".toml". Each is read once."""

    def __init__(self, folder: Path, files: Mapping[str, type[Any]]) -> None:
        self._paths = {class_: folder / f"{name}.toml" for name, class_ in files.items()}
        self._read: dict[type[Any], Any] = {}

    def rules_for(self, class_: type[Group]) -> Group:
        """The limits that a class has, from its file."""
        if class_ not in self._read:
            self._read[class_] = read_rules(self._paths[class_], class_)
        return self._read[class_]


def read_rules(path: Path, class_: type[Group], vector_bytes: int = 0) -> Group:
    """The numbers of a file, for a dataclass whose fields are int, float, tuples of these, or rows of such tuples.

    vector_bytes: of the processor that they are for, where values depend on it.

    Raises KilnError, naming the file and the field, for one that is missing, unknown, of another type, or of no origin.
    """
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    origins = read_origins(path, found.pop("origins", {}))
    wanted = {field.name: _name(field.type) for field in fields(cast(Any, class_))}
    if set(found) != set(wanted):
        raise KilnError(f"{path}: missing or unknown: {', '.join(sorted(set(found) ^ set(wanted)))}")
    values: dict[str, Any] = {}
    for name, entries in found.items():
        if not _is_whole(entries, origins):
            raise KilnError(
                f"{path}: {name} must have what, unit, a value and one of the origins (or measured = false), "
                f"found {entries!r}"
            )
        values[name] = _frozen(_for_width(entries["value"], vector_bytes))
        if not _is_of(wanted[name], values[name]):
            raise KilnError(f"{path}: {name} must be of {wanted[name]}, found {values[name]!r}")
    return class_(**values)


def _is_whole(entries: Mapping[str, Any], origins: Mapping[str, Any]) -> bool:
    if set(entries) == {"what", "unit", "value", "measured"}:
        return entries["measured"] is False
    return set(entries) == {"what", "unit", "value", "origin"} and entries["origin"] in origins


def _for_width(value: Any, vector_bytes: int) -> Any:
    """A value that may be given by the bytes of a vector: of the widest that are no wider than these, or the least."""
    if not isinstance(value, Mapping):
        return value
    by_width = {int(width): one for width, one in cast(Mapping[str, Any], value).items()}
    return by_width[max((w for w in by_width if w <= vector_bytes), default=min(by_width))]


def _name(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) else str(type_)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(x) for x in cast(Sequence[Any], value)) if isinstance(value, list) else value


def _is_of(wanted: str, value: Any) -> bool:
    """Whether a value is of a field's type, as text, with numbers of at least 0."""
    if isinstance(value, tuple):
        inner = wanted.removeprefix("tuple[").removesuffix(", ...]")
        return inner != wanted and all(_is_of(inner, x) for x in cast(Sequence[Any], value))
    return type(value) in ((int, float) if wanted == "float" else (int,)) and wanted in ("int", "float") and value >= 0
