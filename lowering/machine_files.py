# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Files of machines: what a processor or GPU has and how fast it is, each fact with where it comes from.

A file is TOML with `name`, `arch` and one table for each other field of its class::

    name = "NVIDIA H200"
    arch = "sm_90"
    sms = { value = 132, source = "data sheet" }

Kiln has files of machines that are known; `kiln-tune --machine` measures the one at hand into a file of the user's.
That is `KILN_MACHINE`, or `cpu.toml` and `gpu.toml` in the user's configuration folder for Kiln (docs/machines.md).
"""

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import platformdirs

from kiln.errors import KilnError

__all__ = ["digest", "folder", "is_of_gpu", "read_machine_file", "user_file"]

NONE = "none"
"""`KILN_MACHINE` where no file of the user's is to be read."""
_OTHER = {"cpu": "gpu", "gpu": "cpu"}
Fact = TypeVar("Fact")


def folder() -> Path:
    """Where the user's files are looked for."""
    return Path(platformdirs.user_config_dir("kiln", appauthor=False))


@cache
def user_file(kind: str) -> Path | None:
    """The file of the user's for the "cpu" or the "gpu", if there is one. Read once in a process.

    Raises KilnError where `KILN_MACHINE` names no file.
    """
    text = os.environ.get("KILN_MACHINE", "").strip()
    if text == NONE:
        return None
    if not text:
        path = folder() / f"{kind}.toml"
        return path if path.is_file() else None
    path = Path(text)
    if not path.is_file():
        raise KilnError(f"KILN_MACHINE: there is no file {path}; `kiln-tune --machine {path}` writes one")
    return path if is_of_gpu(path) == (kind == "gpu") else None


def is_of_gpu(path: Path) -> bool:
    """Whether a machine's file is one of a GPU, by its `arch`. Raises KilnError for what is no such file."""
    arch = _parsed(path).get("arch")
    if not isinstance(arch, str):
        raise KilnError(f"{path}: arch must be text ('znver5', 'sm_90'), found {arch!r}")
    return arch.startswith(("sm_", "gfx"))


def digest() -> str:
    """Of the user's files: what code is made for depends on them. Empty where there are none."""
    paths = [path for kind in ("cpu", "gpu") if (path := user_file(kind)) is not None]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest() if paths else ""


def read_machine_file(path: Path, class_: type[Fact]) -> Fact:
    """The machine of a file, for a dataclass of str, int, bool and float.

    Raises KilnError, naming the file and the field, for one that is missing, of another type, negative, unknown, or
    without a source.
    """
    found = dict(_parsed(path))
    values: dict[str, Any] = {}
    for field in fields(class_):  # type: ignore[arg-type] - it is a dataclass
        fact = found.pop(field.name, None)
        value = fact if field.name in ("name", "arch") else _value(path, field.name, fact)
        accepted = (int, float) if field.type is float else (field.type,)
        if type(value) not in accepted:
            raise KilnError(f"{path}: {field.name} must be a {getattr(field.type, '__name__', '')}, found {value!r}")
        if isinstance(value, (int, float)) and not 0 <= value < float("inf"):
            raise KilnError(f"{path}: {field.name} must be a positive number, or 0 if it is not known, found {value!r}")
        values[field.name] = value
    if found:
        raise KilnError(f"{path}: unknown {', '.join(sorted(found))}")
    return class_(**values)


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise KilnError(f"{path}: no machine's file: {error}") from None


def _value(path: Path, name: str, fact: Any) -> Any:
    given: dict[str, Any] = dict(cast(Mapping[str, Any], fact)) if isinstance(fact, Mapping) else {}
    if set(given) != {"value", "source"} or not given["source"]:
        raise KilnError(f"{path}: {name} must be {{ value = ..., source = ... }}, found {fact!r}")
    return given["value"]
