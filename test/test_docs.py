# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The generated references, the worked example and the links in docs/."""

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest
import torch

from kiln.dialects import create_context, kiln, parse
from kiln.frontend import knobs
from kiln.frontend.options import Options
from kiln.passes import run_pipeline
from kiln.passes.options import options_of
from kiln.passes.registry import all_passes
from kiln.tools import gen_docs, gen_example

ROOT = Path(__file__).resolve().parent.parent


def test_references_are_fresh() -> None:
    assert gen_docs.stale(ROOT / "docs" / "reference") == [], "run python -m kiln.tools.gen_docs"


def test_every_option_of_a_pass_says_what_it_means() -> None:
    """By `metadata["help"]`, the string below the field, or the comment behind it."""
    passes = [cls for cls in all_passes().values() if cls.__module__.startswith("kiln.passes.")]
    assert [(cls.name, o.name) for cls in passes for o in options_of(cls) if not o.help] == []


def test_check_names_the_stale_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gen_docs.main(["--folder", str(tmp_path)]) == 0
    assert gen_docs.main(["--check", "--folder", str(tmp_path)]) == 0
    (tmp_path / "ops.md").write_text("old")
    assert gen_docs.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "ops.md is stale; run python -m kiln.tools.gen_docs" in capsys.readouterr().err


def test_pages_of_what_is_gone_are_stale(tmp_path: Path) -> None:
    assert gen_docs.main(["--folder", str(tmp_path)]) == 0
    notice = (tmp_path / "passes" / "fuse.md").read_text().splitlines()[0]
    gone = tmp_path / "passes" / "gone.md"
    gone.write_text(f"{notice}\n")
    assert gen_docs.stale(tmp_path) == [gone]
    assert gen_docs.main(["--folder", str(tmp_path)]) == 0
    assert not gone.exists()


def test_readme_lists_the_options_and_the_environment_variables() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([a-z_0-9]+)` \|", text, re.M)
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(Options))
    rows = re.findall(r"^\| `(KILN_\w+)` \| (.*) \| (.*) \|$", text, re.M)
    assert rows == [(knob.name, knob.kind, knob.help) for knob in knobs.KNOBS]


PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def _anchors(page: Path) -> set[str]:
    """What links into a page may end with: its headings, as GitHub names them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8")):
        if "://" not in target and "`" not in target:
            linked = page.parent / target if target else page
            assert linked.exists(), f"{_id(page)} links to {target}"
            assert not anchor or anchor in _anchors(linked), f"{_id(page)} links to {target}#{anchor}"


def test_every_reference_is_linked() -> None:
    """From the page that lists its passes, ops or schedules."""
    for page in (ROOT / "docs" / "reference").glob("*/*.md"):
        assert f"({page.parent.name}/{page.name}" in page.parent.with_suffix(".md").read_text(encoding="utf-8")


def test_the_worked_example_is_fresh() -> None:
    assert gen_example.stale(ROOT / "docs" / "architecture.md") == [], "run python -m kiln.tools.gen_example"


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_pages_are_short_and_listed(page: Path) -> None:
    limit = 200 if page.name == "performance.md" else 400
    assert len(page.read_text(encoding="utf-8").splitlines()) < limit
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert page.parent.name != "docs" or page.name == "README.md" or f"]({page.name})" in index


def test_changelog_is_kept() -> None:
    """The format of Keep a Changelog, and the package's version among the releases."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, *releases = re.findall(r"^## \[(.+)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.M)
    assert unreleased == ("Unreleased", "") and all(date for _, date in releases)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert releases[0][0] == project["version"]
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.M)) <= kinds


def _fusion_attributes() -> str:
    return (ROOT / "docs" / "fusion-attributes.md").read_text(encoding="utf-8")


def test_layouts_of_the_page_on_attributes() -> None:
    """`assign-layouts` writes what the page says."""
    page = _fusion_attributes()
    (program,) = re.findall(r"^```mlir\n(.*?)^```$", page, re.M | re.S)
    (promised,) = re.findall(r"`assign-layouts` writes\n\n```\n(.*?)^```$", page, re.M | re.S)
    with create_context():
        module = parse(program)
    run_pipeline(module, "assign-layouts")
    text = kiln.to_text(module, use_local_scope=True)
    assert all(line in text for line in promised.splitlines())


def _program(x: torch.Tensor, w: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A norm behind a product, independent nests, a slice, and a write to an argument."""
    state.mul_(2)
    y = torch.nn.functional.layer_norm(x @ w + x, (64,))
    return y, x.sum(0), (x[2:] * 3).exp() / 2


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_attributes_of_fusions_are_on_their_page(target: str, tmp_path: Path) -> None:
    torch._dynamo.reset()
    rows = set(re.findall(r"^\| `(\w+)` \| (?:string|array|unit|dict)", _fusion_attributes(), re.M))
    options = {"target": target, "debug_dir": str(tmp_path), "cache": False, "fallback": False}
    with torch.no_grad():
        call = torch.compile(_program, backend="kiln", options=options, dynamic=True)
        call(torch.randn(9, 64), torch.randn(64, 64), torch.randn(3))
    found: set[str] = set()
    for file in tmp_path.rglob("*.sched.mlir"):
        with create_context():
            module = parse(file.read_text(encoding="utf-8"))
        for function in module.body.operations:
            for op in function.regions[0].blocks[0].operations:
                if op.operation.name.startswith("kiln.fusion"):
                    found |= set(op.operation.attributes)
    expected = {"kind", "name", "shapes", "layouts", "schedule", "writes"} | (
        {"narrow"} if target == "tt-cpu" else set()
    )
    assert expected <= found <= rows
