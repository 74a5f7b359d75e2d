# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The CUDA driver API, through ctypes: modules, functions, the addresses of its entry points.

Sources: CUDA Driver API reference, sections Module, Execution. Nothing is compiled or linked
against CUDA; the library comes with the GPU's driver.
"""

import ctypes
import functools

import torch

from kiln.errors import KilnError

__all__ = ["CudaError", "Driver", "driver"]

_OUT_OF_MEMORY = 2
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEFAULT_SHARED = 48 * 1024


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


@functools.cache
def driver() -> Driver:
    """The process's driver.

    Raises CudaError when there is none.
    """
    return Driver()
