# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The benchmark of the workbench while it is off: it reaches every hook, and what was recorded is below 1 %."""

import sys
from typing import Any

import pytest
import torch

import kiln
from benchmarks import workbench
from benchmarks.report_page.data import load
from kiln.runtime.executor import Executor


def compiled(checked: torch.Tensor) -> torch.Tensor:
    torch._dynamo.reset()
    options = {"cache": False, "fallback": False}
    return torch.compile(lambda x: torch.softmax(x @ x.t(), 1), backend=kiln.backend, options=options)(checked)


def test_a_compilation_reaches_every_hook_through_the_benchmark() -> None:
    x = torch.randn(8, 8)
    expected = compiled(x)
    called: set[str] = set()

    def noted(name: str, stand_in: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            called.add(name)
            return stand_in(*args, **kwargs)

        return call

    hooks = workbench.hooks()
    originals = {name: getattr(owner, name) for owner, name, _ in hooks}
    with workbench.replaced([(owner, name, noted(name, function)) for owner, name, function in hooks]):
        assert torch.equal(compiled(x), expected)
        # No module has kept a hook: the compilation would then be measured with it.
        kept = {
            (module, name)
            for module, values in list(sys.modules.items())
            if module.startswith("kiln.")
            for name, original in originals.items()
            if vars(values).get(name) is original
        }
    assert not kept
    # Cost models are asked for products with tiles alone; installed packages once a process, and none is there.
    assert called >= {name for _, name, _ in hooks} - {"considering", "load"}
    assert all(getattr(owner, name) is originals[name] for owner, name, _ in hooks)


def test_a_call_without_the_look_for_a_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Executor] = []
    start = Executor.__init__

    def keep(self: Executor, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(Executor, "__init__", keep)
    x = torch.randn(8, 8)
    expected = compiled(x)
    (executor,) = made
    codes = workbench._codes(executor)
    assert "_is_profiler_enabled" in codes[True].co_names and "_is_profiler_enabled" not in codes[False].co_names
    results = executor.run([x])
    executor.run.__code__ = codes[False]
    assert torch.equal(executor.run([x])[0], results[0]) and torch.equal(results[0], expected)


def test_what_was_recorded_is_within_one_percent() -> None:
    rows = load()["epyc-workbench-off"].rows
    assert {row["what"] for row in rows} == {"compile", "call"}
    for row in rows:
        assert row["share"] < 0.01 if row["what"] == "compile" else row["interval"][1] < 1.01, row
