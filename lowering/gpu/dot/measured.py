# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Choices between a kernel of Kiln's own and a library's, as data: the tables of `lowering/gpu/choices`.

A table has rows, one for each class of cases that was measured: which way is faster there, the times, where and when
they were taken, and with what versions. The first row that a case belongs to decides. Where none does, a cost model
decides (`product_cost.py`), or a kernel of Kiln's own is kept.

A table's file::

    [origins.sweep]                       # where measurements come from; each row names one
    machine = "NVIDIA H200"
    date = 2026-11-23
    versions = "torch 2.11.0, triton 3.6.0"
    source = "benchmarks/results/performance/h200-products.json"

    [[row]]
    path = "few rows"                     # its name in the fuzzer's table of paths
    winner = "own"                        # or "library"
    when = { rows = { most = 16 }, kind = "narrow" }
    why = "..."
    reason = "cuBLAS: ..."                # of a library's call: what the call's attribute and reports say
    origin = "sweep"
    measured = [{ case = "16 x 4096 x 4096", own = 11.66, library = 14.32 }]    # microseconds

`when` names fields of the case: a value, a list of values, or the least and the most that a number may be. A number
that is not known (None) is in no range.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from kiln.errors import KilnError
from kiln.lowering import paths
from kiln.origins import Origin, read_origins

__all__ = ["FOLDER", "Row", "Table", "Times", "decide", "read_table", "table"]

FOLDER = Path(__file__).resolve().parent.parent / "choices"
Winner = Literal["own", "library"]


@dataclass(frozen=True)
class Times:
    """Microseconds of one case in a kernel of Kiln's own and in the library's, each with a kernel behind it if there is
    one.
    """

    case: str
    own: float
    library: float


@dataclass(frozen=True)
class Row:
    """One class of cases, and what was measured; see above."""

    path: str
    winner: Winner
    when: Mapping[str, Any]
    why: str
    origin: Origin
    measured: tuple[Times, ...]
    reason: str = ""

    def holds(self, case: Any) -> bool:
        """Whether a case belongs to the class."""
        return all(_allows(condition, getattr(case, name)) for name, condition in self.when.items())


@dataclass(frozen=True)
class Table:
    """The rows of one kind of op, and the constants of its cost model ("[model]"), if it has one."""

    rows: tuple[Row, ...]
    model: Mapping[str, float]

    def find(self, case: Any) -> Row | None:
        """The first row that a case belongs to."""
        return next((row for row in self.rows if row.holds(case)), None)

    def names(self, winner: Winner) -> list[str]:
        """The paths with this winner, each once."""
        return list(dict.fromkeys(row.path for row in self.rows if row.winner == winner))


def decide(row: Row, case: Any, own: paths.Group, library: paths.Group) -> str | None:
    """What a row says about a case: the reason to call the library, or None. Marks the row's path as taken."""
    if row.winner == "own":
        return own(row.path)
    return library(row.path, row.reason.format_map({f.name: getattr(case, f.name) for f in fields(case)}))


@cache
def table(name: str, case: type) -> Table:
    """The table of `lowering/gpu/choices/NAME.toml`, about cases of a dataclass."""
    return read_table(FOLDER / f"{name}.toml", case)


def read_table(path: Path, case: type) -> Table:
    """The table of a file. Raises KilnError, naming the row and what is wrong with it."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    unknown = set(found) - {"origins", "row", "model"}
    if unknown:
        raise KilnError(f"{path}: unknown {', '.join(sorted(unknown))}")
    origins = read_origins(path, found.get("origins", {}))
    known = [field.name for field in fields(case)]
    rows = [_row(f"{path}: row {i + 1}", entries, origins, known) for i, entries in enumerate(found.get("row", []))]
    return Table(tuple(rows), found.get("model", {}))


def _row(where: str, entries: dict[str, Any], origins: Mapping[str, Origin], known: Sequence[str]) -> Row:
    wanted = ("path", "winner", "when", "why", "origin", "measured")
    missing = [name for name in wanted if name not in entries]
    unknown = sorted(set(entries) - {*wanted, "reason"})
    if missing or unknown:
        raise KilnError(
            f"{where}: missing {', '.join(missing) or 'nothing'}, unknown {', '.join(unknown) or 'nothing'}"
        )
    where = f"{where} ({entries['path']})"
    if entries["winner"] not in ("own", "library"):
        raise KilnError(f"{where}: winner must be 'own' or 'library', found {entries['winner']!r}")
    if (entries["winner"] == "library") != bool(entries.get("reason")):
        raise KilnError(f"{where}: a call of a library, and nothing else, has a reason")
    if entries["origin"] not in origins:
        raise KilnError(f"{where}: origin must be one of {', '.join(origins)}, found {entries['origin']!r}")
    for name, condition in entries["when"].items():
        if name not in known:
            raise KilnError(f"{where}: when: {name!r} is none of {', '.join(known)}")
        if isinstance(condition, dict) and not (
            condition and set(cast(dict[str, Any], condition)) <= {"least", "most"}
        ):
            raise KilnError(f"{where}: when: {name} must have 'least' or 'most', found {condition!r}")
    try:
        measured = tuple(Times(**times) for times in entries["measured"])
    except TypeError:
        raise KilnError(f"{where}: measured must be a list of {{ case, own, library }}") from None
    given: dict[str, Any] = {**entries, "origin": origins[entries["origin"]], "measured": measured}
    return Row(**given)


def _allows(condition: Any, value: Any) -> bool:
    if isinstance(condition, dict):
        bounds = cast(dict[str, Any], condition)
        return value is not None and bool(bounds.get("least", value) <= value <= bounds.get("most", value))
    return value in condition if isinstance(condition, list) else value == condition
