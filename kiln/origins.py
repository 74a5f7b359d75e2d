# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where measurements in tables of choices come from: the tables `[origins.NAME]` of a TOML file.

Each has the machine, the date, the versions and the source, a file of results and the row in it::

    [origins.rows]
    machine = "AMD EPYC (Zen 3), one core"
    date = 2026-11-22
    versions = "not recorded"
    source = "benchmarks/results/performance/epyc-kernel-rules.json: products: which kernel by rows"
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiln.errors import KilnError

__all__ = ["Origin", "read_origins"]


@dataclass(frozen=True)
class Origin:
    """Where measurements come from."""

    machine: str
    date: datetime.date
    versions: str
    source: str


def read_origins(path: Path, tables: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Origin]:
    """The origins of a file, by name. Raises KilnError, naming the file, for one that lacks a part."""
    try:
        return {name: Origin(**_checked(entries)) for name, entries in tables.items()}
    except TypeError as error:
        raise KilnError(f"{path}: an origin must have machine, date, versions and source: {error}") from None


def _checked(entries: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(entries.get("date"), datetime.date) or not all(entries.values()):
        raise TypeError(f"found {dict(entries)!r}")
    return entries
