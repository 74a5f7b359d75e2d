# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which ptxas assembles Kiln's kernels: the newest one that Triton's wheel brings.

Triton 3.6 has ptxas 12.8.93 for GPUs before Blackwell, and 12.9.86 beside it for Blackwell. 12.8 makes wrong code of a
kernel in which `wgmma` reads one buffer of shared memory in two layouts, one after the other, as that of two products
whose weights lie in rows and in columns: it takes the second descriptor's address from a register that holds something
else, and the kernel multiplies what lies anywhere, or ends with an illegal access. 12.9 and 13.0 do not. Triton 3.9
assembles for Hopper with the newer one itself.

``TRITON_PTXAS_PATH`` is respected.
"""

import contextlib
import functools
import importlib
import logging
import os
import threading
from collections.abc import Generator
from typing import Any

__all__ = ["assembler_version", "newest_assembler"]

log = logging.getLogger("kiln")

_SOUND = 12, 9
"""The first release that makes right code of all that is known."""

_MARK = "is_of_kiln"
_scope = threading.local()
_patching = threading.Lock()


def assembler_version(arch: int) -> tuple[int, int]:
    """Release of the ptxas that assembles for compute capability `arch` (90: 9.0) within `newest_assembler`."""
    with newest_assembler():
        return _release(_compiler().get_ptxas(arch))


@contextlib.contextmanager
def newest_assembler() -> Generator[None]:
    """What this thread has Triton assemble, the newest ptxas of Triton's assembles; other threads' work is not touched.

    Triton's caches do not know which one it was: put `assembler_version` into a kernel's text.
    """
    _patch()
    outer = getattr(_scope, "is_entered", False)
    _scope.is_entered = True
    try:
        yield
    finally:
        _scope.is_entered = outer


def _compiler() -> Any:
    return importlib.import_module("triton.backends.nvidia.compiler")


def _patch() -> None:
    """Puts a function that looks at the thread in the place of Triton's choice, once."""
    compiler = _compiler()
    with _patching:
        chosen = compiler.get_ptxas
        if hasattr(chosen, _MARK):
            return

        @functools.wraps(chosen)
        def get_ptxas(arch: int) -> Any:
            tool = chosen(arch)
            return _newest(tool) if getattr(_scope, "is_entered", False) else tool

        setattr(get_ptxas, _MARK, True)
        compiler.get_ptxas = get_ptxas


def _newest(tool: Any) -> Any:
    import triton

    if os.environ.get("TRITON_PTXAS_PATH"):
        _warn_of(tool.version)
        return tool
    return max(tool, triton.knobs.nvidia.ptxas_blackwell, key=_release)


@functools.cache
def _warn_of(version: str) -> None:
    if tuple(map(int, version.split("."))) < _SOUND:
        sound = ".".join(map(str, _SOUND))
        log.warning("TRITON_PTXAS_PATH is ptxas %s, which makes wrong code of some kernels: take %s", version, sound)


def _release(tool: Any) -> tuple[int, int]:
    major, minor = tool.version.split(".")
    return int(major), int(minor)
