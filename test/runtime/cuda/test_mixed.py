# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs with CUDA and CPU tensors, traced for a GPU that is not there and run on the emulated one."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import kiln.frontend.native as native
import kiln.runtime.aten_call as aten_call
from kiln.frontend.decompositions import decomposition_table
from kiln.frontend.import_.fx_values import node_value
from kiln.frontend.import_.placement import Placement, device_of
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport
from kiln.runtime.cuda.graphs import _obstacle
from kiln.runtime.plan import AtenStep, Launch, Plan

aten = torch.ops.aten
HALF = torch.tensor(0.5)
NEGATIVE = torch.tensor(-3, dtype=torch.int32)


def to(x: torch.Tensor, device: str) -> torch.Tensor:
    """Tensor.to asks for CUDA to be there."""
    return aten._to_copy.default(x, device=torch.device(device))


def traced(function: Callable[..., Any], inputs: Sequence[torch.Tensor], devices: str) -> GraphModule:
    """The graph for inputs on a GPU ("c") or the host ("h")."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        places = ["cuda:0" if d == "c" else "cpu" for d in devices]
        fakes = [torch.empty(x.shape, dtype=x.dtype, device=d) for x, d in zip(inputs, places, strict=True)]
        return make_fx(function, decomposition_table=decomposition_table(), tracing_mode="fake")(*fakes)


def on_host(gm: GraphModule, inputs: Sequence[torch.Tensor]) -> Any:
    """What eager computes, with everything on the CPU."""
    for node in gm.graph.nodes:
        if isinstance(node.kwargs.get("device"), torch.device):
            node.kwargs = {**node.kwargs, "device": torch.device("cpu")}
    gm.recompile()
    return gm(*inputs)


@pytest.fixture
def run(gpu, monkeypatch):
    """``run(function, inputs, devices)`` checks the results; returns the plan and the report."""
    plans: list[Plan] = []

    class OneDevice(aten_call._Source):
        """The emulated GPU is the CPU."""

        def value(self, node: Any) -> str:
            return super().value({"device": "cpu"} if isinstance(node, dict) and "device" in node else node)

    monkeypatch.setattr(aten_call, "_Source", OneDevice)
    make_runner = native.make_runner

    def keeping(plan, constants, options):
        plans.append(plan)
        return make_runner(plan, constants, options)

    monkeypatch.setattr(native, "make_runner", keeping)

    def check(function: Callable[..., Any], inputs: Sequence[torch.Tensor], devices: str) -> tuple[Plan, CompileReport]:
        gm, report = traced(function, inputs, devices), CompileReport("inference", 1)
        graph = native.compile_native(gm, Options(fallback=False), report)
        given = [x.clone() for x in inputs]
        found = graph.run(list(given))
        again = [x.clone() for x in inputs]
        expected = on_host(gm, again)
        expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
        for ours, theirs in zip([*found, *given], [*expected, *again], strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True)
        kernels_read_the_gpu_alone(plans[-1], devices)
        return plans[-1], report

    return check


def kernels_read_the_gpu_alone(plan: Plan, devices: str) -> None:
    far = {i for i, b in enumerate(plan.buffers) if b.kind == "input" and devices[b.index] == "h"}
    # What such a call returns is on the host, but for transfers: those alone may be read.
    transfers = ("kiln.number_on.default", "aten._to_copy.default", "aten.index.Tensor", "aten.index_put.default")
    far |= {
        r for s in plan.steps if isinstance(s, AtenStep) and s.elsewhere and s.op not in transfers for r in s.results
    }
    for step in plan.steps:
        if isinstance(step, Launch):
            assert not far & {pointer.buffer for pointer in step.pointers}


def calls(plan: Plan) -> list[str]:
    return [step.op for step in plan.steps if isinstance(step, AtenStep)]


X, Y = torch.randn(5, 70), torch.randn(70)


@pytest.mark.parametrize(
    ("function", "number"),
    [
        (lambda x, s: torch.relu(x * s) + 1, torch.tensor(0.3)),
        (lambda x, s: torch.where(x > s, x, s), torch.tensor(0.3)),
        (lambda x, s: x.addcmul(x, s) + s, torch.tensor(-2.0)),
        (lambda x, s: torch.minimum(x, s).sum(-1), torch.tensor(0.1, dtype=torch.float64).float()),
        (lambda x, s: x * s, torch.tensor(7)),
        (lambda x, s: x * s, torch.tensor(True)),
        (lambda x, s: x - s, torch.tensor(0.3, dtype=torch.float64)),
        (lambda x, s: x.masked_fill(x > 0, s), torch.tensor(float("nan"))),
    ],
    ids=["mul", "where", "addcmul", "minimum", "int", "bool", "double", "nan"],
)
def test_a_number_goes_to_the_kernel(run, gpu, function, number):
    """Once for all of its readers, and the result keeps the dtype that promotion gives it."""
    plan, report = run(function, [X, number], "ch")
    assert calls(plan) == ["kiln.number_on.default"]
    assert {d.way for d in report.decisions} == {"kiln", "aten"}
    assert len(gpu.launched) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.relu(x * HALF),
        lambda x: torch.where(x > 0, x, HALF) + NEGATIVE,
        lambda x: x * torch.full((), 3.0),
        lambda x: x + HALF.clone(),
        lambda x: torch.minimum(x, torch.scalar_tensor(-0.0)),
    ],
    ids=["constant", "two", "full", "clone", "negative zero"],
)
def test_a_number_in_the_graph_is_a_literal(run, gpu, function):
    plan, _ = run(function, [X], "c")
    assert calls(plan) == []
    assert len(gpu.launched) == 1


def test_ops_on_the_host_are_calls_on_the_host(run):
    def function(x, h):
        total = h.exp().sum() / 3
        return torch.relu(x * total), h.t() * 2, (h + 1) ** 2.0

    plan, report = run(function, [X, torch.randn(3, 4)], "ch")
    assert "kiln.number_on.default" in calls(plan)
    assert any("on another device" in d.reason for d in report.decisions)
    assert Plan.from_bytes(plan.to_bytes()) == plan


def test_transfers(run):
    plan, _ = run(lambda x, h: (to(x + to(h, "cuda"), "cpu") * 2, torch.relu(x) * 3), [X, torch.randn(70)], "ch")
    assert calls(plan) == ["aten._to_copy.default", "aten._to_copy.default", "aten.mul.Scalar"]


def test_indices_on_the_host(run):
    """Eager takes these for a tensor of a GPU."""
    index = torch.tensor([4, 0, 2])
    plan, _ = run(lambda x, i: aten.index.Tensor(x * 2, [i]) + 1, [X, index], "ch")
    assert calls(plan) == ["aten.index.Tensor"]


def test_writes_across_devices(run):
    """Results of kernels are not written into memory of the host."""

    def function(x, h, s):
        total, steps = to(x.sum(0), "cpu"), s + 1
        scaled = x * steps
        aten.copy_.default(h, total)  # AOTAutograd's copies into inputs are the graph's last nodes
        aten.copy_.default(s, steps)
        return scaled

    run(function, [X, torch.zeros(70), torch.tensor(2.0)], "chh")


def test_the_device_is_a_gpu_where_there_is_one():
    gm = traced(lambda x, h: (x * 2, h + 1, h * 3, h - 4), [X, Y], "ch")
    assert device_of(gm) == torch.device("cuda:0")
    kinds = {node.name: Placement(gm).is_call(node) for node in gm.graph.nodes if node.op == "call_function"}
    assert list(kinds.values()) == [False, True, True, True]
    assert not Placement(traced(torch.relu, [X], "c")).is_mixed
    assert not Placement(traced(torch.relu, [X], "h")).is_mixed


def test_numbers_are_tensors_without_dims_of_the_host():
    gm = traced(lambda x, h: (aten.index.Tensor(x, [h]), x), [X, torch.tensor([1])], "ch")
    (index,) = [node for node in gm.graph.nodes if node.target is aten.index.Tensor]
    assert Placement(gm).is_call(index) and not Placement(gm).numbers(index)
    assert node_value(index).device.type == "cuda"


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]
)
def test_the_number_is_exact(dtype):
    value = torch.tensor(3 if dtype is not torch.bool else True).to(dtype)
    value = value + 2**53 if dtype is torch.int64 else value / 7 if dtype.is_floating_point else value
    found = torch.ops.kiln.number_on(value, torch.device("cpu"))
    assert found.dtype is dtype and found.dim() == 0 and torch.equal(found, value)
    assert found.data_ptr() != value.data_ptr()


def test_no_recording_holds_a_number(run):
    """A CUDA graph would replay the number of the call that was recorded."""
    plan, _ = run(lambda x, s: x * s, [X, torch.tensor(0.3)], "ch")
    assert "another device" in _obstacle(plan)


def test_writes_at_indices_of_the_host(run):
    """The indices are operands of a call, not of a kernel of the GPU."""

    def write(x, at):
        return torch.index_put(x, (at,), to(HALF, "cuda"))

    plan, _ = run(write, [torch.randn(20, 6), torch.tensor([3, 0, 19])], "ch")
    read = {plan.buffers[p.buffer].index for step in plan.steps if isinstance(step, Launch) for p in step.pointers}
    assert 1 not in read
