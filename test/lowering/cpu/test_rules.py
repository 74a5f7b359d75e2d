# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The limits that the CPU's schedules compare sizes with: read, checked, and where they come from."""

import json
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kiln.errors import KilnError
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.matmul import MatmulProblem, choose_schedule
from kiln.lowering.cpu.rules import FOLDER, read_rules, rules_of

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(FOLDER.glob("*.toml"))
GOOD = """
[origins.sweep]
machine = "a core"
date = 2026-11-26
versions = "torch 2.13"
source = "a table"

[most]
what = "rows at most"
value = { 32 = 12, 64 = 24 }
origin = "sweep"

[block]
what = "rows and columns"
value = [8, 16]
origin = "sweep"

[share]
what = "of a cache"
value = 0.5
origin = "sweep"
"""


@dataclass(frozen=True)
class Limits:
    most: int
    block: tuple[int, ...]
    share: float


def test_each_file_is_a_group() -> None:
    assert [path.stem for path in FILES] == sorted(rules_of(64).__dataclass_fields__)


@pytest.mark.parametrize(("width", "most"), [(16, 12), (32, 12), (64, 24)])
def test_values_are_those_of_the_width(width: int, most: int, tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text(GOOD, encoding="utf-8")
    assert read_rules(tmp_path / "limits.toml", Limits, width) == Limits(most, (8, 16), 0.5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[share]", "[shares]", "missing or unknown: share, shares"),
        ('value = 0.5\norigin = "sweep"', "value = 0.5", "share must have what, a value and one of the origins"),
        ('value = 0.5\norigin = "sweep"', 'value = 0.5\norigin = "memory"', "share must have what, a value and one of"),
        ("value = [8, 16]", "value = 8", "block must be of"),
        ("value = [8, 16]", "value = [8, 1.5]", "block must be of"),
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_sources_are_rows_of_results(path: Path) -> None:
    for origin in tomllib.loads(path.read_text(encoding="utf-8"))["origins"].values():
        file, _, row = origin["source"].partition(": ")
        rows = json.loads((ROOT / file).read_text(encoding="utf-8"))["rows"]
        assert any(str(r.get("rule", r.get("tried"))).startswith(row) for r in rows), origin["source"]


def test_schedules_read_them_through_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = isa.other("x86-64-v3")
    problem = MatmulProblem((), 12, 768, 768, (768, 1), (1, 768))
    assert choose_schedule(problem, cpu, vendor=False).kernel == "cpu.gemm.dot"
    rules = rules_of(32)
    fewer = replace(rules, products=replace(rules.products, dot_rows=11))
    monkeypatch.setattr(isa, "rules_of", lambda _: fewer)
    assert choose_schedule(problem, cpu, vendor=False).kernel == "cpu.gemm.blocked"
