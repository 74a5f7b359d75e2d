# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which OpenMP runtime and thread count to use, and how symbols of generated code are found.

Generated code shares the thread pool of PyTorch's own operators: it calls whatever OpenMP runtime ``libtorch_cpu`` was
linked with (libgomp in the wheels, possibly libomp or libiomp5 elsewhere; all of them export ``GOMP_parallel``). A
lookup through the handle of ``libtorch_cpu`` searches its dependencies in load order, so it finds that runtime, and
cblas, SLEEF and libm, without naming a file.
"""

import ctypes
import functools
import importlib.util
import os
from pathlib import Path

from kiln.errors import KilnError

__all__ = ["max_threads", "symbol_address", "torch_library"]


@functools.cache
def torch_library() -> ctypes.CDLL:
    """The loaded libtorch_cpu, without importing torch when it is not imported yet.

    Raises KilnError where torch is not installed or has no such library.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise KilnError("torch is not installed: kernels need its OpenMP runtime; pip install 'torch>=2.11,<2.16'")
    folder = Path(next(iter(spec.submodule_search_locations))) / "lib"
    found = sorted(folder.glob("libtorch_cpu.*")) or sorted(folder.glob("libtorch.*"))
    if not found:
        # Distribution packages keep the library on the loader's path instead.
        return ctypes.CDLL("libtorch_cpu.so")
    return ctypes.CDLL(str(found[0]))


@functools.cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@functools.cache
def symbol_address(name: str) -> int:
    """The address of a C symbol in torch's libraries, their dependencies or the process; 0 when there is none.

    Names that only some builds have (``cblas_sgemm`` needs MKL or another exported BLAS) are the caller's to test.
    """
    for library in (torch_library(), _process()):
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    return 0


def max_threads() -> int:
    """How many threads a kernel may use now: PyTorch's intra-op setting of the calling thread.

    One in a process forked off another: the pool's threads stay in the parent, and OpenMP would wait for them for ever.
    """
    import torch

    return 1 if _is_forked else torch.get_num_threads()


_is_forked = False


def _in_child() -> None:
    global _is_forked
    _is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
