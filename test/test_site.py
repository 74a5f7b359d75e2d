# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""scripts/site builds the documentation, finds broken links, and keeps versions beside each other."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).resolve().parent.parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """The script of a checkout, with this Python's mkdocs."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(root / "scripts" / "site"), str(out)]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    (out / "0.1.0").mkdir()
    (out / "0.1.0" / "index.html").write_text("an earlier version")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_page_is_there(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs")
        name = "index.html" if path.name == "README.md" else f"{path.stem}.html"
        assert (site / VERSION / path.parent / name).exists(), path
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        text = (site / VERSION / "examples" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        assert "kiln.trace(" in re.sub(r"<[^>]+>", "", text), notebook
    index = (site / VERSION / "index.html").read_text(encoding="utf-8")
    listed = re.findall(
        r"^\| \[[^]]+\]\(([\w-]+)\.md\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"), re.M
    )
    assert {f"{name}.md" for name in listed} == {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert len(listed) > 30 and all(f'<a href="{name}.html" class="md-nav__link">' in index for name in listed)


def test_search_finds_the_api(site: Path) -> None:
    entries = json.loads((site / VERSION / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    api = {entry["location"].partition("#")[2]: entry["text"] for entry in entries if "api.html" in entry["location"]}
    for name in ("explain", "profile", "trace.notebook.TracedGraph.rerun", "trace.notebook.TracedGraph.check"):
        assert any(anchor.endswith(name) for anchor in api), name
    assert "pipeline" in next(text for anchor, text in api.items() if anchor.endswith("TracedGraph.rerun"))
    assert any("fuse" in entry["location"] for entry in entries)


def test_versions_stand_beside_each_other(site: Path) -> None:
    found = json.loads((site / "versions.json").read_text(encoding="utf-8"))
    assert [entry["version"] for entry in found] == sorted({VERSION, "0.1.0"}, reverse=True)
    assert f"url={VERSION}/index.html" in (site / "index.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    text = (site / VERSION / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://(?!kiln\.invalid)', text)


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    for name in ("docs", "scripts", "examples", "kiln", "frontend", "passes", "dialects"):
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "pyproject.toml", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, root / name)
    page = root / "docs" / "notebooks.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[a](gone.md) [b](fusion.md#gone)\n", encoding="utf-8")
    done = build(root, tmp_path / "site")
    assert done.returncode != 0
    assert "gone.md" in done.stderr and "#gone" in done.stderr
