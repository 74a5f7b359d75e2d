# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a user sees when something about the GPU is missing, refused or full."""

import dataclasses
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.exc import BackendCompilerFailed

import kiln
import kiln.frontend.native as native
import kiln.lowering.gpu.compile as compile_module
import kiln.lowering.host.gpu_kernels as gpu_kernels
import kiln.runtime.cuda.driver as driver_module
import kiln.runtime.cuda.executor as cuda_executor
import kiln.runtime.executor as executor
from kiln.dialects.schedules import PartsSchedule
from kiln.dialects.schedules.gpu import (
    FlashSchedule,
    GemvSchedule,
    ImplicitConvSchedule,
    LoopsSchedule,
    NestSchedule,
    ScatterSchedule,
    TileSchedule,
    TmaConvSchedule,
    TmaSchedule,
)
from kiln.errors import CompileError, KilnError, UnsupportedError
from kiln.frontend.report import collect
from kiln.lowering.gpu.compile import compile_ttir, gpu_target, triton_problem
from kiln.lowering.gpu.smaller import smaller_schedule
from kiln.runtime.cuda.driver import CudaError, Driver
from kiln.runtime.executor import InputError

_CHECK_INPUT = executor._check_input  # the emulation leaves it out: its device is the CPU


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options={"fallback": False, **options})


def close(found, exact, tolerance=1e-5):
    return float((found.double() - exact).norm() / exact.norm().clamp(min=1e-30)) < tolerance


# -- compiling ---------------------------------------------------------------------------------------


def test_a_smaller_schedule_is_tried_and_reported(gpu, monkeypatch):
    def compile_ttir(text, target, options):
        made = gpu.compile_ttir(text, target, options)
        asked.append(text)
        made.metadata["shared"] = 1 << 20 if text == asked[0] else 0
        return made

    asked: list[str] = []
    monkeypatch.setattr(gpu_kernels, "compile_ttir", compile_ttir)
    x, w = torch.randn(100, 70), torch.randn(60, 70)
    with collect() as reports:
        found = compiled(lambda x, w: F.gelu(F.linear(x, w)))(x, w)
    assert close(found, F.gelu(F.linear(x.double(), w.double())))
    notes = [n.reason for n in reports[0].notes if n.reason.startswith("a smaller schedule: ")]
    assert notes and "shared memory, and may have 232448" in notes[0]
    assert not reports[0].aten_calls


def test_more_warps_are_tried_where_triton_fails_with_one(gpu, monkeypatch):
    def compile_ttir(text, target, options):
        warps.append(options["num_warps"])
        if options["num_warps"] == 1:
            raise CompileError("PassManager::run failed")
        return gpu.compile_ttir(text, target, options)

    warps: list[int] = []
    monkeypatch.setattr(gpu_kernels, "compile_ttir", compile_ttir)
    x = torch.randn(49, 33)
    with collect() as reports:
        found = compiled(lambda x: F.rms_norm(torch.sigmoid(x), (33,)))(x)
    assert close(found, F.rms_norm(torch.sigmoid(x.double()), (33,)))
    assert warps == [1, 2] and not reports[0].aten_calls


def test_a_kernel_that_never_compiles_is_left_to_aten_with_the_reason(gpu, monkeypatch):
    def compile_ttir(text, target, options):
        if "softmax" in text:
            raise CompileError("no luck with this one")
        return gpu.compile_ttir(text, target, options)

    monkeypatch.setattr(gpu_kernels, "compile_ttir", compile_ttir)
    x = torch.randn(30, 20)
    with collect() as reports, pytest.warns(RuntimeWarning, match="because of a defect.*no luck with this one"):
        found = compiled(lambda x: torch.softmax(x, -1).cumsum(0) * 2, fallback=True)(x)
    assert close(found, torch.softmax(x.double(), -1).cumsum(0) * 2)
    calls = {call.op: call.reason for call in reports[0].aten_calls}
    print(calls)
    assert any("softmax" in op and "no luck" in reason for op, reason in calls.items()), (calls, reports[0].kernels)
    assert reports[0].executor == "kiln" and reports[0].kernels


def test_without_fallback_the_error_has_triton_s_reason_and_the_line(gpu, monkeypatch):
    def compile_ttir(text, target, options):
        raise CompileError("no luck with this one")

    monkeypatch.setattr(gpu_kernels, "compile_ttir", compile_ttir)
    with pytest.raises(BackendCompilerFailed, match=r"test_failures.py:\d+(?s:.*)no luck with this one"):
        compiled(lambda x: torch.relu(x) + 1)(torch.randn(8))


def test_schedules_get_smaller_until_there_is_none():
    product = TmaSchedule(persistent=True, programs=132, block_m=128, block_n=256, block_k=64, group_m=8, num_warps=8,
                          num_stages=4, epilogue_pieces=2)  # fmt: skip
    conv = TmaConvSchedule(**dataclasses.asdict(product))
    gemv = GemvSchedule(transposed=False, block_n=2, block_k=1024, num_warps=4, num_stages=3)
    attention = FlashSchedule(block_m=64, block_n=128, num_warps=4, num_stages=2, tma=True)
    rows = NestSchedule(tile=(4,), row=4096, persistent=True, num_warps=8)
    transposed = NestSchedule(tile=(64, 64), num_warps=8)
    for schedule in (
        product,
        conv,
        gemv,
        attention,
        LoopsSchedule(nests=(rows, transposed)),
        PartsSchedule(parts=(product, None, LoopsSchedule(nests=(rows,)))),
    ):
        seen = [schedule]
        while (following := smaller_schedule(seen[-1])) is not None:
            assert following not in seen
            seen.append(following)
            assert len(seen) < 40
        assert len(seen) > 3
    assert type(smaller_schedule(product)) is TileSchedule and smaller_schedule(product).num_stages == 2
    assert type(smaller_schedule(conv)) is ImplicitConvSchedule
    assert not smaller_schedule(attention).tma
    assert smaller_schedule(ScatterSchedule(block=128, num_warps=1)) is None


def test_chips_that_triton_cannot_compile_for():
    pytest.importorskip("triton")
    with pytest.raises(UnsupportedError, match="sm_80 or later, found sm_30"):
        compile_ttir("module {}", "sm_30")
    for name in ("gfx", "gfx1", "sm_", "h100"):
        with pytest.raises(ValueError, match="expected sm_NN or gfxNNN"):
            gpu_target(name)
    text = '"builtin.module"() ({ "tt.func"() ({ "tt.return"() : () -> () }) {sym_name = "k", function_type = () -> ()} : () -> () }) : () -> ()'
    with pytest.raises(CompileError, match="Triton cannot compile for gfx999"):
        compile_ttir(text, "gfx999")


def test_no_triton_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    assert triton_problem() == "Triton is not installed; kernels for GPUs need Triton 3.6 or later"
    with pytest.raises(CompileError, match="Triton is not installed"):
        compile_ttir("module {}", "sm_90")


def test_a_triton_that_cannot_be_imported(monkeypatch):
    def broken():
        raise ImportError("libtriton.so: undefined symbol")

    monkeypatch.setattr(compile_module, "_version", broken)
    assert "Triton cannot be imported (libtriton.so: undefined symbol)" in triton_problem()


@pytest.mark.parametrize("version, good", [("3.5.1", False), ("2.1.0", False), ("3.6.0", True), ("3.10.0+git", True)])
def test_versions_of_triton(monkeypatch, version, good):
    module = types.ModuleType("triton")
    module.__version__ = version
    module.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "triton", module)
    problem = triton_problem()
    assert (problem is None) if good else f"Triton {version} is too old" in problem


# -- loading -----------------------------------------------------------------------------------------


def test_no_driver_is_a_clear_error_and_the_graph_runs_with_aten(gpu, monkeypatch):
    def missing():
        return Driver("libcuda-that-is-not-there.so.1")

    monkeypatch.setattr(cuda_executor, "driver", missing)
    x = torch.randn(9)
    with pytest.raises(BackendCompilerFailed, match="no CUDA driver: .*needs NVIDIA's driver"):
        compiled(lambda x: torch.relu(x) + 1)(x)
    with pytest.warns(RuntimeWarning, match="runs with ATen: CudaError: no CUDA driver"):
        assert close(compiled(lambda x: torch.relu(x) + 1, fallback=True)(x), torch.relu(x.double()) + 1)


def test_code_that_the_driver_refuses(gpu, monkeypatch):
    def load(image, name, shared):
        raise CudaError(209, f"loading the code of {name}: no kernel image is available (CUDA error 209)")

    monkeypatch.setattr(gpu, "load", load)
    x = torch.randn(9)
    with pytest.raises(BackendCompilerFailed, match=r"loading the code of relu_add\w*: no kernel image .*209"):
        compiled(lambda x: torch.relu(x) + 1)(x)
    with pytest.warns(RuntimeWarning, match="no kernel image is available"):
        assert close(compiled(lambda x: torch.relu(x) + 1, fallback=True)(x), torch.relu(x.double()) + 1)


# -- running -----------------------------------------------------------------------------------------


class Library:
    """Stands for libcuda where an error's text is asked for."""

    texts = {2: b"out of memory", 700: b"an illegal memory access was encountered"}

    def cuGetErrorString(self, code, at):  # noqa: N802 - the driver's name
        at._obj.value = self.texts[code]
        return 0


def failing(gpu, monkeypatch, code):
    """Launches that fail with an error of the driver."""
    real = object.__new__(Driver)
    real.library = Library()
    monkeypatch.setattr(gpu, "check", real.check)
    gpu._keep["cuLaunchKernel"] = type(gpu._keep["cuLaunchKernel"])(lambda *arguments: code)


def test_a_launch_that_fails_names_kernel_and_line(gpu, monkeypatch):
    run = compiled(lambda x: torch.softmax(x, -1))
    failing(gpu, monkeypatch, 700)
    with pytest.raises(
        CudaError, match=r"kernel softmax \(.*test_failures.py:\d+:\d+\).*illegal memory access.*CUDA_LAUNCH_BLOCKING"
    ) as caught:
        run(torch.randn(6, 5))
    assert caught.value.code == 700 and isinstance(caught.value, KilnError)


def test_a_launch_out_of_memory_is_pytorch_s_error(gpu, monkeypatch):
    run = compiled(lambda x: torch.softmax(x, -1))
    failing(gpu, monkeypatch, 2)
    with pytest.raises(torch.OutOfMemoryError, match="kernel softmax.*out of memory"):
        run(torch.randn(6, 5))


@pytest.mark.parametrize("what", ["output", "workspace"])
def test_no_memory_is_pytorch_s_error_and_the_next_call_works(gpu, monkeypatch, what):
    full = [False]

    def empty(shape, strides, dtype):
        if full[0] and (dtype == torch.uint8) == (what == "workspace"):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return torch.empty_strided(shape, strides, dtype=dtype)

    monkeypatch.setattr(cuda_executor, "_allocator", lambda: empty)

    def function(x):
        return torch.softmax(x, -1).sum(0) if what == "workspace" else torch.softmax(x, -1)

    run = compiled(function)
    x = torch.randn(40, 50)
    exact = function(x.double())
    assert close(run(x), exact)
    full[0] = True
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        run(x)
    full[0] = False
    assert close(run(x), exact)


def test_an_input_on_another_device_is_refused_before_anything_runs(gpu, monkeypatch):
    plans = []
    make = native.make_runner

    def keep(plan, constants, options):
        plans.append(dataclasses.replace(plan, device="meta"))
        return make(plan, constants, options)

    monkeypatch.setattr(native, "make_runner", keep)
    x = torch.randn(6, 5)
    compiled(lambda x: torch.softmax(x, -1))(x)
    monkeypatch.setattr(executor, "_check_input", _CHECK_INPUT)
    run = cuda_executor.CudaExecutor(plans[0]).run
    gpu.launched.clear()
    with pytest.raises(InputError, match="argument 0: expected a tensor on meta, found one on cpu"):
        run([x])
    assert not gpu.launched


def test_the_driver_s_error_texts():
    real = object.__new__(Driver)
    real.library = Library()
    with pytest.raises(CudaError, match=r"cuLaunchKernel: an illegal memory access was encountered \(CUDA error 700\)"):
        real.check(700, "cuLaunchKernel")
    with pytest.raises(torch.OutOfMemoryError):
        real.check(2, "x")
    real.check(0, "x")
    assert driver_module.driver is not None
