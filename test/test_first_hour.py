# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page docs/first-hour.md works as written: a package outside of Kiln's tree, which every tool sees."""

import base64
import gzip
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path

import forked_python
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
    return forked_python.run(
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


def data_of(page):
    """What the page of a trace shows."""
    packed = re.search(r'<script id="data"[^>]*>([\w+/=\s]+)</script>', page)
    assert packed, page[-500:]
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))


def shows_the_package(graph):
    """The pass with its note and place, the pattern's rewrite and the conversion, in a recorded graph."""
    mine = [p for p in graph["passes"] if p["name"] == "sum-before-product"]
    assert mine and mine[0]["own"] and "rows are summed before the product" in [why for _, why, _ in mine[0]["notes"]]
    assert mine[0]["diffs"] and mine[0]["counts"] == {"matched": 1}
    patterns = next(p for p in graph["passes"] if p["name"] == "rewrite-patterns")
    assert "one-product" in json.dumps(patterns["notes"]) + json.dumps(patterns["counts"])
    ways = {node["op"]: node["way"] for node in graph["nodes"]}
    assert ways["aten.special_hermite_polynomial_he.n_scalar"] == "kiln"


def test_the_trace_shows_it(installed, tmp_path):
    page = tmp_path / "trace.html"
    done = run(installed, sys.executable, "-m", "kiln.tools.kiln_trace", "model:make", "-o", str(page))
    assert done.returncode == 0, done.stderr
    shows_the_package(data_of(page.read_text())["graphs"][0])


@pytest.mark.skipif(importlib.util.find_spec("watchfiles") is None, reason="needs pip install kiln-mlir[live]")
def test_the_live_server_sees_it_and_an_edit_of_it(installed):
    path = installed / "faster" / "passes.py"
    text = path.read_text()
    paths = os.pathsep.join([str(ROOT), str(installed), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "kiln.tools.kiln_trace", "model:make", "--serve", "--calls=1"]
    server = subprocess.Popen(
        command, cwd=installed, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True
    )

    def until(seen):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with urllib.request.urlopen(f"{url}/data?token={token}", timeout=120) as answer:
                data = json.loads(answer.read())
            if data["graphs"] and seen in json.dumps(data["graphs"][0]["passes"]):
                return data["graphs"][0]
            time.sleep(0.3)
        raise AssertionError(f"no {seen!r} after two minutes")

    try:
        url, token = re.fullmatch(r"(.*)/\?token=(\S+)\n", server.stdout.readline()).groups()
        shows_the_package(until("rows are summed before the product"))
        path.write_text(text.replace("rows are summed before", "rows are added up before"))
        until("rows are added up before")
    finally:
        path.write_text(text)
        server.send_signal(signal.SIGINT)
        server.wait(30)


def test_agents_and_editors_see_it(installed):
    program = """
from kiln.tools.editors import documents, workbench
ir = open("test/sum_before_product.mlir").read()
print(documents.problems(ir, "test/sum_before_product.mlir"))
print(workbench.run_pass(ir, "sum-before-product"))
print(workbench.check(ir))
print(workbench.explain("model:make"))
"""
    done = run(installed, sys.executable, "-c", program)
    assert done.stdout.startswith("[]\n"), done.stderr
    assert "rows are summed before the product [sum-before-product]" in done.stdout
    assert "each pass computes the same" in done.stdout and "one-product" in done.stdout


def test_its_edited_stage_is_compiled(installed, tmp_path):
    """KILN_DUMP and KILN_OVERRIDE: the dump has what the package's pass left."""
    program = f"""
import pathlib, re, sys, torch
from model import make
torch.manual_seed(0)
model, inputs = make()
def call(**options):
    torch._dynamo.reset()
    with torch.no_grad():
        return torch.compile(model, backend="kiln", options=dict(fallback=False, **options))(*inputs)
first = call(debug_dir={str(tmp_path)!r})
(stage,) = pathlib.Path({str(tmp_path)!r}).glob("*/*sum-before-product.mlir")
text = stage.read_text()
assert "torch.vtensor<[1,512],f32>, !torch.vtensor<[512,512],f32> -> " in text, text
torch.testing.assert_close(call(override={str(tmp_path)!r}), first)
stage.write_text(text.replace("torch.constant.int 2 ", "torch.constant.int 4 "))
assert (call(override={str(tmp_path)!r}) - first).abs().max() > 1
print("edited")
"""
    done = run(installed, sys.executable, "-c", program)
    assert done.stdout == "edited\n", done.stderr
