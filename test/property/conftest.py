# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Makes this folder's helpers importable (pytest's importlib mode puts no test folder on the path); the summary."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tally import Tally  # noqa: E402 - found by the line above

_TALLIES: list[Tally] = []


@pytest.fixture
def tally() -> Callable[[int], Tally]:
    """`tally(seed)`: counts that the run's summary shows."""

    def make(seed: int) -> Tally:
        _TALLIES.append(Tally(seed))
        return _TALLIES[-1]

    return make


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for counts in _TALLIES:
        terminalreporter.write_line(f"random programs: {counts}")
