# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Plants the bugs of `bugs.toml` one at a time in a copy of the compiler, and tells what finds each.

python -m benchmarks.planted [--only WORD] [--jobs N] [--out FILE.json]

For each bug: its program's numbers against float64 (on the CPU or as loops of the GPU's kernels), the same with
`options={"check": True}`, and what `kiln-debug` names, how many ops the module has to which it reduces it, and how
long it takes. Without any bug all programs must be right. The exit status is 1 where nothing finds a bug.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_FOLDERS = ("kiln", "frontend", "dialects", "passes", "lowering", "runtime", "tools", "benchmarks")
_RUN_SECONDS, _DEBUG_SECONDS = 240, 240


@dataclass(frozen=True)
class Bug:
    """One entry of `bugs.toml`."""

    name: str
    kind: str
    path: str
    find: str
    replace: str
    program: str
    target: str
    names: list[str]


@dataclass
class Row:
    """What was found of a bug. numbers, check: the line of `run_program`. debug: the lines of kiln-debug that name the
    culprit; ops: of the reduced module, -1 without one."""

    name: str
    kind: str
    path: str
    numbers: str = ""
    check: str = ""
    debug: str = ""
    is_named: bool = False
    ops: int = -1
    seconds: float = 0.0

    @property
    def is_found(self) -> bool:
        """Whether the numbers or the checks show the bug."""
        return any(text != "right" for text in (self.numbers, self.check))


def load_bugs() -> list[Bug]:
    """All of them.

    Raises ValueError where the text of one no longer stands once in its file.
    """
    bugs = [Bug(**entry) for entry in tomllib.loads((_HERE / "bugs.toml").read_text())["bug"]]
    for bug in bugs:
        count = (_ROOT / bug.path).read_text().count(bug.find)
        if count != 1:
            raise ValueError(f"bug {bug.name!r}: its text stands {count} times in {bug.path}, not once")
    return bugs


def planted(bug: Bug, into: Path) -> None:
    """Copy the compiler into a folder, with the bug."""
    for name in _FOLDERS:
        shutil.copytree(_ROOT / name, into / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    path = into / bug.path
    path.write_text(path.read_text().replace(bug.find, bug.replace))


def run(root: Path, arguments: list[str], seconds: int) -> str:
    """What a command prints whose compiler is that of `root`, with how it ended where it did not end well."""
    environment = os.environ | {
        "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "KILN_CACHE": "0",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=root,
            env=environment,
            timeout=seconds,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return f"error: no end within {seconds} seconds"
    text = (done.stdout + done.stderr).strip()
    return text if done.returncode >= 0 else f"{text}\nerror: ended by signal {-done.returncode}"


def _last_line(text: str) -> str:
    return (text.splitlines() or [""])[-1]


def find(bug: Bug) -> Row:
    """Plant one bug, and look for it."""
    row = Row(bug.name, bug.kind, bug.path)
    program = ["benchmarks.planted.run_program", bug.program, bug.target]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        planted(bug, root)
        row.numbers = _last_line(run(root, program, _RUN_SECONDS))
        row.check = _last_line(run(root, [*program, "check"], _RUN_SECONDS))
        start = time.monotonic()
        made = root / "found"
        model = f"benchmarks.planted.programs:{bug.program}"
        text = run(root, ["kiln.tools.kiln_debug", model, "--target", bug.target, "--out", str(made)], _DEBUG_SECONDS)
        row.seconds = round(time.monotonic() - start, 1)
        row.debug = text[-1500:]
        row.is_named = any(name in text for name in bug.names)
        row.ops = _count_ops(made)
    return row


def _count_ops(made: Path) -> int:
    """Ops of the least module that kiln-debug wrote, functions, returns and the module itself aside."""
    counts = []
    for file in made.rglob("*.mlir") if made.is_dir() else []:
        lines = [line.split("//")[0].strip() for line in file.read_text().splitlines()]
        ops = [x for x in lines if re.match(r"(%[\w:#, %]+ = )?(\"?[a-z_]+\.[\w.]+\"?)", x)]
        counts.append(sum(not re.match(r"(func\.func|return|builtin\.module|func\.return)", x) for x in ops))
    return min(counts, default=-1)


def main(
    only: Annotated[str, typer.Option(help="bugs whose name, kind or path has this word")] = "",
    jobs: Annotated[int, typer.Option(help="bugs at once")] = 1,
    out: Annotated[Path | None, typer.Option(help="file for all rows, as JSON")] = None,
) -> None:
    """Plant each bug, and tell what finds it."""
    bugs = [bug for bug in load_bugs() if any(only in text for text in (bug.name, bug.kind, bug.path))]
    programs = sorted({(bug.program, bug.target) for bug in bugs})
    with ThreadPoolExecutor(jobs) as pool:
        for mode in ([], ["check"]):
            lines = pool.map(
                lambda p, m=mode: _last_line(run(_ROOT, ["benchmarks.planted.run_program", *p, *m], _RUN_SECONDS)),
                programs,
            )
            for (program, target), line in zip(programs, lines, strict=True):
                if line != "right":
                    print(f"without a bug: {program} on {target} {' '.join(mode)}: {line}", flush=True)
        rows = []
        for row in pool.map(find, bugs):
            rows.append(row)
            found = f"{'found' if row.is_found else 'MISSED':6} {'named' if row.is_named else 'NOT NAMED':9}"
            print(f"{found} {row.ops:3} ops {row.seconds:5.1f} s  {row.name}", flush=True)
            print(f"         numbers: {row.numbers[:100]}\n         check:   {row.check[:160]}", flush=True)
    if out is not None:
        out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    found, named = sum(row.is_found for row in rows), sum(row.is_named for row in rows)
    small = sum(0 <= row.ops <= 10 and row.seconds < 60 for row in rows)
    print(
        f"{len(rows)} bugs: {found} found, {named} named by kiln-debug, {small} reduced to 10 ops or fewer in a minute"
    )
    if found < len(rows):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
