# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Plants the bugs of `bugs.toml` one at a time in a copy of the compiler, and tells what finds each.

python -m benchmarks.planted [--only WORD] [--jobs N] [--out FILE.json]

For each bug: its program's numbers against float64 (on the CPU or as loops of the GPU's kernels), the same with
`options={"check": True}`, and what `kiln-debug` names, how many ops the module has to which it reduces it, and how
long it takes. Without any bug all programs must be right. The exit status is 1 where nothing finds a bug that has no
reason for it in `bugs.toml`.
"""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_FOLDERS = ("kiln", "frontend", "dialects", "passes", "lowering", "runtime", "tools", "benchmarks")
_RUN_SECONDS, _DEBUG_SECONDS = 120, 180
_FEW_OPS, _MINUTE = 10, 60.0
_MEANS = ("numbers", "check", "debug")


@dataclass(frozen=True)
class Bug:
    """One entry of `bugs.toml`. options: of the backend, that are True. missed: why a means cannot find the bug."""

    name: str
    kind: str
    path: str
    find: str
    replace: str
    program: str
    target: str
    names: list[str]
    options: list[str] = field(default_factory=list)
    missed: dict[str, str] = field(default_factory=dict)


@dataclass
class Row:
    """What was found of a bug.

    numbers, check: the line of `run_program`. debug: the end of what kiln-debug prints; ops: of the reduced module, -1
    without one. seconds: by the clock; computed: of a processor. missed: as in `bugs.toml`.
    """

    name: str
    kind: str
    path: str
    missed: dict[str, str]
    numbers: str = ""
    check: str = ""
    debug: str = ""
    is_named: bool = False
    ops: int = -1
    seconds: float = 0.0
    computed: float = 0.0

    @property
    def is_found(self) -> bool:
        """Whether the numbers or the checks show the bug."""
        return any(text != "right" for text in (self.numbers, self.check))

    @property
    def is_small(self) -> bool:
        """Whether kiln-debug wrote a module of few ops within a minute of a processor."""
        return 0 <= self.ops <= _FEW_OPS and self.computed < _MINUTE

    @property
    def unexplained(self) -> list[str]:
        """The means that did not find the bug, and have no reason in `bugs.toml`."""
        is_by = {"numbers": self.numbers != "right", "check": self.check != "right", "debug": self.is_named}
        return [means for means in _MEANS if not is_by[means] and means not in self.missed]


def load_bugs() -> list[Bug]:
    """All of them.

    Raises ValueError where the text of one no longer stands once in its file.
    """
    bugs = [Bug(**entry) for entry in tomllib.loads((_HERE / "bugs.toml").read_text())["bug"]]
    for bug in bugs:
        count = (_ROOT / bug.path).read_text().count(bug.find)
        if count != 1:
            raise ValueError(f"bug {bug.name!r}: its text stands {count} times in {bug.path}, not once")
        if set(bug.missed) - set(_MEANS):
            raise ValueError(f"bug {bug.name!r}: missed has {', '.join(bug.missed)}; there are {', '.join(_MEANS)}")
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
        "OMP_NUM_THREADS": "1",
    }
    if root != _ROOT:  # the commands for one bug compile its sources once
        environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(root / "compiled")}
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


def _program(root: Path, program: str, target: str, options: Sequence[str]) -> str:
    """The line that `run_program` prints."""
    return _last_line(run(root, ["benchmarks.planted.run_program", program, target, *options], _RUN_SECONDS))


def find(bug: Bug) -> Row:
    """Plant one bug, and look for it."""
    row = Row(bug.name, bug.kind, bug.path, bug.missed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        planted(bug, root)
        row.numbers = _program(root, bug.program, bug.target, bug.options)
        row.check = _program(root, bug.program, bug.target, [*bug.options, "check"])
        start = time.monotonic()
        model = f"benchmarks.planted.programs:{bug.program}"
        options = [f"--option={name}" for name in bug.options]
        command = ["kiln.tools.kiln_debug", model, "--target", bug.target, "--out", str(root / "found"), *options]
        text = run(root, command, _DEBUG_SECONDS)
        row.seconds = round(time.monotonic() - start, 1)
        row.debug = text[-1500:].replace(folder, "")
        wrong = re.search(r"^wrong: (.*)$", text, re.MULTILINE)
        culprits = tuple("kernel " if name == "kernel" else f"pass {name}" for name in bug.names)
        row.is_named = wrong is not None and wrong[1].startswith(culprits)
        ops = re.search(r"^test: .* \((\d+) ops\)", text, re.MULTILINE)
        row.ops = int(ops[1]) if ops else -1
        computed = re.search(r"([\d.]+) s computed", text)
        row.computed = float(computed[1]) if computed else row.seconds
    return row


def _without_bugs(bugs: Sequence[Bug], pool: ThreadPoolExecutor) -> list[str]:
    """A line for each program that is wrong without a bug."""
    programs = sorted({(bug.program, bug.target, (*bug.options, *more)) for bug in bugs for more in ((), ("check",))})
    lines = pool.map(lambda p: _program(_ROOT, *p), programs)
    return [f"{p} on {t} {' '.join(o)}: {x}" for (p, t, o), x in zip(programs, lines, strict=True) if x != "right"]


def _about(machine: str, commit: str) -> dict[str, Any]:
    """Date, commit, machine and versions. commit: empty asks git."""
    if not commit:
        command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_HERE).stdout.strip()
    names = ("torch", "triton", "torch-mlir", "llvmlite")
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "-"
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    machine = machine or f"{platform.machine()}, {os.cpu_count()} cores"
    return {"date": date, "commit": commit or "unknown", "machine": machine, "versions": versions}


def _tell(row: Row) -> None:
    found = f"{'found' if row.is_found else 'MISSED':6} {'named' if row.is_named else 'NOT NAMED':9}"
    times = f"{row.seconds:5.1f} s ({row.computed:.1f} computed)"
    print(f"{found} {row.ops:3} ops {times}  {row.name}", flush=True)
    print(f"         numbers: {row.numbers[:100]}\n         check:   {row.check[:160]}", flush=True)


def main(
    only: Annotated[str, typer.Option(help="bugs whose name, kind or path has this word")] = "",
    jobs: Annotated[int, typer.Option(help="bugs at once")] = 1,
    out: Annotated[Path | None, typer.Option(help="file for all rows, as JSON")] = None,
    machine: Annotated[str, typer.Option(help="its name, for the file")] = "",
    commit: Annotated[str, typer.Option(help="for the file, where git does not know it")] = "",
) -> None:
    """Plant each bug, and tell what finds it."""
    bugs = [bug for bug in load_bugs() if any(only in text for text in (bug.name, bug.kind, bug.path))]
    rows: list[Row] = []
    with ThreadPoolExecutor(jobs) as pool:
        wrong = _without_bugs(bugs, pool)
        for line in wrong:
            print(f"without a bug: {line}", flush=True)
        for done in as_completed([pool.submit(find, bug) for bug in bugs]):
            rows.append(done.result())
            _tell(rows[-1])
            if out is not None:
                rows.sort(key=lambda row: [bug.name for bug in bugs].index(row.name))
                data = _about(machine, commit) | {"wrong_without_bugs": wrong, "rows": [asdict(row) for row in rows]}
                out.write_text(json.dumps(data, indent=1) + "\n")
    print(
        f"{len(rows)} bugs: {sum(row.is_found for row in rows)} found, {sum(row.is_named for row in rows)} named by "
        f"kiln-debug, {sum(row.is_small for row in rows)} reduced to {_FEW_OPS} ops or fewer in a minute"
    )
    missed = {row.name: row.unexplained for row in rows if row.unexplained}
    for name, means in missed.items():
        print(f"not found by {', '.join(means)}, without a reason: {name}")
    if missed or wrong:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
