# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels that cannot be emitted are calls: their numbers, memory and sizes are eager's, and the report says why."""

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import kiln
from kiln.errors import UnsupportedError
from kiln.frontend.report import collect
from kiln.runtime.executor import Executor
from kiln.runtime.plan import Plan

TARGETS = ("cpu", "tt-cpu")


@pytest.fixture
def plant(monkeypatch):
    """``plant(error, *names)``: the emitters raise it for fusions whose names have one of these in them."""

    def planted(error, *names):
        for emitter in ("cpu", "gpu"):
            module = __import__(f"kiln.lowering.{emitter}.emit", fromlist=["emit_kernel"])

            def emit(fusion, name, *rest, real=module.emit_kernel):
                if any(part in name for part in names or ("",)):
                    raise error(fusion)
                return real(fusion, name, *rest)

            monkeypatch.setattr(module, "emit_kernel", emit)

    return planted


def limit(fusion):
    """A known limit of an emitter."""
    return UnsupportedError("kiln.fusion", fusion.location, "planted")


def compiled(function, target, dynamic=None, **options):
    torch._dynamo.reset()
    options = {"fallback": False, "target": target, **options}
    return torch.compile(function, backend=kiln.backend, dynamic=dynamic, options=options)


def same(found, expected):
    torch.testing.assert_close(found, expected)
    assert [t.stride() for t in found] == [t.stride() for t in expected]


def model(x, y, total):
    """Products, reductions, a scan, an update of an argument, and results that are not row by row."""
    a = torch.softmax(x @ y, -1).relu()
    total.add_(a.sum(0))
    return a.t(), torch.cumsum(a + 1, 0)[:, ::2], a.argmax(-1) > 2, torch.ones(x.shape[0]) + a[0, 0]


@pytest.mark.parametrize("names", [(), ("mm",), ("softmax",), ("sum",)], ids=["all", "mm", "softmax", "sum"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("target", TARGETS)
def test_results_are_eager_s(plant, target, dynamic, names):
    plant(limit, *names)
    run = compiled(model, target, dynamic)
    for rows in (5, 6, 1):
        x, y, total = torch.randn(rows, 7), torch.randn(7, 9), torch.randn(9)
        expected_total = total.clone()
        expected = model(x, y, expected_total)
        same(run(x, y, total), expected)
        torch.testing.assert_close(total, expected_total)


@pytest.mark.parametrize("target", TARGETS)
def test_an_index_out_of_range_is_reported(plant, target):
    plant(limit)
    table, rows = torch.randn(5, 3), torch.tensor([0, 4, 1])
    run = compiled(lambda table, rows: table[rows] * 2, target)
    torch.testing.assert_close(run(table, rows), table[rows] * 2)
    with pytest.raises(IndexError):
        run(table, rows + 1)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("target", TARGETS)
def test_types(plant, target, dtype):
    plant(limit)
    x = (torch.rand(4, 6) * 300).to(dtype)

    def double(x):
        return (x + x).t()

    same([compiled(double, target)(x)], [double(x)])


@pytest.mark.parametrize("target", TARGETS)
def test_gradients(plant, target):
    plant(limit)
    layers = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.LayerNorm(5), torch.nn.GELU())
    x = torch.randn(4, 6)
    layers(x).square().sum().backward()
    expected = [p.grad.clone() for p in layers.parameters()]
    layers.zero_grad()
    compiled(layers, target)(x).square().sum().backward()
    torch.testing.assert_close([p.grad for p in layers.parameters()], expected)


@pytest.mark.parametrize("target", TARGETS)
def test_the_report_names_op_line_and_reason(plant, target):
    plant(limit, "softmax")
    with collect() as reports:
        compiled(lambda x: torch.softmax(torch.cumsum(x, 0), -1), target)(torch.randn(5, 7))
    (report,) = reports
    (call,) = report.aten_calls
    assert "softmax" in call.op and "planted" in call.reason and "test_unsupported_kernels.py:" in call.reason
    ways = {d.op: (d.way, d.reason) for d in report.decisions}
    assert ways["torch.aten._softmax"] == ("aten", "no kernel: planted")
    assert ways["torch.aten.cumsum"][0] == "kiln" and len(report.kernels) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_a_defect_warns_or_is_an_error(plant, target):
    plant(lambda fusion: KeyError("planted"), "softmax")
    x = torch.randn(5, 7)
    with pytest.warns(RuntimeWarning, match=r"because of a defect: .*test_unsupported_kernels.py.*KeyError: 'planted'"):
        found = compiled(lambda x: torch.softmax(x, -1), target, fallback=True)(x)
    torch.testing.assert_close(found, torch.softmax(x, -1))
    with pytest.raises(BackendCompilerFailed, match=r"'emit-kernels' failed: KeyError: 'planted'(?s:.*)to reproduce:"):
        compiled(lambda x: torch.softmax(x, -1), target)(x)


def test_what_llvm_refuses_is_called(monkeypatch):
    from kiln.errors import CompileError
    from kiln.lowering.cpu import kernel_object

    real = kernel_object.PendingKernel.finish

    def finish(self, number, kind):
        if "softmax" in self.kernel.name:
            raise CompileError("no luck with this one")
        return real(self, number, kind)

    monkeypatch.setattr(kernel_object.PendingKernel, "finish", finish)
    x = torch.randn(5, 7)
    with pytest.warns(RuntimeWarning, match="no luck with this one"):
        found = compiled(lambda x: torch.softmax(x, -1).cumsum(0), "cpu", fallback=True)(x)
    torch.testing.assert_close(found, torch.softmax(x, -1).cumsum(0))


def test_a_stored_plan_calls_too(plant, monkeypatch):
    plans = []
    real = Executor.__init__

    def keep(self, plan, *rest, **more):
        plans.append(Plan.from_bytes(plan.to_bytes()))
        real(self, plan, *rest, **more)

    monkeypatch.setattr(Executor, "__init__", keep)
    plant(limit)
    x = torch.randn(5, 7)
    compiled(torch.exp, "cpu")(x)
    monkeypatch.undo()
    torch.testing.assert_close(Executor(plans[0])([x])[0], torch.exp(x))
