# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The limits that decisions compare sizes and times with: read and checked, and where they come from."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from kiln.errors import KilnError
from kiln.limits import read_rules
from kiln.lowering.cpu.rules import FOLDER
from kiln.lowering.gpu.rules import RULES
from kiln.passes.fusion import rules as fusion
from kiln.runtime import rules as runtime

ROOT = Path(__file__).resolve().parents[1]
ON_GPU = ROOT / "lowering/gpu/choices"
FOLDERS = (FOLDER, fusion.FOLDER, runtime.FOLDER)
FILES = [*(path for folder in FOLDERS for path in sorted(folder.glob("*.toml")))]
FILES += [ON_GPU / f"{name}.toml" for name in RULES]
GOOD = """
[origins.sweep]
machine = "a core"
date = 2026-11-26
versions = "torch 2.13"
source = "a table"

[most]
what = "more are split"
unit = "rows"
value = { 32 = 12, 64 = 24 }
origin = "sweep"

[block]
what = "a block has so many"
unit = "rows, columns"
value = [8, 16]
measured = false

[share]
what = "of a cache"
unit = "share"
value = 0.5
origin = "sweep"

[tiles]
what = "tiles, and how fast they are"
unit = "rows, share"
value = [[8, 0.5], [16, 1]]
origin = "sweep"
"""


@dataclass(frozen=True)
class Limits:
    most: int
    block: tuple[int, ...]
    share: float
    tiles: tuple[tuple[float, ...], ...]


@pytest.mark.parametrize(("width", "most"), [(16, 12), (32, 12), (64, 24)])
def test_values_are_those_of_the_width(width: int, most: int, tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text(GOOD, encoding="utf-8")
    expected = Limits(most, (8, 16), 0.5, ((8, 0.5), (16, 1)))
    assert read_rules(tmp_path / "limits.toml", Limits, width) == expected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[share]", "[shares]", "missing or unknown: share, shares"),
        ('value = 0.5\norigin = "sweep"', "value = 0.5", "share must have what, unit, a value and one of the origins"),
        ('value = 0.5\norigin = "sweep"', 'value = 0.5\norigin = "memory"', "share must have what, unit, a value"),
        ("measured = false", "measured = true", "block must have what, unit, a value and one of the origins"),
        ("measured = false", 'measured = false\norigin = "sweep"', "block must have what, unit, a value and one of"),
        ('unit = "share"\n', "", "share must have what, unit, a value"),
        ("value = [8, 16]", "value = 8", "block must be of"),
        ("value = [8, 16]", "value = [8, 1.5]", "block must be of"),
        ("value = [8, 16]", "value = [[8], [16]]", "block must be of"),
        ("value = [[8, 0.5], [16, 1]]", "value = [8, 0.5]", "tiles must be of"),
        ("value = 0.5", "value = true", "share must be of"),
        ("value = { 32 = 12, 64 = 24 }", "value = -1", "most must be of"),
        ('versions = "torch 2.13"\n', "", "an origin must have machine, date, versions and source"),
    ],
)
def test_mistakes_are_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in GOOD
    path = tmp_path / "limits.toml"
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(KilnError, match=message) as raised:
        read_rules(path, Limits, 64)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_sources_are_rows_of_results(path: Path) -> None:
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    origins = found.pop("origins")
    for origin in origins.values():
        file, _, row = origin["source"].partition(": ")
        rows = json.loads((ROOT / file).read_text(encoding="utf-8"))["rows"]
        assert any(str(r.get("rule", r.get("tried"))).startswith(row) for r in rows), origin["source"]
    assert set(origins) == {entries["origin"] for entries in found.values() if "origin" in entries}
