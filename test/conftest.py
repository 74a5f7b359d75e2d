# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Shared pytest setup: the --slow option, and fixtures for IR."""

import os
from collections.abc import Iterator

import pytest
from torch_mlir import ir

from kiln.dialects import create_context

# Tests compile anew, whatever earlier runs have left; those of the cache have folders of their own.
os.environ["KILN_CACHE"] = "0"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", default=False, help="also run tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes; runs with --slow only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs --slow"))


@pytest.fixture
def context() -> Iterator[ir.Context]:
    """A fresh Kiln context, current during the test, with an unknown location."""
    with create_context() as ctx, ir.Location.unknown():
        yield ctx
