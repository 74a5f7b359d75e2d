# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page docs/first-hour.md works as written: a package outside of Kiln's tree, which every tool sees."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w./]+\.\w+)`[^\n]*(?:\n\n)```\w+\n(.*?)^```$", TEXT, re.M | re.S))
LOOK = FILES["look.py"]
BEFORE, AFTER = re.findall(r"prints\n\n```\n(.*?)^```$", TEXT, re.M | re.S)
COMMANDS = re.findall(r"^kiln-(\w+) (.*)$", TEXT, re.M)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The page's files, and what `pip install -e .` makes of the entry points."""
    root = tmp_path_factory.mktemp("hour")
    for name, text in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def installed(folder):
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"].items()
    lines = [line for group, own in points for line in (f"[{group}]", *(f"{k} = {v}" for k, v in own.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (folder / "faster" / "__init__.py").write_text("")
    return folder


def run(folder, *command, package=True):
    paths = [str(ROOT), *([str(folder)] if package else []), os.environ.get("PYTHONPATH", "")]
    settings = {"KILN_CACHE": "1", "KILN_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )


def test_the_model_as_it_is(folder, tmp_path):
    for name in ("model.py", "look.py"):
        (tmp_path / name).write_text(FILES[name])
    assert run(tmp_path, sys.executable, "look.py", package=False).stdout == BEFORE


def test_the_package_makes_it_faster_and_is_cached(installed):
    done = run(installed, sys.executable, "look.py")
    assert done.stdout == AFTER, done.stderr
    assert run(installed, sys.executable, "look.py").stdout == AFTER.replace("stored", "loaded")
    for name, old, new in (
        ("passes", "rows are summed", "Rows are summed"),
        ("patterns", "one-product", "single-product"),
        ("lowerings", "degree <= 8", "degree <= 7"),
        ("schedules", "(8, 4, 2, 1)", "(4, 2, 1)"),
    ):
        path = installed / "faster" / f"{name}.py"
        text = path.read_text()
        path.write_text(text.replace(old, new))
        assert ": stored\n" in run(installed, sys.executable, "look.py").stdout, name
        path.write_text(text)


def test_its_rule_chooses_a_schedule(installed):
    program = """
import kiln, torch
from model import make
model, inputs = make()
with torch.no_grad():
    (graph,) = kiln.explain(model, *inputs, options={"cpu": "x86-64-v3", "fallback": False}).graphs
print([note.reason for note in graph.notes if note.pass_name == "apply-schedules"])
"""
    done = run(installed, sys.executable, "-c", program)
    assert done.stdout == "['schedule by faster.schedules:one_row: nv: 2 -> 8']\n", done.stderr
    done = run(installed, sys.executable, "-m", "kiln.tools.kiln_opt", "--pipeline=cpu", "--print-pipeline")
    assert "schedule-cpu,apply-schedules{rules=faster.schedules:one_row},pack-constants" in done.stdout, done.stderr


@pytest.mark.parametrize("option", ["verify='numerics'", "check=True", "target='tt-cpu'"])
def test_it_computes_the_same(installed, option):
    program = f"""
import torch
from model import make
model, inputs = make()
with torch.no_grad():
    found = torch.compile(model, backend="kiln", options=dict(fallback=False, {option}))(*inputs)
torch.testing.assert_close(found, model(*inputs), rtol=1e-3, atol=1e-2)
"""
    done = run(installed, sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("tool", "arguments"), COMMANDS[1:])
def test_the_tools_see_it(installed, tool, arguments):
    done = run(installed, sys.executable, "-m", f"kiln.tools.kiln_{tool}", *arguments.split())
    if tool == "bisect":
        assert done.stdout == "nothing is broken\n", done.stderr
        return
    assert done.returncode == 0, done.stderr
    if "--remarks" in arguments:
        assert "rows are summed before the product [sum-before-product]" in done.stderr


def test_its_lit_test(installed):
    done = run(installed, str(Path(sys.executable).parent / "lit"), "-v", "test")
    assert done.returncode == 0 and "Passed: 1" in done.stdout, done.stdout


def test_a_wrong_rewrite_is_found(installed, tmp_path):
    """The mean of rows in place of their sum."""
    path = installed / "faster" / "passes.py"
    text = path.read_text()
    path.write_text(text.replace("create(total.name", 'create("torch.aten.mean.dim"'))
    arguments = next(arguments for tool, arguments in COMMANDS if tool == "bisect")
    done = run(installed, sys.executable, "-m", "kiln.tools.kiln_bisect", *arguments.split())
    path.write_text(text)
    assert "first pass: sum-before-product" in done.stdout, done.stdout + done.stderr
