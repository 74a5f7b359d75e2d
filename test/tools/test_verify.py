# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`options={"verify": ...}`: numbers, and the invariants of stages, behind each pass."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._higher_order_ops.associative_scan import associative_scan

from kiln.errors import CompileError
from kiln.passes.invariants import STAGES
from kiln.passes.registry import load_passes_from
from kiln.tools import kiln_opt

INPUTS = Path(__file__).parent / "debugging" / "Inputs"


def _compiled(pipeline: str) -> object:
    load_passes_from(str(INPUTS / "planted.py"))
    torch._dynamo.reset()
    options = {"verify": "numerics", "pipeline": pipeline}
    return torch.compile(lambda x: x * x - x.relu(), backend="kiln", options=options)


def test_verify_names_the_pass_on_random_inputs() -> None:
    pipeline = "convert-torch-to-kiln,uncounted-swap,fuse,assign-layouts,schedule-cpu"
    with torch.no_grad(), pytest.raises(BackendCompilerFailed, match="pass 'uncounted-swap' failed: the pass"):
        _compiled(pipeline)(torch.randn(64))


def test_verify_names_the_pass_on_given_inputs(capfd: pytest.CaptureFixture[str]) -> None:
    """Random inputs are right; the command keeps those that are not."""
    pipeline = "convert-torch-to-kiln,lose-value,fuse,assign-layouts,schedule-cpu"
    with torch.no_grad(), pytest.raises(CompileError, match="given inputs") as raised:
        _compiled(pipeline)(torch.full((64,), 100.0))
    assert "pass 'lose-value' failed" in str(raised.value)
    command = shlex.split(str(raised.value.command))
    assert any(word.startswith("--inputs=") for word in command)
    assert kiln_opt.main(command[1:]) == 1
    assert "changes numbers (given inputs)" in capfd.readouterr().err


def test_verify_lets_what_is_right_pass() -> None:
    torch._dynamo.reset()
    x = torch.randn(8, 64)
    model = torch.nn.Sequential(torch.nn.LayerNorm(64), torch.nn.Linear(64, 32), torch.nn.GELU())
    with torch.no_grad():
        compiled = torch.compile(model, backend="kiln", options={"verify": "numerics", "fallback": False})
        torch.testing.assert_close(compiled(x), model(x))


def _sums(x: torch.Tensor) -> torch.Tensor:
    return associative_scan(
        lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (torch.sigmoid(x), x), 1, combine_mode="generic"
    )[1]


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.rms_norm(x, x.shape[-1:]),
        lambda x: torch.nn.functional.group_norm(x[None].tanh(), 1),
        lambda x: x.softmax(-1) @ x.mT,
        _sums,
    ],
    ids=["norm", "groups", "product", "scan"],
)
def test_each_stage_of_any_size_keeps_its_invariants(function: Callable, target: str) -> None:
    torch._dynamo.reset()
    options = {"verify": "stages", "fallback": False, "target": target}
    compiled = torch.compile(function, backend="kiln", dynamic=True, options=options)
    with torch.no_grad():
        for size in (17, 23):
            x = torch.randn(5, size)
            torch.testing.assert_close(compiled(x), function(x))


def test_a_stage_without_its_invariants_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setitem(STAGES, "sched", replace(STAGES["sched"], top=("func.return",)))
    with (
        torch.no_grad(),
        pytest.raises(BackendCompilerFailed, match="pass '.*' failed: stage 'sched': kiln.fusion is not"),
    ):
        torch.compile(torch.sin, backend="kiln", options={"verify": "stages"})(torch.randn(5))
