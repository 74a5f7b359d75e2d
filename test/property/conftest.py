# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Makes this folder's helpers importable (pytest's importlib mode puts no test folder on the path); lines for the
summary at the end."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

_LINES: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--jobs", type=int, default=1, help="processes of the long run over random programs")


@pytest.fixture
def summary() -> list[str]:
    """Lines that pytest's summary shows."""
    return _LINES


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _LINES:
        terminalreporter.write_line(line)
