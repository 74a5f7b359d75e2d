# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Shared pytest setup: the --slow option, fixtures for IR, and proofs about each GPU kernel that a test emits."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from covering import left_out
from torch._logging._internal import trace_log
from torch_mlir import ir

from kiln.dialects import create_context

# Tests compile anew, whatever earlier runs have left; those of the cache have folders of their own.
os.environ["KILN_CACHE"] = "0"
os.environ["KILN_MACHINE"] = "none"

# How long an example takes is no test: other work may share the machine.
_UNTIMED = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("kiln", deadline=None, suppress_health_check=_UNTIMED)
hypothesis.settings.load_profile("kiln")


# Folders of tests that emit GPU kernels for their own sake; --validate-kernels is for all others.
_VALIDATED = ("test/lowering/gpu", "test/lowering/ttcpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", default=False, help="also run tests marked slow, and grids whole")
    text = "prove of each GPU kernel that any test emits that it stays in its buffers (docs/validation.md)"
    parser.addoption("--validate-kernels", action="store_true", default=False, help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes; runs with --slow only")
    config.addinivalue_line("markers", "unchecked_indices: kernels whose loaded indices nothing clamps")
    config.addinivalue_line("markers", "planted: plants a defect in kernels, which are not proved then")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs --slow"))
    others = left_out(items)
    if others:
        config.hook.pytest_deselected(items=list(others))
        items[:] = [item for item in items if item not in others]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    _trace_nothing()
    _measure_no_guards()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    _trace_nothing()


def _trace_nothing() -> None:
    """Takes pytest's handlers off PyTorch's structured trace.

    pytest adds its handlers to loggers that do not propagate, which turns the trace on: PyTorch and Kiln would then
    write out every stage of every graph. Handlers of tests stay.
    """
    for handler in list(trace_log.handlers):
        if type(handler).__module__.startswith("_pytest."):
            trace_log.removeHandler(handler)


def _measure_no_guards() -> None:
    """Dynamo logs how long the guards of each graph take with cold caches, and empties the caches first: as long as the
    guards take to build. No test reads the figure.
    """
    guards = sys.modules.get("torch._dynamo.guards")
    if guards is not None and hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = lambda *_: 0.0


@pytest.fixture
def context() -> Iterator[ir.Context]:
    """A fresh Kiln context, current during the test, with an unknown location."""
    with create_context() as ctx, ir.Location.unknown():
        yield ctx


_validated: set[str] = set()
"""Kernels of this process that no proof was refuted of, as text."""


@pytest.fixture(autouse=True)
def validated_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that emitted a GPU kernel which touches memory that isn't its own, or writes less than its own."""
    here = Path(str(request.node.path)).relative_to(request.config.rootpath).as_posix()
    wanted = request.config.getoption("--validate-kernels") or here.startswith(_VALIDATED)
    if not wanted or request.node.get_closest_marker("planted"):
        yield
        return
    from kiln.lowering.gpu.emit import OBSERVERS
    from kiln.lowering.gpu.validate.validate import validate_kernel
    from kiln.lowering.host.kernels import fusion_key

    refuted: list[str] = []

    def observe(fusion: ir.OpView, function: ir.Operation) -> None:
        key = fusion_key(fusion.operation)
        if key in _validated:
            return
        name = ir.StringAttr(function.attributes["sym_name"]).value
        wrong = [f"@{name}: {f}" for f in validate_kernel(function, fusion, seconds=1) if f.status == "refuted"]
        if request.node.get_closest_marker("unchecked_indices"):
            wrong = [text for text in wrong if "loaded integer" not in text]
        refuted.extend(wrong)
        if not wrong:
            _validated.add(key)

    OBSERVERS.append(observe)
    yield
    OBSERVERS.remove(observe)
    assert not refuted, "\n".join(refuted)
