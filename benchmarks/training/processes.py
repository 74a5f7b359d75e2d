# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Cases in processes of their own, that compile at once and are timed one after the other."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.training.measure import Row

__all__ = ["READY", "run_rows"]

READY = "ready to be timed"
"""The line that a process prints when everything is compiled; it is timed once it has read a line."""


def run_rows(
    names: Sequence[str],
    arguments: Sequence[str],
    jobs: int,
    show: Callable[[Row], None],
    command: Sequence[str] = (sys.executable, "-m", "benchmarks.training"),
) -> list[Row]:
    """The rows of the cases called `names`: `COMMAND ARGUMENTS --turns --case NAME` for each, `jobs` of them at once.

    `show` gets each row as it comes. A case whose process fails is a row without figures that says why.
    """
    rows: list[Row] = []
    for start in range(0, len(names), jobs):
        with tempfile.TemporaryDirectory() as folder:
            some = names[start : start + jobs]
            started = [_Process(name, [*command, *arguments], Path(folder, f"{i}")) for i, name in enumerate(some)]
            for process in started:
                process.wait_until_compiled()
            for process in started:
                rows.append(process.timed())
                show(rows[-1])
    return rows


class _Process:
    def __init__(self, name: str, command: list[str], files: Path) -> None:
        self._name, self._found, self._errors = name, files.with_suffix(".json"), files.with_suffix(".log")
        command += ["--turns", "--case", f"^{re.escape(name)}$", "--json", str(self._found)]
        with self._errors.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def wait_until_compiled(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == READY:
                return

    def timed(self) -> Row:
        self._process.communicate("\n" if self._process.poll() is None else None)
        if self._found.exists():
            return Row(**json.loads(self._found.read_text(encoding="utf-8"))[0])
        last = (self._errors.read_text(encoding="utf-8").strip() or "no output").splitlines()[-1]
        return Row(self._name, "", failed={"kiln": f"exit {self._process.returncode}: {last[:300]}"})
