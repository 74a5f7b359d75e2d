# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Recordings of whole graphs, made on the CPU by a capture that runs the work again on the same memory."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kiln.runtime.cuda.graphs import GraphedRun
from kiln.runtime.plan import AtenStep, Buffer, Launch, Operand, Output, Plan, Pointer, Symbol


class Recorder:
    """What a CUDA graph does: it reads and writes the memory that it was recorded with."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0
        self.where: object = 0
        self.fails = False

    def place(self) -> object:
        return self.where

    def record(self, work: Callable[[], list[Any]]) -> tuple[Callable[[], None], list[Any]]:
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.recorded += 1
        outputs = work()
        for value in outputs:
            if isinstance(value, torch.Tensor) and self.poisons(value):
                value.fill_(float("nan"))  # a capture runs nothing

        def replay() -> None:
            self.replayed += 1
            for old, new in zip(outputs, work(), strict=True):
                if isinstance(old, torch.Tensor) and old is not new:
                    old.copy_(new)

        return replay, outputs

    def poisons(self, value: torch.Tensor) -> bool:
        return True


def plan_of(outputs: list[Output], *, writes_first: bool = False) -> Plan:
    """Two inputs; buffer 2 is a result. With writes_first a kernel writes into input 0."""
    plan = Plan("g", 2)
    plan.buffers = [
        Buffer("input", "float32", (4,), (1,), 16, index=0),
        Buffer("input", "float32", (4,), (1,), 16, index=1),
        Buffer("tensor", "float32", (4,), (1,), 16),
    ]
    target = 0 if writes_first else 2
    plan.steps = [Launch(0, (Pointer(1), Pointer(target)), (), results=1)]
    plan.outputs = outputs
    return plan


SUM = [Output(Operand(2))]


@pytest.fixture
def capture() -> Recorder:
    return Recorder()


def added(inputs):
    return [inputs[0] + inputs[1]]


def test_a_weight_is_read_in_place_and_an_activation_is_copied(capture):
    graphed = GraphedRun(plan_of(SUM), added, capture)
    weight = torch.randn(4)
    inputs = [torch.randn(4) for _ in range(6)]  # alive, so that each has an address of its own
    for x in inputs:
        (result,) = graphed.run([weight, x])
        assert torch.equal(result, weight + x)
        del result
    assert (capture.recorded, capture.replayed) == (1, 5)
    weight.add_(1)
    assert torch.equal(graphed.run([weight, inputs[0]])[0], weight + inputs[0])
    assert capture.recorded == 1


def test_a_result_that_is_kept_never_changes(capture):
    graphed = GraphedRun(plan_of(SUM), added, capture)
    weight = torch.randn(4)
    inputs = [torch.randn(4) for _ in range(5)]
    results = [graphed.run([weight, x])[0] for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        assert torch.equal(result, weight + x)
    assert capture.replayed == 1  # its result was alive from then on
    del results, result
    graphed.run([weight, inputs[0]])
    assert capture.replayed == 2


def test_a_result_that_lives_until_the_next_one_is_there_is_copied(capture):
    graphed = GraphedRun(plan_of(SUM), added, capture)
    weight = torch.randn(4)
    inputs = [torch.randn(4) for _ in range(8)]
    for i, x in enumerate(inputs):
        result = graphed.run([weight, x])[0]  # in a loop, the one before is alive
        assert torch.equal(result, weight + x)
        assert capture.replayed == (0, 1, 1, 2, 3, 4, 5, 6)[i]
    assert capture.recorded == 1


def test_results_that_are_one_tensor_are_one_copy(capture):
    def run(inputs):
        result = inputs[0] + inputs[1]
        return [result, result]

    graphed = GraphedRun(plan_of([Output(Operand(2)), Output(Operand(2))]), run, capture)
    a, b = torch.randn(4), torch.randn(4)
    kept = [graphed.run([a, b]) for _ in range(3)]
    del kept
    kept = [graphed.run([a, b])]
    assert kept[0][0] is kept[0][1]
    assert torch.equal(kept[0][0], a + b)


def test_a_view_of_a_result_keeps_it_as_well(capture):
    graphed = GraphedRun(plan_of(SUM), added, capture)
    a, b, other = torch.randn(4), torch.randn(4), torch.randn(4)
    graphed.run([a, b])
    view = graphed.run([a, b])[0][1:3]
    graphed.run([a, other])
    assert torch.equal(view, (a + b)[1:3])


def test_an_input_that_moves_makes_one_more_recording(capture):
    graphed = GraphedRun(plan_of(SUM), added, capture)
    a, b = torch.randn(4), torch.randn(4)
    graphed.run([a, b])
    graphed.run([a, b])
    moved = torch.randn(4)
    assert torch.equal(graphed.run([moved, b])[0], moved + b)
    assert torch.equal(graphed.run([a, b])[0], a + b)
    assert capture.recorded == 2


class ByAddress(Recorder):
    """A recorder of `added` that keeps no tensor alive but its result, as a CUDA graph does."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        self.read = [value.data_ptr() for value in inputs]
        return added(inputs)

    def record(self, work: Callable[[], list[Any]]) -> tuple[Callable[[], None], list[Any]]:
        self.recorded += 1
        outputs = work()
        read = self.read

        def replay() -> None:
            self.replayed += 1
            self.read = read
            outputs[0].copy_(
                sum(torch.frombuffer((ctypes.c_float * 4).from_address(a), dtype=torch.float) for a in read)
            )

        return replay, outputs


def forward_and_backward() -> tuple[ByAddress, ByAddress, GraphedRun, GraphedRun]:
    one, two = ByAddress(), ByAddress()
    return one, two, GraphedRun(plan_of(SUM), one.run, one), GraphedRun(plan_of(SUM), two.run, two)


def test_what_a_recording_leaves_is_read_where_it_is():
    one, two, forward, backward = forward_and_backward()
    weight, alive = torch.randn(4), []
    for i in range(8):
        alive.append(torch.randn(4))
        (saved,) = forward.run([weight, alive[-1]])
        (gradient,) = backward.run([weight, saved])
        assert torch.equal(gradient, weight + (weight + alive[-1])), i
        assert two.read == [weight.data_ptr(), saved.data_ptr()], i
        del saved, gradient
    assert (one.recorded, one.replayed, two.recorded, two.replayed) == (1, 7, 1, 7)


def test_a_call_without_the_other_recording_costs_no_recording():
    _, two, forward, backward = forward_and_backward()
    weight, x, elsewhere = torch.randn(4), torch.randn(4), torch.randn(4)
    for i in range(12):
        saved = elsewhere if i in (3, 6, 7) else forward.run([weight, x])[0]
        assert torch.equal(backward.run([weight, saved])[0], weight + saved), i
        del saved
    assert (two.recorded, two.replayed) == (1, 8)
    for _ in range(4):  # from now on it comes from elsewhere
        assert torch.equal(backward.run([weight, elsewhere])[0], weight + elsewhere)
    assert (two.recorded, two.replayed) == (2, 10)


def test_a_kernel_that_writes_to_an_input_that_is_copied(capture):
    def double(inputs):
        inputs[0].copy_(inputs[1] * 2)
        return [inputs[0]]

    capture.poisons = lambda value: False
    graphed = GraphedRun(plan_of([Output(Operand(0))], writes_first=True), double, capture)
    source = torch.randn(4)
    targets = [torch.zeros(4) for _ in range(4)]
    for target in targets:
        (result,) = graphed.run([target, source])
        assert result is target
        assert torch.equal(target, source * 2)
    assert capture.replayed == 3


def test_a_result_that_is_a_view_of_an_input_that_is_copied(capture):
    capture.poisons = lambda value: False
    plan = plan_of([Output(Operand(0, (2,), (1,), 1))])
    graphed = GraphedRun(plan, lambda inputs: [inputs[0][1:3]], capture)
    inputs = [torch.randn(4) for _ in range(4)]
    for x in inputs:
        (result,) = graphed.run([x, x])
        assert result.data_ptr() == x[1:3].data_ptr()
        assert torch.equal(result, x[1:3])


def test_recordings_by_size_and_stream(capture):
    plan = plan_of(SUM)
    plan.symbols = [Symbol("n", "size", input=0, dim=0)]
    graphed = GraphedRun(plan, added, capture)
    pairs = {n: (torch.randn(n), torch.randn(n)) for n in (4, 8)}
    for n in (4, 8, 4, 8, 4, 8):
        a, b = pairs[n]
        assert torch.equal(graphed.run([a, b])[0], a + b)
    assert (capture.recorded, capture.replayed) == (2, 4)
    capture.where = 1
    graphed.run(list(pairs[4]))
    assert capture.replayed == 4


def test_what_cannot_be_recorded_runs_plainly(capture):
    capture.fails = True
    graphed = GraphedRun(plan_of(SUM), added, capture)
    a, b = torch.randn(4), torch.randn(4)
    for _ in range(3):
        assert torch.equal(graphed.run([a, b])[0], a + b)
    assert "capturing" in graphed.reason


def test_sizes_known_at_run_time_are_an_obstacle(capture):
    plan = plan_of(SUM)
    plan.steps.append(AtenStep("aten.nonzero.default", "[]", "{}", (), (), (-1,), ((0, 0, 0),), name="nonzero"))
    assert "nonzero" in GraphedRun(plan, added, capture).reason
