# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The CUDA driver API, through ctypes: modules, functions, the addresses of its entry points, recorded launches.

Sources: CUDA Driver API reference, sections Module, Execution, Stream, Graph. Nothing is compiled or linked
against CUDA; the library comes with the GPU's driver.
"""

import array
import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kiln.errors import KilnError

__all__ = ["CudaError", "Driver", "driver"]

_OUT_OF_MEMORY = 2
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEFAULT_SHARED = 48 * 1024
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: PyTorch's default stream does not wait for it
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: what other threads and libraries do meanwhile is not refused
_CALL, _PARAMETERS = 2, 16  # of tables (lowering/host/cuda_launcher.py)
_INVALIDATED = 901  # CUDA_ERROR_STREAM_CAPTURE_INVALIDATED


class CudaError(KilnError):
    """The CUDA driver refused a call; `code` is its error number."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class Driver:
    """The driver's library.

    Raises CudaError when there is none (no GPU, or no driver for it).
    """

    def __init__(self, name: str = "libcuda.so.1") -> None:
        try:
            self.library = ctypes.CDLL(name)
        except OSError as error:
            raise CudaError(-1, f"no CUDA driver: {error}; running on a GPU needs NVIDIA's driver") from error
        self._recording = threading.Lock()
        self._streams: dict[int, int] = {}
        self.check(self.library.cuInit(0), "cuInit")

    def address(self, symbol: str) -> int:
        """The address of one of the driver's functions."""
        return ctypes.cast(getattr(self.library, symbol), ctypes.c_void_p).value or 0

    def check(self, code: int, what: str) -> None:
        """Raises for an error code: PyTorch's OutOfMemoryError where that is what it says, else CudaError."""
        if code == 0:
            return
        text = ctypes.c_char_p()
        self.library.cuGetErrorString(code, ctypes.byref(text))
        message = f"{what}: {(text.value or b'unknown error').decode()} (CUDA error {code})"
        if code == _OUT_OF_MEMORY:
            raise torch.cuda.OutOfMemoryError(message)
        raise CudaError(code, message)

    def context(self, device: int) -> int:
        """The primary context of a device (PyTorch's), made current on this thread."""
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        self.check(self.library.cuDeviceGet(ctypes.byref(handle), device), f"cuDeviceGet({device})")
        retain = self.library.cuDevicePrimaryCtxRetain
        self.check(retain(ctypes.byref(context), handle), f"the context of GPU {device}")
        self.check(self.library.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        return context.value or 0

    def load(self, image: bytes, name: str, shared: int) -> int:
        """The function `name` of a cubin, in the current context, allowed `shared` bytes of dynamic shared memory.

        Modules stay loaded until the process ends: code may be in flight for as long.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.library.cuModuleLoadData(ctypes.byref(module), image), f"loading the code of {name}")
        get = self.library.cuModuleGetFunction
        self.check(get(ctypes.byref(function), module, name.encode()), f"finding {name} in its module")
        if shared > _DEFAULT_SHARED:
            raise_limit = self.library.cuFuncSetAttribute
            what = f"{name} with {shared} bytes of shared memory"
            self.check(raise_limit(function, _MAX_DYNAMIC_SHARED, shared), what)
        return function.value or 0

    def record(self, context: int, code: int, state: int) -> int:
        """An executable graph of what `kiln_run_cuda`, at the address `code`, launches for a state; nothing of it runs.

        Recording is one native call that keeps Python's interpreter lock: no thread may wait for the whole GPU
        meanwhile (CUDA Programming Guide, prohibited operations of stream capture). Raises CudaError where something
        cannot be recorded.
        """
        library, what = self.library, "recording launches"
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        with self._recording:
            self.check(library.cuCtxSetCurrent(ctypes.c_void_p(context)), what)
            stream = self._stream(context)
            calls = [
                (self.address("cuStreamBeginCapture_v2"), (stream, _RELAXED)),
                (code, (state, stream)),
                (self.address("cuStreamEndCapture"), (stream, ctypes.addressof(graph))),
            ]
            try:
                status = self._called(code, calls, context)
                number, failed = status >> 32, status & 0xFFFFFFFF
                if status and number == 1:
                    library.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
                    failed = _INVALIDATED
                self.check(failed, what)
                instantiate = library.cuGraphInstantiateWithFlags
                self.check(instantiate(ctypes.byref(made), graph, ctypes.c_ulonglong(0)), what)
            finally:
                if graph:
                    library.cuGraphDestroy(graph)
        return made.value or 0

    def _called(self, code: int, calls: Sequence[tuple[int, Sequence[int]]], context: int) -> int:
        """Has `kiln_run_cuda` call functions of the host, one after the other; returns its result."""
        words = [_PARAMETERS, 0, 0, self.address("cuCtxSetCurrent"), context, 0]
        for function, values in calls:
            words += (_CALL, 4 + 2 * len(values), function, len(values), *(w for v in values for w in (0, v)))
        table = array.array("q", [*words, 0])
        state = array.array("q", [0, table.buffer_info()[0]])
        run = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(code)
        return run(state.buffer_info()[0], 0)

    def _stream(self, context: int) -> int:
        """The stream of the current context that recordings are made in. It stays: cuDNN remembers its last stream."""
        if context not in self._streams:
            stream = ctypes.c_void_p()
            self.check(self.library.cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING), "a stream for recordings")
            self._streams[context] = stream.value or 0
        return self._streams[context]

    def graph_functions(self) -> tuple[Callable[[int], int], Callable[[int, int], int], Callable[[int], Any]]:
        """cuCtxSetCurrent(context), cuGraphLaunch(graph, stream), cuGraphExecDestroy(graph), for quick calls."""
        one = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        two = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        set_context, launch = one(self.address("cuCtxSetCurrent")), two(self.address("cuGraphLaunch"))
        return set_context, launch, one(self.address("cuGraphExecDestroy"))


@functools.cache
def driver() -> Driver:
    """The process's driver.

    Raises CudaError when there is none.
    """
    return Driver()
