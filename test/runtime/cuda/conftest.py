# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A GPU that is none: the driver's functions run each kernel's Triton IR on the CPU.

Everything else is what runs on a GPU: the pipeline, the plan with its launch tables, the launcher, the executor.
"""

import array
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch_mlir import ir

import kiln.frontend.native as native
import kiln.lowering.gpu.tune.library_trial as library_trial
import kiln.lowering.host.gpu_kernels as gpu_kernels
import kiln.runtime.cuda.executor as cuda_executor
import kiln.runtime.cuda.graphs as graphs
import kiln.runtime.executor as executor
from kiln.lowering.cpu.codegen import compile_kernel
from kiln.lowering.cpu.kernel_object import KernelObject
from kiln.lowering.gpu.compile import Artifacts
from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.ttcpu.lower import lower_kernel
from kiln.runtime.cuda.cublaslt import CublasLt
from kiln.runtime.cuda.cudnn import Cudnn
from kiln.runtime.cuda.driver import CudaError
from kiln.runtime.loader import load

sys.path.insert(0, os.path.dirname(__file__))
from blas_support import EmulatedLibrary
from dnn_support import EmulatedCudnn

_RECORDED_STREAM = 99
_U, _P = ctypes.c_uint, ctypes.c_void_p
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, _P, _U, _U, _U, _U, _U, _U, _U, _P, _P, _P)
_CLEAR = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_uint8, ctypes.c_size_t, _P)
_SET = ctypes.CFUNCTYPE(ctypes.c_int, _P)
_I = ctypes.c_int
_ENCODE = ctypes.CFUNCTYPE(_I, _P, _I, _U, ctypes.c_int64, _P, _P, _P, _P, _I, _I, _I, _I)


class EmulatedDriver:
    """Stands for `kiln.runtime.cuda.driver.Driver`; `launched` has the names of the kernels that ran."""

    def __init__(self) -> None:
        self.kernels: dict[str, tuple[KernelObject, bool]] = {}
        self.names: list[str] = []
        self.launched: list[str] = []
        self.descriptors: dict[str, list[int]] = {}  # ranks
        self.emitted = 0
        self.cleared = 0
        self.library = EmulatedLibrary()
        self.blas = CublasLt(self.library)
        self.dnn_library = EmulatedCudnn()
        self.dnn = Cudnn(self.dnn_library)
        self._loaded: dict[int, Any] = {}
        self._keep = {
            "cuLaunchKernel": _LAUNCH(self._launch),
            "cuMemsetD8Async": _CLEAR(self._clear),
            "cuCtxSetCurrent": _SET(lambda context: 0),
            "cuTensorMapEncodeTiled": _ENCODE(self._encode),
        }
        self.encoded: list[int] = []
        self.graphs: dict[int, list[Callable[[], int]]] = {}
        self.recorded = self.replayed = 0
        self.refuses_recordings = False
        self._later: list[Callable[[], int]] | None = None
        self.sample: Callable[[int], Sequence[int]] | None = None
        """Of the programs of a grid, by their number, those that run; None: all. Set before anything is compiled."""

    # -- compiling -------------------------------------------------------------------------------

    def to_ttir(self, function: Any) -> str:
        """Keeps the kernel's code for the CPU; its name is what goes to the compiler."""
        operation = function.operation
        name = ir.StringAttr(operation.attributes["sym_name"]).value
        self.emitted += 1
        code = compile_kernel(lower_kernel(operation, name, is_sampled=self.sample is not None), name)
        self.kernels[name] = code, "kiln.scratch_bytes" in operation.attributes
        if "kiln.descriptors" in operation.attributes:
            found = [ir.DictAttr(d) for d in ir.ArrayAttr(operation.attributes["kiln.descriptors"])]
            found.sort(key=lambda d: ir.IntegerAttr(d["arg"]).value)
            self.descriptors[name] = [len(ir.AffineMapAttr(d["shape"]).value.results) for d in found]
        return name

    def compile_ttir(self, text: str, target: str, options: dict[str, int]) -> Artifacts:
        assert target == "sm_90"
        metadata = {"name": text, "num_warps": options["num_warps"], "shared": 0, "global_scratch_size": 0}
        form = {"elem_type": 10, "elem_size": 2, "swizzle": 3}
        ranks = self.descriptors.get(text, [])
        metadata["tensordesc_meta"] = [{**form, "block_size": [1] * (rank - 2) + [64, 64]} for rank in ranks]
        return Artifacts("", "", "", "", text.encode(), metadata)

    # -- the driver ------------------------------------------------------------------------------

    def context(self, device: int) -> int:
        return 1

    def address(self, symbol: str) -> int:
        return ctypes.cast(self._keep[symbol], _P).value or 0

    def load(self, image: bytes, name: str, shared: int) -> int:
        self.names.append(image.decode())
        return 100 + len(self.names)

    def _encode(self, place, type_, rank, address, sizes, strides, block, ones, layout, swizzle, promotion, fill):
        """A descriptor's first word is what the emulation reads: the address."""
        assert place % 64 == 0 and address % 16 == 0 and 2 <= rank <= 5 and type_ == 9
        assert list((ctypes.c_uint32 * rank).from_address(ones)) == [1] * rank
        assert list((ctypes.c_uint32 * rank).from_address(block)) == [64, 64] + [1] * (rank - 2)
        assert not any(stride % 16 for stride in (ctypes.c_uint64 * (rank - 1)).from_address(strides))
        ctypes.c_int64.from_address(place).value = address
        self.encoded.append(address)
        return 0

    def check(self, code: int, what: str) -> None:
        raise AssertionError(what)

    def _launch(self, function, gx, gy, gz, bx, by, bz, shared, stream, params, extra) -> int:
        name = self.names[function - 101]
        code, has_scratch = self.kernels[name]
        given = code.pointers + code.symbols - (2 if self.sample else 0)
        count = given + has_scratch
        cells = (_P * (count + 2)).from_address(params)
        values = [ctypes.c_int64.from_address(cell).value for cell in cells]
        if self._later is not None:
            assert stream == _RECORDED_STREAM
            self._later.append(lambda: self._execute(function, gx * gy * gz, values, given))
            return 0
        return self._execute(function, gx * gy * gz, values, given)

    def _execute(self, function: int, programs: int, values: Sequence[int], given: int) -> int:
        name = self.names[function - 101]
        code = self.kernels[name][0]
        if function not in self._loaded:
            self._loaded[function] = load([code.object_bytes], [code.entry])
        scratch = torch.empty(1 << 24, dtype=torch.uint8)
        run = ctypes.CFUNCTYPE(None, _P)(self._loaded[function][code.entry])
        for part in [(p, p + 1) for p in self.sample(programs)] if self.sample else [()]:
            block = array.array("q", [*values[:given], *part, scratch.data_ptr(), 1 << 24, 0])
            run(block.buffer_info()[0])
        self.launched.append(name)
        return 0

    def _clear(self, address: int, value: int, size: int, stream: int) -> int:
        if self._later is not None:
            self._later.append(lambda: self._cleared(address, value, size))
            return 0
        return self._cleared(address, value, size)

    def _cleared(self, address: int, value: int, size: int) -> int:
        ctypes.memset(address, value, size)
        self.cleared += 1
        return 0

    # -- recordings ------------------------------------------------------------------------------

    def record(self, context: int, code: int, state: int) -> int:
        """What is launched is kept with its parameters as they are now, and not run."""
        if self.refuses_recordings:
            raise CudaError(900, "operation not permitted when stream is capturing")
        self._later = self.library.later = self.dnn_library.later = later = []
        try:
            assert ctypes.CFUNCTYPE(ctypes.c_int64, _P, _P)(code)(state, _RECORDED_STREAM) == 0
        finally:
            self._later = self.library.later = self.dnn_library.later = None
        self.recorded += 1
        self.graphs[self.recorded] = later
        return self.recorded

    def graph_functions(self) -> tuple[Callable[[int], int], Callable[[int, int], int], Callable[[int], Any]]:
        return lambda context: 0, self._replay, lambda graph: self.graphs.pop(graph)

    def _replay(self, graph: int, stream: int) -> int:
        assert stream == 77
        self.replayed += 1
        for launch in self.graphs[graph]:
            assert launch() == 0
        return 0


class RepeatingCapture:
    """Stands for CUDA graphs: a replay runs the work again, on the memory of the recording."""

    def __init__(self, device: int) -> None:
        pass

    def place(self) -> object:
        return 0

    def record(self, work: Any) -> tuple[Any, list[Any]]:
        outputs = work()

        def replay() -> None:
            for old, new in zip(outputs, work(), strict=True):
                if isinstance(old, torch.Tensor) and old is not new:
                    old.copy_(new)

        return replay, outputs


class _NoDevice(contextlib.nullcontext[None]):
    """In place of torch.cuda.device: a class as that is, since Dynamo asks where there is a GPU whether values are one."""

    def __init__(self, index: int) -> None:
        super().__init__()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedDriver]:
    """Graphs of CPU tensors are compiled for, and run on, the emulated GPU."""
    emulated = EmulatedDriver()
    monkeypatch.setenv("KILN_CACHE", "0")
    monkeypatch.setattr(native, "choose_target", lambda gm, options: GpuTarget("cpu:0", "sm_90"))
    monkeypatch.setattr(gpu_kernels, "to_ttir", emulated.to_ttir)
    monkeypatch.setattr(gpu_kernels, "compile_ttir", emulated.compile_ttir)
    monkeypatch.setattr(cuda_executor, "driver", lambda: emulated)
    monkeypatch.setattr(cuda_executor, "cublaslt", lambda: emulated.blas)
    monkeypatch.setattr(library_trial, "cublaslt", lambda: emulated.blas)
    monkeypatch.setattr(cuda_executor, "cudnn", lambda: emulated.dnn)
    monkeypatch.setattr(cuda_executor, "_allocator", lambda: _empty)
    monkeypatch.setattr(executor, "_check_input", lambda *arguments: None)
    monkeypatch.setattr(graphs, "CudaCapture", RepeatingCapture)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device", _NoDevice)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 77, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False, raising=False)
    torch._dynamo.reset()
    yield emulated
    torch._dynamo.reset()


def _empty(shape: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype)
