# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A forked command has what a new process has: arguments, folder, environment, streams, search path, exit status."""

import os
import subprocess
import sys
from pathlib import Path

import forked_python
import pytest

ROOT = str(Path(__file__).resolve().parent.parent)
SHOW = "import os, sys; print(os.getcwd(), sys.argv, os.environ.get('MINE'), sys.path[:2], 'torch' in sys.modules)"


def both(command: list[str], folder: Path, **settings: str) -> list[tuple[int, str, str]]:
    """Exit status, stdout and stderr of a forked and of a new process."""
    environment = {**os.environ, "PYTHONPATH": ROOT, **settings}
    found = []
    for run in (forked_python.run, subprocess.run):
        done = run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, input="in")
        found.append((done.returncode, done.stdout, done.stderr))
    return found


@pytest.mark.parametrize(
    "command",
    [
        ["-c", SHOW, "a", "b"],
        ["mine.py", "a"],
        ["-m", "mine", "a"],
        ["-c", "import sys; sys.exit('wrong')"],
        ["-c", "import sys; sys.exit(3)"],
        ["-c", "import os; os.abort()"],
        ["-c", "import sys; print(sys.stdin.read(), file=sys.stderr)"],
        ["-c", "import atexit; atexit.register(print, 'end')"],
        ["-c", "import threading; threading.Thread(target=print, args=['thread']).start()"],
    ],
    ids=" ".join,
)
def test_as_a_new_process(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SHOW)
    forked, new = both(command, tmp_path, MINE="of the test")
    assert (forked[0], forked[1].replace(" True\n", " False\n"), forked[2]) == new


def test_an_error_is_shown(tmp_path: Path) -> None:
    forked, new = both(["-c", "1 / 0"], tmp_path)
    assert forked[0] == new[0] == 1 and forked[2].splitlines()[-1] == new[2].splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        (["-c", SHOW], {"TORCH_LOGS": "+kiln"}),
        (["-c", SHOW], {"PYTHONHASHSEED": "1"}),
        (["-c", SHOW], {"PYTHONPATH": ""}),
        (["-W", "ignore", "-c", SHOW], {}),
    ],
)
def test_a_start_that_differs_is_a_new_process(command: list[str], settings: dict[str, str], tmp_path: Path) -> None:
    forked, new = both(command, tmp_path, **settings)
    assert forked == new and "False" in forked[1]


def test_a_command_that_takes_too_long_is_ended() -> None:
    environment = {**os.environ, "PYTHONPATH": ROOT}
    with pytest.raises(subprocess.TimeoutExpired):
        forked_python.run([sys.executable, "-c", "while True: pass"], env=environment, timeout=0.5)
    done = forked_python.run([sys.executable, "-c", "print(1)"], env=environment, capture_output=True, text=True)
    assert done.stdout == "1\n"
