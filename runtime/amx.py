# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Leave to use the tile registers of Intel's AMX, which Linux gives to a process that asks.

Their 8 KiB have to be saved with a thread, and a process that never uses them shall not pay. Without leave the first
instruction ends the process. Source: Documentation/arch/x86/xstate.rst of the Linux kernel.
"""

import ctypes
import functools
import platform

__all__ = ["tiles_permitted"]

_SYS_ARCH_PRCTL = 158
_ARCH_GET_XCOMP_PERM, _ARCH_REQ_XCOMP_PERM = 0x1022, 0x1023
_XTILEDATA = 18


@functools.cache
def tiles_permitted() -> bool:
    """Whether this process may use tile registers; asks for it at the first call.

    What is given holds for all threads, and for forked processes. False on other systems, on kernels before 5.16, on
    processors without AMX, and where it is refused.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p)
    if call(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA) != 0:
        return False
    given = ctypes.c_uint64(0)
    told = call(_SYS_ARCH_PRCTL, _ARCH_GET_XCOMP_PERM, ctypes.addressof(given))
    return told == 0 and bool(given.value >> _XTILEDATA & 1)
