# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Shared by the conformance tests: what a ``torch.compile`` backend must keep."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import kiln  # noqa: F401 - makes backend="kiln" known in a checkout that is not installed
from kiln.frontend import compile as compiling


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A graph that silently falls back to ATen would pass every test here: make the warning an error."""
    for item in items:
        if "conformance" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("error:kiln.*:RuntimeWarning"))


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def assert_same(actual: Any, expected: Any, rtol: float = 2e-5, atol: float = 2e-5) -> None:
    """Same structure, types, dtypes, strides and (closely) values."""
    flat_actual, spec_actual = pytree.tree_flatten(actual)
    flat_expected, spec_expected = pytree.tree_flatten(expected)
    assert spec_actual == spec_expected
    for ours, theirs in zip(flat_actual, flat_expected, strict=True):
        assert type(ours) is type(theirs)
        if isinstance(theirs, torch.Tensor):
            assert ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)
        else:
            assert ours == theirs


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folders for the caches of Kiln and of PyTorch, in one folder."""
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path / "kiln"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    return tmp_path


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The graphs that are given to the compiler, by kind."""
    found: list[str] = []
    compile_native = compiling._compile_native

    def counting(gm: Any, options: Any, report: Any) -> Any:
        found.append(report.graph)
        return compile_native(gm, options, report)

    monkeypatch.setattr(compiling, "_compile_native", counting)
    return found


@pytest.fixture
def check() -> Callable[..., Any]:
    """``check(fn, *args, **compile_options)``: compiled equals eager; returns the compiled function."""

    def run(fn: Callable[..., Any], *args: Any, fullgraph: bool = True, **options: Any) -> Callable[..., Any]:
        compiled = torch.compile(fn, backend="kiln", fullgraph=fullgraph, **options)
        expected = fn(*pytree.tree_map(_copy, args))
        assert_same(compiled(*args), expected)
        return compiled

    return run


def _copy(value: Any) -> Any:
    """A copy with the same strides, so that a mutating function can run twice."""
    if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter):
        return value
    copy = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
    if any(stride == 0 for stride in value.stride()):
        return value.detach()
    return copy.copy_(value.detach()).requires_grad_(value.requires_grad)
