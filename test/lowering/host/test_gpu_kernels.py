# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Plans for a GPU that is not there: what the host makes of kernels in Triton IR."""

import re

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import kiln.frontend.native as native
import kiln.lowering.host.gpu_kernels as gpu_kernels
from kiln.errors import UnsupportedError
from kiln.frontend.decompositions import decomposition_table
from kiln.frontend.import_.fx_types import ImportUnsupported
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport
from kiln.frontend.targets import choose_target
from kiln.lowering.gpu.compile import Artifacts
from kiln.lowering.gpu.target import GpuTarget
from kiln.runtime.plan import Launch, Plan

pytest.importorskip("triton")


def traced(function, *shapes, device="cuda"):
    """The graph of a function of tensors on a device that need not be there."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(shape, device=device) for shape in shapes]
        return make_fx(function, decomposition_table=decomposition_table(), tracing_mode="fake")(*inputs)


def plan_of(monkeypatch, function, *shapes) -> Plan:
    plans: list[Plan] = []

    def keep(plan, constants, options):
        plans.append(plan)
        return lambda inputs: []

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(native, "make_runner", keep)
    native.compile_native(traced(function, *shapes), Options(fallback=False), CompileReport("inference", 1))
    return plans[0]


def test_a_plan_holds_machine_code_for_the_gpu(monkeypatch):
    plan = plan_of(monkeypatch, lambda x, w: torch.relu(torch.softmax(x, -1) @ w), (64, 100), (100, 30))
    assert plan.device == "cuda:0"
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    kernels = [plan.kernels[launch.kernel] for launch in launches]
    assert [kernel.kind for kernel in kernels].count("library") == 1  # the product, between two kernels
    assert len(kernels) == 3
    for launch, kernel in zip(launches, kernels, strict=True):
        if kernel.kind == "library":
            continue
        assert plan.objects[kernel.object][:4] == b"\x7fELF"
        assert kernel.threads in (32, 64, 128, 256, 512, 1024)
        assert len(launch.grid) == 3 and all(isinstance(n, int) and n > 0 for n in launch.grid)
    assert Plan.from_bytes(plan.to_bytes()) == plan


def test_devices_that_there_is_no_target_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, 5))
    with pytest.raises(ImportUnsupported, match="7.5"):
        choose_target(traced(torch.relu, (4,)), Options())
    elsewhere = traced(torch.relu, (4,), device="cpu")
    for node in elsewhere.graph.nodes:
        node.meta["val"] = torch.empty(4, device="meta")  # a device that all builds of torch have
    with pytest.raises(ImportUnsupported, match="meta"):
        choose_target(elsewhere, Options())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 6))
    assert choose_target(traced(torch.relu, (4,)), Options()) == GpuTarget("cuda:0", "sm_86")
    with pytest.raises(ImportUnsupported, match="tt-cpu"):
        choose_target(traced(torch.relu, (4,)), Options(target="tt-cpu"))


def test_graphs_on_several_devices(monkeypatch):
    with FakeTensorMode(allow_non_fake_inputs=True):
        x, y = torch.empty(4, device="cuda"), torch.empty(4)
        graph = make_fx(lambda x, y: (x * 2, y * 2), tracing_mode="fake")(x, y)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    assert choose_target(graph, Options()) == GpuTarget("cuda:0", "sm_90")


def test_kernels_get_fewer_stages_until_they_fit(monkeypatch):
    asked = []

    def compile_ttir(text, arch, options):
        asked.append((int(re.findall(r"tt.num_stages = (\d+)", text)[0]), options["num_stages"]))
        shared = 70_000 * max(asked[-1])
        return Artifacts("", "", "", "", b"", {"shared": shared})

    monkeypatch.setattr(gpu_kernels, "compile_ttir", compile_ttir)
    made = gpu_kernels.compile_fitting("{tt.num_stages = 5 : i32}", "sm_90", {"num_stages": 4})
    assert asked == [(5, 4), (4, 4), (3, 3)]
    assert made.metadata["shared"] == 210_000
    monkeypatch.setattr(gpu_kernels, "compile_ttir", lambda *_: Artifacts("", "", "", "", b"", {"shared": 300_000}))
    with pytest.raises(UnsupportedError, match="300000 bytes of shared memory, and may have 232448"):
        gpu_kernels.compile_fitting("", "sm_90", {"num_stages": 2})
