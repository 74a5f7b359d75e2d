# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.runtime.plan import Launch
from kiln.runtime.profile import LaunchTimes, current_recording


def model(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    hidden = F.gelu(x @ w)
    return torch.softmax(torch.linalg.matrix_exp(hidden @ v), -1)


def test_every_launch_and_call_is_timed() -> None:
    torch.manual_seed(0)
    x, w, v = torch.randn(48, 32), torch.randn(32, 64), torch.randn(64, 48) / 64
    profile = kiln.profile(model, x, w, v, calls=3)
    kinds = [launch.kind for launch in profile.launches]
    assert "aten" in kinds and kinds.count("matmul") == 2
    assert all(len(launch.seconds) == 3 for launch in profile.launches)
    first = next(launch for launch in profile.launches if launch.kind == "matmul")
    assert first.results == ((48, 64),) and first.work == 48 * 64 * 32
    assert profile.kernels > 0 and profile.call > 0
    text = profile.to_text()
    assert f"{len(kinds)} launches" in text and "48x64" in text and "aten.linalg_matrix_exp" in text
    assert current_recording() is None


def test_the_roof() -> None:
    """Bytes and operations at the machine's rates: a kernel that is slower by a factor has that share of the roof."""
    from kiln.frontend.report.profile import Profile
    from kiln.frontend.report.roof import Roof
    from kiln.lowering.cpu.rates import generic
    from kiln.runtime.profile import LaunchTimes

    rates = generic()
    copied = LaunchTimes("copy", "pointwise", 2, ((1000, 25000),), 25_000_000, 200_000_000)
    assert Roof(rates, False).seconds(copied) == pytest.approx(1e-9 * 200_000_000 / rates.memory_rate / 2)
    product = LaunchTimes("mm", "matmul", 1, ((512, 512),), 512**3, 3 << 20)
    assert Roof(rates, False).seconds(product) == pytest.approx(1e-9 * 2 * 512**3 / rates.product_rate)
    copied.seconds = [0.1]
    assert "2.0" in Profile(0.2, 2, [copied]).to_text().split("\n")[4]


def test_events_of_a_gpu_are_the_launches_of_plans() -> None:
    """By the names of functions, in turn where launches share one; what is no kernel of a plan is a library's."""
    from kiln.frontend.report.device_times import device_launches
    from kiln.frontend.report.profile import Profile
    from kiln.frontend.report.roof import GpuRoof
    from kiln.lowering.gpu.dot.machine import machine
    from kiln.runtime.executor import Executor

    plans = []
    original = Executor.__init__

    def noting(self, plan, *args, **kwargs):
        plans.append(plan)
        original(self, plan, *args, **kwargs)

    w = torch.randn(64, 64)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(Executor, "__init__", noting)
        torch.compile(lambda x: torch.relu(x @ w), backend="kiln", options={"cache": False})(w)
    plans[0].steps *= 2
    (plan,) = plans
    (entry,) = {plan.kernels[step.kernel].entry for step in plan.steps}
    events = [(entry, 1e-6), ("cublas", 5e-6), (entry, 3e-6)] * 4
    first, second, other = device_launches(plans, events, 4)
    assert (
        (first.median, second.median) == (1e-6, 3e-6)
        and first.results == ((64, 64),)
        and first.moved == 2 * 64 * 64 * 4
    )
    assert other.name == "cublas" and other.kind == "library" and len(other.seconds) == 4
    library = [launch.median for launch in device_launches([], [("cublas", 1e-6), ("cublas", 3e-6)] * 4, 4)]
    assert library == [1e-6, 3e-6]
    (merged,) = device_launches(plans, [(entry, 1e-6)] * 7, 4)
    assert len(merged.seconds) == 7
    first.work, first.dtype = 10**9, "bfloat16"
    h200 = machine("sm_90")
    assert GpuRoof(h200, True).seconds(first) == pytest.approx(1e-9 * h200.peak_time(10**9))
    first.dtype = "float32"
    assert GpuRoof(h200, True).seconds(first) == pytest.approx(1e-9 * h200.peak_time(10**9) / h200.tf32_share)
    text = Profile(1e-4, 0, [first, second, other], "cuda", GpuRoof(h200, True)).to_text()
    assert "on NVIDIA H200" in text and "cublas" in text


def test_what_runs_between_kernels_of_a_gpu_is_the_step_between_them() -> None:
    from types import SimpleNamespace

    from kiln.frontend.report.device_times import called_steps
    from kiln.runtime.plan import Kernel

    kernels = [Kernel("mm", "", 0, "library", 0, 0), Kernel("exp", "exp_1", 1, "pointwise", 2, 0)]
    steps = [
        Launch(0, (), ()),
        Launch(1, (), ()),
        Launch(0, (), ()),
        Launch(0, (), ()),
        Launch(1, (), ()),
        Launch(0, (), ()),
    ]
    plan: Any = SimpleNamespace(steps=steps, kernels=kernels)
    one = [("gemm", 1e-6), ("splitK", 2e-6), ("exp_1", 1e-6), ("gemm", 7e-6), ("gemm", 7e-6), ("exp_1", 1e-6)]
    one += [("Memset (Device)", 5e-6), ("gemm", 4e-6)]
    found = called_steps([plan], one * 3, 3)
    assert [(x.name, len(x.seconds)) for x in found] == [("mm", 3), ("mm", 0), ("mm", 0), ("mm", 3)]
    assert found[0].median == pytest.approx(3e-6) and found[3].median == pytest.approx(4e-6)
    assert called_steps([plan], one * 3 + [("exp_1", 1e-6)], 3) == []  # calls differ


def test_a_library_s_products_have_a_roof() -> None:
    from types import SimpleNamespace

    from kiln.frontend.report.device_times import work_of
    from kiln.frontend.report.roof import GpuRoof
    from kiln.lowering.gpu.dot.machine import machine

    sizes: Any = SimpleNamespace(sizes=(2, 64, 32, 128))
    assert work_of(Launch(0, (), (), product=sizes)) == 2 * 64 * 32 * 128
    image: Any = SimpleNamespace(result=(2, 8, 5, 5), weight=(8, 4, 3, 3))
    assert work_of(Launch(0, (), (), convolution=image)) == 2 * 8 * 25 * 36
    assert work_of(Launch(0, (), (), product=SimpleNamespace(sizes=("s0", 4, 4, 4)))) == 0
    h200 = machine("sm_90")
    launch = LaunchTimes("mm", "library", work=10**9, dtype="bfloat16")
    assert GpuRoof(h200, True).seconds(launch) == pytest.approx(1e-9 * h200.peak_time(10**9))
    assert GpuRoof(h200, True, "NVIDIA H200 SXM").name == "NVIDIA H200"
    assert GpuRoof(h200, True, "NVIDIA H100 PCIe").name == "NVIDIA H100 PCIe, by the rates of NVIDIA H200"


def test_a_graph_that_another_thread_compiles_is_recorded() -> None:
    """As autograd does, in whose threads backward graphs of a GPU are compiled."""
    import threading

    from kiln.runtime.profile import recording

    def call() -> None:
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(lambda x: x.exp() + 1, backend="kiln", options={"cache": False})(torch.randn(64))

    with recording() as recorded:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert [launch.name.startswith("exp") for launch in recorded.launches] == [True]


def test_times_of_a_gpus_kernels_on_a_cpu_are_no_gpus() -> None:
    x, w, v = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8, 8)
    text = kiln.profile(model, x, w, v, calls=1, options={"target": "tt-cpu"}).to_text()
    assert "the times are no GPU's" in text
    assert "no GPU's" not in kiln.profile(model, x, w, v, calls=1).to_text()


def test_kernels_are_regions_of_pytorchs_profiler() -> None:
    """One for each launch of forward and backward, with the line of the model; none where no profiler runs."""
    torch.manual_seed(0)
    x, w, v = torch.randn(48, 32, requires_grad=True), torch.randn(32, 64), torch.randn(64, 48)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.gelu(x @ w) @ v)

    compiled = torch.compile(function, backend="kiln", options={"fallback": False, "cache": False})
    compiled(x).sum().backward()
    expected, x.grad = x.grad, None
    with torch.profiler.profile() as profiler:
        result = compiled(x)
        result.sum().backward()
    assert x.grad is not None and expected is not None
    torch.testing.assert_close(result, function(x))
    torch.testing.assert_close(x.grad, expected)
    names = [event.key for event in profiler.key_averages()]
    assert "kiln forward" in names and "kiln backward" in names
    assert any(name.startswith("mm_gelu (test_profile.py:") for name in names), names
    with torch.profiler.profile() as profiler:
        pass
    compiled(x)
    assert not [event for event in profiler.key_averages() if "kiln" in event.key or "mm_gelu" in event.key]


def test_what_is_timed_computes_the_same() -> None:
    """Launches that are called one by one, from a table each, give the results of the graph as a whole."""
    from kiln.runtime.profile import recording

    torch.manual_seed(0)
    x, w, v = torch.randn(48, 32), torch.randn(32, 64), torch.randn(64, 48) / 64
    with recording() as recorded:
        timed = torch.compile(model, backend="kiln", options={"fallback": False, "cache": False}, dynamic=True)
        for rows in (48, 5):
            found = timed(x[:rows], w, v[:, :rows])
            torch.testing.assert_close(found, model(x[:rows], w, v[:, :rows]))
    assert {launch.results[0] for launch in recorded.launches if launch.kind == "matmul"} >= {(48, 64), (5, 64)}
