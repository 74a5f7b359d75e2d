# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Facts about a machine, each with where it comes from, and the file that they are written to."""

import datetime
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

__all__ = ["Fact", "Facts", "Tell", "origin", "write"]

Tell = Callable[[str], None]
"""Takes what is measured next, for people."""


@dataclass(frozen=True)
class Fact:
    """A value, and where it comes from."""

    value: Any
    source: str


Facts = dict[str, Fact]


def origin(*packages: str) -> str:
    """Who measured, when and with what versions."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    return f"kiln-tune, {datetime.date.today()}, {', '.join([f'torch {torch.__version__}', *versions])}"


def write(path: Path, class_: type, name: str, arch: str, facts: Facts) -> None:
    """The file of a machine of a class (`CpuRates`, `Machine`); its folder is made if it is missing."""
    lines = ["# Written by `kiln-tune --machine`.", "", f"name = {_text(name)}", f"arch = {_text(arch)}", ""]
    for field in fields(class_):
        if field.name in facts:
            fact = facts[field.name]
            value = str(fact.value).lower() if isinstance(fact.value, bool) else repr(fact.value)
            lines.append(f"{field.name} = {{ value = {value}, source = {_text(fact.source)} }}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _text(value: str) -> str:
    """A string of TOML."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
