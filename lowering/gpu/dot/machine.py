# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What schedules of products need to know about a GPU."""

import re
from dataclasses import dataclass

from kiln.errors import KilnError


@dataclass(frozen=True)
class Machine:
    """sms: multiprocessors. shared_bytes: shared memory that one program may have. tensor_maps: whether blocks can
    be loaded through descriptors (TMA). fma_rate: multiply-adds a nanosecond that one multiprocessor does on its
    tensor cores with 16-bit operands. load_rate: bytes a nanosecond that it loads from the second-level cache. float8:
    whether it has conversions of float8_e4m3fn."""

    sms: int
    shared_bytes: int
    tensor_maps: bool
    fma_rate: float
    load_rate: float
    float8: bool = True


# Shared memory: CUDA programming guide, table of compute capabilities. Rates: measured on an H200 (cuBLAS at 8192
# cubed; the second-level cache under 128 programs that each load 64 + 64 rows), else in proportion to the vendors'
# figures.
_MACHINES = {
    "sm_80": Machine(sms=108, shared_bytes=166912, tensor_maps=False, fma_rate=1440, load_rate=55, float8=False),
    "sm_89": Machine(sms=128, shared_bytes=101376, tensor_maps=False, fma_rate=1290, load_rate=45),
    "sm_90": Machine(sms=132, shared_bytes=232448, tensor_maps=True, fma_rate=3030, load_rate=90),
    "sm_100": Machine(sms=148, shared_bytes=232448, tensor_maps=True, fma_rate=6000, load_rate=110),
    "gfx942": Machine(sms=304, shared_bytes=65536, tensor_maps=False, fma_rate=1070, load_rate=40, float8=False),
}
DEFAULT_ARCH = "sm_90"


def machine(arch: str = DEFAULT_ARCH) -> Machine:
    """The facts of an architecture ("sm_90", "gfx942"); of the nearest older one of its maker if it is not known.

    Raises KilnError for what names no architecture.
    """
    if arch in _MACHINES:
        return _MACHINES[arch]
    if re.fullmatch(r"gfx[0-9a-f]+", arch):
        return _MACHINES["gfx942"]
    found = re.fullmatch(r"sm_([0-9]+)[af]?", arch)
    if found is None:
        raise KilnError(f"unknown GPU architecture {arch!r}: expected one like 'sm_90' or 'gfx942'")
    older = [a for a in _MACHINES if a.startswith("sm_") and int(a[3:]) <= int(found[1])]
    return _MACHINES[max(older, key=lambda a: int(a[3:]))] if older else _MACHINES["sm_80"]
