# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The generated references, the worked example and the links in docs/."""

import dataclasses
import re
from pathlib import Path

import pytest

from kiln.frontend import knobs
from kiln.frontend.options import Options
from kiln.tools import gen_docs, gen_example

ROOT = Path(__file__).resolve().parent.parent


def test_references_are_fresh() -> None:
    assert gen_docs.stale(ROOT / "docs" / "reference") == [], "run python -m kiln.tools.gen_docs"


def test_check_names_the_stale_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gen_docs.main(["--folder", str(tmp_path)]) == 0
    assert gen_docs.main(["--check", "--folder", str(tmp_path)]) == 0
    (tmp_path / "ops.md").write_text("old")
    assert gen_docs.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "ops.md is stale; run python -m kiln.tools.gen_docs" in capsys.readouterr().err


def test_readme_lists_the_options_and_the_environment_variables() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([a-z_0-9]+)` \|", text, re.M)
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(Options))
    rows = re.findall(r"^\| `(KILN_\w+)` \| (.*) \| (.*) \|$", text, re.M)
    assert rows == [(knob.name, knob.kind, knob.help) for knob in knobs.KNOBS]


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target and "`" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_worked_example_is_fresh() -> None:
    assert gen_example.stale(ROOT / "docs" / "architecture.md") == [], "run python -m kiln.tools.gen_example"
