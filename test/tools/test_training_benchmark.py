# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The benchmark of training steps: its networks train, gradients are compared, what fails is told."""

import sys
from dataclasses import asdict

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.training import __main__ as command
from benchmarks.training.cases import Case, cases
from benchmarks.training.measure import Row, measure
from benchmarks.training.networks import mamba2, mixture
from benchmarks.training.processes import run_rows
from benchmarks.training.saved import backward_peak, built, partition


@pytest.mark.parametrize("build", [mixture, mamba2])
def test_a_row_has_times_and_errors_of_all_contenders(build):
    row = measure(Case("small", build, {"layers": 1}), "cpu", torch.float32, ["eager", "kiln"], rounds=1)
    assert not row.failed
    for found in (row.backward_ms, row.step_ms, row.error, row.first_s):
        assert set(found) == {"eager", "kiln"}, asdict(row)
    assert 0 < row.error["kiln"] < 1e-5
    assert not command._is_wrong(row)


def test_blocks_of_mamba_do_not_change_what_it_computes():
    torch.manual_seed(0)
    first, make = mamba2(layers=1, block=8)
    inputs = make(torch.Generator().manual_seed(0))
    second, _ = mamba2(layers=1, block=32)
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(first.double()(*inputs), second.double()(*inputs))


def test_each_network_is_trained_with_a_small_and_a_large_batch():
    for device in ("cpu", "cuda"):
        names = [case.name.split(" x")[0] for case in cases(device)]
        assert len(set(names)) == 10 and all(names.count(n) == 2 for n in names)


def test_wrong_gradients_and_failures_are_wrong():
    right = {"eager": 1e-3, "kiln": 2e-3}
    assert not command._is_wrong(Row("a", "float32", error=right))
    assert command._is_wrong(Row("a", "float32", error={**right, "kiln": 4e-3}))
    assert command._is_wrong(Row("a", "float32", error={**right, "kiln": float("nan")}))
    assert command._is_wrong(Row("a", "float32", error={"eager": 1e-3}, failed={"kiln": "why"}))
    assert not command._is_wrong(Row("a", "float32", error=right, failed={"inductor": "why"}))


def test_the_gain_is_of_the_best_modes():
    row = Row("a", "float32", step_ms={"eager": 3.0, "inductor": 2.0, "kiln": 1.5, "kiln-graphs": 1.0})
    assert row.gain(row.step_ms) == 2.0
    assert Row("a", "float32", step_ms={"eager": 3.0}).gain({"eager": 3.0}) is None


def test_what_is_saved_of_a_step_and_what_its_plan_holds() -> None:
    case = next(c for c in cases("cpu") if c.name == "resnet50 x1")
    with FakeTensorMode(allow_non_fake_inputs=True):
        module, inputs = built(case)
        ours, theirs = (partition(module, inputs, is_kiln=is_kiln) for is_kiln in (True, False))
        peak = backward_peak(ours)
    assert 0 < ours.bytes <= 1.1 * theirs.bytes
    assert ours.bytes < peak < 5 * ours.bytes  # gradients of parameters, more than pixels here
    assert any(readers == "convolution_backward.default" for *_, readers in ours.groups)


def test_processes_compile_at_once_and_are_timed_in_turn() -> None:
    fake = """
import json, sys
name, file = (sys.argv[sys.argv.index(a) + 1] for a in ("--case", "--json"))
if "dies" in name:
    raise SystemExit("no memory")
print("ready to be timed", flush=True)
open(file + ".turn", "w").close() if sys.stdin.readline() else None
json.dump([{"case": name.strip("^$"), "dtype": "float32", "step_ms": {"kiln": 1.0}}], open(file, "w"))
"""
    shown: list[str] = []
    rows = run_rows(["a", "dies", "b"], [], 2, lambda row: shown.append(row.case), [sys.executable, "-c", fake])
    assert shown == ["a", "dies", "b"]
    assert rows[0] == Row("a", "float32", step_ms={"kiln": 1.0})
    assert rows[1].failed == {"kiln": "exit 1: no memory"}
    assert command._is_wrong(rows[1])
