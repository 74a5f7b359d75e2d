# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page docs/first-target.md works as written: a target from outside, in processes of their own."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import forked_python
import pytest

from kiln.lowering.target import ENTRY_POINTS, PHASES, target_names

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "first-target.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """plain.py, as the page has it."""
    (tmp_path / "plain.py").write_text("\n".join(blocks("python")), encoding="utf-8")
    return tmp_path


def run(folder: Path, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KILN_CACHE_DIR": str(folder / "cache"), **settings}
    return forked_python.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_it_compiles_and_prints_what_the_page_says(folder: Path) -> None:
    """The page's code compares with eager."""
    (promised,) = re.findall(r"^prints\n\n```\n(.*?)^```$", PAGE, re.M | re.S)
    found = run(folder, "plain.py")
    assert (found.returncode, found.stdout) == (0, promised), found.stderr


def test_a_package_needs_no_import(folder: Path) -> None:
    """The entry point of the page, of an installed package; without it there is no such target."""
    (text,) = blocks("toml")
    points = tomllib.loads(text)["project"]["entry-points"]
    assert list(points) == [ENTRY_POINTS]
    source = (folder / "plain.py").read_text(encoding="utf-8").partition("def model")[0]
    (folder / "plain.py").write_text(source.replace("@register_target\n", ""), encoding="utf-8")
    code = (
        "import torch, kiln\n"
        "f = torch.compile(lambda x: torch.softmax(x, -1), backend='kiln', options={'fallback': False})\n"
        "x = torch.randn(4, 8)\n"
        "torch.testing.assert_close(f(x), torch.softmax(x, -1))\n"
        "from kiln.frontend import knobs; print(knobs.target())\n"
    )
    missing = run(folder, "-c", code.replace("{'fallback'", "{'target': 'plain', 'fallback'"))
    assert missing.returncode != 0 and "unknown target 'plain'; targets are cpu, cuda, tt-cpu" in missing.stderr
    info = folder / "plain-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plain\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"[{ENTRY_POINTS}]", *(f"{name} = {value}" for name, value in points[ENTRY_POINTS].items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = run(folder, "-c", code, KILN_TARGET="plain", PYTHONPATH=f"{folder}:{ROOT}")
    assert (found.returncode, found.stdout) == (0, "plain\n"), found.stderr
    tool = ("-m", "kiln.tools.kiln_opt", "--pipeline=plain", "--until=fused", "--print-pipeline")
    found = run(folder, *tool, PYTHONPATH=f"{folder}:{ROOT}")
    assert found.returncode == 0 and "fuse{strategy=none}" in found.stdout, found.stderr


def test_kiln_opt_runs_its_pipeline(folder: Path) -> None:
    (folder / "x.graph.mlir").write_text(
        "func.func @main(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {\n"
        "  %0 = torch.aten.exp %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>\n"
        "  %1 = torch.aten.neg %0 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>\n"
        "  return %1 : !torch.vtensor<[4],f32>\n}\n"
    )
    tool = ("-m", "kiln.tools.kiln_opt", "--until=kernels", "x.graph.mlir")
    plain = run(folder, *tool, "--pipeline=plain", "--load=plain.py")
    assert plain.returncode == 0 and plain.stdout.count('"kiln.kernel"') == 2, plain.stderr
    assert run(folder, *tool, "--pipeline=cpu").stdout.count('"kiln.kernel"') == 1
    unknown = run(folder, *tool, "--pipeline=plane", "--load=plain.py")
    assert unknown.returncode == 1 and "unknown pipeline 'plane'; did you mean 'plain'?" in unknown.stderr


def test_graphs_for_it_are_not_kept(folder: Path) -> None:
    """A second process would not see that the target's file has changed."""
    assert run(folder, "plain.py", KILN_CACHE="1").returncode == 0
    (folder / "cpu.py").write_text(
        (folder / "plain.py").read_text(encoding="utf-8").replace('("cpu", "plain")', '("cpu", "cpu")'),
        encoding="utf-8",
    )
    kept = len(list((folder / "cache").rglob("*")))
    assert run(folder, "cpu.py", KILN_CACHE="1").returncode == 0
    assert kept == len(list((folder / "cache").rglob("*"))) > 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [('= "plain"', '= "cuda"', "there is a target 'cuda' already")],
)
def test_mistakes_are_named(old: str, new: str, message: str, folder: Path) -> None:
    text = (folder / "plain.py").read_text(encoding="utf-8")
    assert old in text
    (folder / "plain.py").write_text(text.replace(old, new, 1), encoding="utf-8")
    found = run(folder, "plain.py")
    assert found.returncode != 0 and message in found.stderr


def test_the_page_lists_the_phases() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\|$", PAGE, re.M)) == PHASES
    assert {"cpu", "cuda", "tt-cpu"} <= set(target_names())
