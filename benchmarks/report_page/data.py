# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The stored measurements: a JSON file for each run, see `Run`."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "Run", "Standing", "load", "standing"]

FOLDER = Path(__file__).resolve().parent.parent / "results" / "performance"


@dataclass(frozen=True)
class Run:
    """One run of a suite on one machine.

    `head` has `suite`, `machine` (`name`, `processor`), `versions`, `date`, `unit`, `notes`, and `commit`, the commit
    that was measured, or `recorded_in`, the commit that stored figures whose exact commit nobody noted. `rows` holds
    one dict per case: `times` by contender, in `unit`, and `gains` as `{"inductor/kiln": 2.38}`, the median over the
    rounds of Inductor's time over Kiln's in the same round.
    """

    name: str
    head: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]

    def row(self, case: str) -> Mapping[str, Any]:
        """The row of a case; empty where the run lacks the case."""
        return next((row for row in self.rows if row["case"] == case), {})

    def gains(self, other: str, ours: str = "kiln", times: str = "times") -> dict[str, float]:
        """Time of `other` over that of `ours` by case: the recorded ratio, else the ratio of the medians."""
        found = {}
        for row in self.rows:
            recorded = row.get("gains", {}).get(f"{other}/{ours}") if times in ("times", "as_called_ms") else None
            medians = row.get(times, {})
            if recorded is not None:
                found[row["case"]] = recorded
            elif other in medians and ours in medians:
                found[row["case"]] = medians[other] / medians[ours]
        return found

    def best_gains(self, times: str) -> dict[str, float]:
        """Time of the fastest contender that is not Kiln over Kiln's, by case."""
        found = {}
        for row in self.rows:
            others = [value for name, value in row[times].items() if not name.startswith("kiln")]
            if others and "kiln" in row[times]:
                found[row["case"]] = min(others) / row[times]["kiln"]
        return found


@dataclass(frozen=True)
class Standing:
    """Gains of one run in short: geometric mean over `count` cases, and the least with its case."""

    mean: float
    count: int
    least: float
    case: str


def standing(gains: Mapping[str, float]) -> Standing:
    """Raises ValueError without gains."""
    if not gains:
        raise ValueError("no case was measured by both contenders")
    case = min(gains, key=lambda name: gains[name])
    return Standing(statistics.geometric_mean(gains.values()), len(gains), gains[case], case)


def load(folder: Path = FOLDER) -> dict[str, Run]:
    """All runs by the names of their files, sorted. Raises ValueError for a file without what `Run` asks for."""
    runs = {}
    for file in sorted(folder.glob("*.json")):
        head = json.loads(file.read_text(encoding="utf-8"))
        rows = head.pop("rows", None)
        missing = {"suite", "machine", "versions", "date", "notes"} - head.keys()
        missing |= set() if {"commit", "recorded_in"} & head.keys() else {"commit"}
        if missing or not rows:
            raise ValueError(f"{file.name}: no {', '.join(sorted(missing)) or 'rows'}")
        runs[file.stem] = Run(file.stem, head, rows)
    return runs
