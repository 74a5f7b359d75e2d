# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The commands and code samples of README.md, CONTRIBUTING.md and docs/ work as written; the files that they name exist.

The tutorials have tests of their own, and are not run here: those in `ELSEWHERE`.
"""

import base64
import gzip
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import forked_python
import pytest
import torch

from benchmarks.__main__ import _arguments
from benchmarks.fuzz.__main__ import _arguments as fuzz
from benchmarks.gpu.breadth.__main__ import parser as breadth
from benchmarks.gpu.breadth.table import parser as breadth_table
from benchmarks.report_page.__main__ import parser as report_page
from kiln.dialects import create_context, parse

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "docs" / "complaints").glob("*.md"))
ELSEWHERE = {
    "first-hour.md",
    "first-kernel.md",
    "first-op.md",
    "first-pass.md",
    "first-target.md",
    "fusion-pattern.md",
    "op-conversion.md",
}

#: What the samples take for granted.
PRELUDE = """
import torch, kiln
import torch.nn.functional as F
from torch import nn
from kiln.passes.instruments import Instrument
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32))
x = torch.randn(4, 16)
inputs = (x,)
text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
"""


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def commands(program: str) -> list[list[str]]:
    """The command lines of all pages that run a program, with the page's name before them."""
    found = []
    for page in PAGES:
        if page.name not in ELSEWHERE:
            lines = "\n".join(blocks(page, "sh")).splitlines()
            split = [shlex.split(line, comments=True) for line in lines]
            found += [[page.name, *words] for words in split if " ".join(words).startswith(program)]
    return found


def _shell(page: str) -> list[str]:
    """The command lines of a page."""
    return "\n".join(blocks(ROOT / "docs" / page, "sh")).splitlines()


#: Commands that no test runs, and why. Where it says so, their options are checked.
NOT_RUN = {
    ". .venv/bin/activate": "changes the shell",
    "kiln-tune": "measures for half a minute, or needs a GPU; test_kiln_tune.py tests it",
    "lit -q test": "the suite itself",
    "pyright --pythonpath .venv/bin/python": "minutes; scripts/test runs it",
    "pytest -q -n 2": "the suite itself",
    "pytest --validate-kernels test/models": "minutes; test/lowering/gpu validates all kernels that it emits",
    "python -m benchmarks": "measures for minutes or hours, some on a GPU; the options are parsed",
    "python -m kiln.tools.gen_docs": "test_docs.py compares what it writes with what is there",
    "python -m kiln.tools.gen_example": "test_docs.py compares what it writes with what is there",
    "python -m kiln.tools.gen_typings": "writes into the environment; scripts/test runs it",
    "ruff": "scripts/test runs it",
    "scripts/compare_kernels main": "compiles all models at two commits: minutes",
    "scripts/demo": "makes an environment; test_kiln_demo.py runs the demo",
    "scripts/site": "test_site.py runs it",
    "scripts/setup .venv": "makes an environment",
    "scripts/test": "the suite itself",
}

#: Languages of code blocks: those that are run or parsed, and those that are not.
RUN = {"python", "py", "sh", "console", "mlir"}
SHOWN = {"", "text", "toml"}

#: What reads the arguments of a module.
ARGUMENTS = {
    "benchmarks": _arguments,
    "benchmarks.fuzz": fuzz,
    "benchmarks.gpu.breadth": breadth().parse_args,
    "benchmarks.gpu.breadth.table": breadth_table().parse_args,
    "benchmarks.report_page": report_page().parse_args,
}

SAMPLES = [
    pytest.param(sample, id=f"{page.name}-{number}")
    for page in PAGES
    if page.name not in ELSEWHERE
    for number, sample in enumerate(blocks(page, "python"))
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in, and nothing compiled."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.reset()
    yield tmp_path
    torch._dynamo.reset()


@pytest.mark.parametrize("sample", SAMPLES)
def test_sample(sample: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(here.name)  # which Dynamo imports by its name, and keeps: another for each sample
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    exec(PRELUDE, names)
    exec(sample, names)
    printed = capsys.readouterr().out
    for promised in re.findall(r"print\(.*\)  # ([-\d.]+)", sample):
        assert promised.rstrip(".,") in printed


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``model.STAGE.mlir`` for each stage of architecture.md's model."""
    folder = tmp_path_factory.mktemp("stages")
    names: dict[str, object] = {"__name__": "sample"}
    exec(PRELUDE, names)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(blocks(ROOT / "docs" / "architecture.md", "python")[0], names)
    for file in folder.rglob("[0-9]*.mlir"):  # others hold one kernel each
        stage = re.search(r"\.(\w+)\.mlir$", file.name)
        if stage is not None:
            (folder / f"model.{stage[1]}.mlir").write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    return folder


def run(module: str, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KILN_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", module, *arguments]
    return forked_python.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("command", commands("kiln-opt"), ids=" ".join)
def test_kiln_opt(command: list[str], stages: Path) -> None:
    *options, file = command[2:]
    if not (stages / file).exists():
        assert file == "model.mlir", f"{file} is no stage's name"
        file = "model.graph.mlir"
    done = run("kiln.tools.kiln_opt", [*options, file], stages)
    assert done.returncode == 0, done.stderr
    assert "func" in done.stdout


@pytest.mark.parametrize("command", commands("kiln-cache"), ids=" ".join)
def test_kiln_cache(command: list[str], here: Path) -> None:
    done = run("kiln.tools.kiln_cache", command[2:], here)
    assert done.returncode == 0, done.stderr
    assert "MiB" in done.stdout


MY_PASS = """
from dataclasses import dataclass

from kiln.dialects.walk import ops_inside
from kiln.passes import Pass, register_pass

@register_pass
@dataclass
class MyPass(Pass):
    name = "my-pass"

    def run(self, module):
        for op in [op for op in ops_inside(module.operation) if op.name == "arith.subf"]:
            op.operands[0], op.operands[1] = op.operands[1], op.operands[0]
"""

MODEL = """
import torch

def make():
    return torch.nn.Linear(8, 4), (torch.randn(2, 8),)
"""


@pytest.mark.parametrize(
    "command", [c for p in ("bisect", "reduce", "debug") for c in commands(f"kiln-{p}")], ids=" ".join
)
def test_debugging(command: list[str], stages: Path) -> None:
    """A wrong pass is found, a module with a subtraction is called broken, and what is right is called right."""
    (stages / "my_pass.py").write_text(MY_PASS)
    (stages / "model.py").write_text(MODEL)
    script = stages / "is_fine.sh"
    script.write_text('#!/bin/sh\n! grep -q arith.subf "$1"\n')
    script.chmod(0o755)
    words = ["model.graph.mlir" if word == "model.mlir" else word for word in command[2:]]
    if ">" in words:
        words = words[: words.index(">")]
    done = run(f"kiln.tools.{command[1].replace('-', '_')}", words, stages)
    is_wrong = any(word.startswith(("--load", "--test")) for word in words)
    assert done.returncode == (0 if is_wrong else 2), done.stdout + done.stderr


@pytest.mark.parametrize("command", [c for c in commands("python -m benchmarks") if c[3] in ARGUMENTS], ids=" ".join)
def test_options_of_benchmarks(command: list[str]) -> None:
    assert ARGUMENTS[command[3]](command[4:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_complete_modules_parse(page: Path) -> None:
    """Blocks of IR without "..."; tutorials run theirs."""
    for block in [] if page.name in ELSEWHERE else blocks(page, "mlir"):
        if "..." not in block:
            with create_context():
                assert parse(block).operation.verify()


def test_a_pass_behind_emission(stages: Path) -> None:
    """The pass of kernels.md, and the command that puts it into the pipeline."""
    page = ROOT / "docs" / "kernels.md"
    (sample,), (command,) = blocks(page, "python"), blocks(page, "console")
    (stages / "count_loops.py").write_text(sample, encoding="utf-8")
    tool = f'kiln-opt() {{ "{sys.executable}" -m kiln.tools.kiln_opt "$@"; }}\n'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shell = ["bash", "-e", "-c", tool + command]
    done = subprocess.run(shell, cwd=stages, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^count-loops: native_layer_norm_\w+=\d", done.stderr, re.M), done.stderr


@pytest.mark.parametrize("line", [line for line in _shell("trace.md") if line])
def test_traces(line: str, tmp_path: Path) -> None:
    """The commands of trace.md write a page, of a model and of a program."""
    model = "import torch\n\n\ndef make():\n    return torch.nn.Linear(4, 8), (torch.randn(2, 4),)\n"
    (tmp_path / "mymodel.py").write_text(model, encoding="utf-8")
    train = "from mymodel import make\nimport torch\n\nmodel, inputs = make()\n"
    train += 'torch.compile(model, backend="kiln")(*inputs).sum().backward()\n'
    (tmp_path / "train.py").write_text(train, encoding="utf-8")
    words = shlex.split(line, comments=True)
    settings = dict(word.split("=") for word in words[: next(i for i, word in enumerate(words) if "=" not in word)])
    program, *arguments = words[len(settings) :]
    assert program in ("kiln-trace", "python")
    tool = ["-m", "kiln.tools.kiln_trace"] if program == "kiln-trace" else []
    environment = {**os.environ, **settings, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    command = [sys.executable, *tool, *arguments]
    done = forked_python.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    packed = re.search(r"H4sI[\w+/=]+", (tmp_path / "trace.html").read_text(encoding="utf-8"))
    assert packed is not None
    graphs = json.loads(gzip.decompress(base64.b64decode(packed[0])))["graphs"]
    assert len(graphs) == (2 if "--training" in line or "train.py" in line else 1)
    assert "addmm" in json.dumps(graphs)


def test_every_block_is_run_or_shown() -> None:
    for page in PAGES:
        fences = re.findall(r"^```(\w*)$", page.read_text(encoding="utf-8"), re.M)
        assert set(fences) <= RUN | SHOWN, page.name
    # Tests that run these: test_portable.py and test_first_pass.py.
    assert [page.name for page in PAGES if blocks(page, "py")] == ["cache.md", "first-pass.md"]
    assert [page.name for page in PAGES if blocks(page, "console")] == ["kernels.md"]


def test_every_command_is_run_or_has_a_reason() -> None:
    """The patterns above fit what the pages say."""
    assert len(commands("kiln-opt")) >= 5 and len(commands("python -m benchmarks")) >= 5 and len(SAMPLES) >= 5
    tested = ("kiln-bisect ", "kiln-cache ", "kiln-debug ", "kiln-opt ", "kiln-reduce ", "kiln-trace ", "KILN_TRACE=")
    lines = [" ".join(words) for _, *words in commands("") if words]
    reasons = {start: [line for line in lines if line == start or line.startswith(f"{start} ")] for start in NOT_RUN}
    reasons["python -m benchmarks"] = [line for line in lines if line.startswith("python -m benchmarks")]
    excused = {line for found in reasons.values() for line in found}
    assert [line for line in lines if not line.startswith(tested) and line not in excused] == []
    assert [start for start, found in reasons.items() if not found] == []
    assert all((ROOT / line.split()[0]).exists() for line in lines if line.startswith("scripts/"))


def programs_with_options() -> dict[str, set[str]]:
    """Module -> the long options that pages give it, in code blocks and in sentences; benchmarks without any, too.

    `kiln-cache` has subcommands, and is run as the pages have it.
    """
    found: dict[str, set[str]] = {}
    for page in PAGES:
        inline = re.findall(r"`((?:python -m|kiln-)[^`\n]+)`", page.read_text(encoding="utf-8"))
        for line in [*"\n".join(blocks(page, "sh")).splitlines(), *inline]:
            words = shlex.split(line.removeprefix("python -m "), comments=True)
            if not words or not line.startswith(("python -m ", "kiln-")):
                continue
            module = f"kiln.tools.{words[0].replace('-', '_')}" if words[0].startswith("kiln-") else words[0]
            options = {word.split("=")[0] for word in words[1:] if word.startswith("--")}
            if module != "kiln.tools.kiln_cache" and (options or module.startswith("benchmarks")):
                found.setdefault(module, set()).update(options)
    return found


@pytest.mark.parametrize(
    ("module", "options"), programs_with_options().items(), ids=lambda x: x if isinstance(x, str) else ""
)
def test_programs_know_their_options(module: str, options: set[str], tmp_path: Path) -> None:
    done = run(module, ["--help"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert options <= set(re.findall(r"--[a-z][\w-]*", done.stdout))


def test_checks_of_contributors_are_those_of_the_script() -> None:
    script = (ROOT / "scripts" / "test").read_text(encoding="utf-8")
    checks = [" ".join(command) for page, *command in commands("") if page == "CONTRIBUTING.md"]
    assert {"ruff check .", "ruff format --check .", "python -m kiln.tools.gen_typings"} <= set(checks)
    assert all(check in script for check in checks if check.startswith(("ruff", "python -m kiln.tools.gen_typings")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_modules_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for module in re.findall(r"python -m ([\w.]+\w)", text):
        assert importlib.util.find_spec(module) is not None, f"{page.name} runs {module}"
    for name in re.findall(r"`((?:[\w.-]+/)*[\w-]+\.py)`", text):
        if page.name not in ELSEWHERE:  # whose files the reader writes
            assert any(ROOT.glob(name)) or any(path for path in _sources() if path.endswith(f"/{name}")), name


def _sources() -> list[str]:
    folders = ("benchmarks", "dialects", "frontend", "kiln", "lowering", "passes", "runtime", "test", "tools")
    return [str(path) for folder in folders for path in (ROOT / folder).rglob("*.py")]
