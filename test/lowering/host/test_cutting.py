# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs of launches that are cut so that memory goes in between: fewer bytes at the peak, and few cuts."""

import random

import pytest

from kiln.lowering.host import cutting
from kiln.lowering.host.cutting import cut_runs
from kiln.lowering.host.hosting import host_in_tensors
from kiln.runtime.binding import segments
from kiln.runtime.plan import Buffer, Launch, Operand, Output, Plan, Pointer
from kiln.runtime.statistics import memory_report

MIB = 1 << 20


def backward(saved: list[int], gradients: list[int], between: list[int]) -> tuple[Plan, set[int]]:
    """Launch k reads saved tensor k and the intermediate of launch k - 1, and writes gradient k and intermediate k.

    All in bytes. Returns the plan and the numbers of the saved tensors.
    """
    plan, given = Plan("main", len(saved), "cuda:0"), set[int]()

    def buffer(kind: str, size: int, first: int, last: int, index: int = -1) -> int:
        plan.buffers.append(Buffer(kind, "uint8", (size,), (1,), size, index, first, last))
        return len(plan.buffers) - 1

    before: list[int] = []
    for k, sizes in enumerate(zip(saved, gradients, between, strict=True)):
        read = buffer("input", sizes[0], k, k, k)
        given.add(read)
        written = buffer("tensor", sizes[1], k, k)
        passed = buffer("workspace", sizes[2], k, min(k + 1, len(saved) - 1))
        used = [*before, read, written, passed]
        pointers = tuple(Pointer(b, 0, plan.buffers[b].bytes) for b in used)
        plan.steps.append(Launch(0, pointers, (), results=2, name=f"f{k}"))
        plan.outputs.append(Output(Operand(written)))
        before = [passed]
    return plan, given


def peak(plan: Plan) -> int:
    """Most bytes that a call holds, saved tensors among them, which are all its inputs."""
    parts = segments(plan)
    last = {b: k for k, part in enumerate(parts) for b in part.buffers}
    given = [(int(b.bytes), last[i]) for i, b in enumerate(plan.buffers) if b.kind == "input"]
    saved = [sum(size for size, end in given if end >= k) for k in range(len(parts) + 1)]
    return max(a + b for a, b in zip(saved, memory_report(plan).held, strict=True))


def test_saved_tensors_go_while_gradients_are_made():
    plan, given = backward([MIB] * 40, [MIB] * 40, [MIB // 4] * 40)
    before = peak(plan)
    cut_runs(plan, given)
    assert plan.cuts is not None and len(plan.cuts) < 40
    assert before > 80 * MIB and peak(plan) < 43 * MIB


def test_gradients_that_are_much_smaller_need_no_cut():
    """What is saved is held at the start in any case."""
    plan, given = backward([4 * MIB] * 40, [64] * 40, [64] * 40)
    cut_runs(plan, given)
    assert plan.cuts is None


def test_small_graphs_stay_whole():
    plan, given = backward([1024] * 40, [1024] * 40, [256] * 40)
    cut_runs(plan, given)
    assert plan.cuts is None


def test_a_workspace_is_there_for_its_run_alone():
    """A large intermediate at the end is not there while all saved tensors are."""
    plan, given = backward([4 * MIB] * 10, [64] * 10, [64] * 8 + [16 * MIB] * 2)
    before = peak(plan)
    cut_runs(plan, given)
    assert plan.cuts and len(plan.cuts) <= 2
    assert before > 56 * MIB and peak(plan) < 41 * MIB


def test_sizes_that_are_symbols():
    plan, given = backward([MIB] * 4, [MIB] * 4, [64] * 4)
    plan.buffers[0] = Buffer("input", "uint8", ("s0",), (1,), "s0", 0, 0, 0)
    cut_runs(plan, given)
    assert plan.cuts is None


@pytest.mark.parametrize("seed", range(40))
def test_random(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts never take more memory, though a workspace loses some between buffers of unlike sizes."""
    monkeypatch.setattr(cutting, "_LEAST_GAIN", 0)
    choose = random.Random(seed)
    count = choose.randint(2, 30)
    sizes = [[64 * choose.randint(1, 60) for _ in range(count)] for _ in range(3)]
    whole, given = backward(*sizes)
    host_in_tensors(whole)
    plan, given = backward(*sizes)
    cut_runs(plan, given)
    host_in_tensors(plan)
    assert peak(plan) <= peak(whole)
    if plan.cuts is not None:
        assert 0 not in plan.cuts and peak(plan) < peak(whole)
