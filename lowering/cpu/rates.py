# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How fast one core of a CPU is: a file of `lowering/cpu/machines`, or one that `kiln-tune --machine` has written.

Fusion's cost model reads these rates. Without a file of the user's they are those of `core.toml`, round numbers for a
core of a server processor, on every machine: so decisions, and what is kept of them, do not depend on where they are
made.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kiln.errors import KilnError
from kiln.lowering.machine_files import is_of_gpu, read_machine_file, user_file

__all__ = ["CpuRates", "generic", "known", "measured", "read_rates"]

_FOLDER = Path(__file__).resolve().parent / "machines"


@dataclass(frozen=True)
class CpuRates:
    """One core. name: the processor's product name. arch: LLVM's name of it ("znver5").

    launch_time: nanoseconds until the threads of a kernel are at work, and waited for behind it. cache_bytes: up to
    where what a kernel writes is still in a core's cache for the next one. Bytes a nanosecond: l1_rate, l2_rate,
    l3_rate, what is read from the caches; cache_rate, memory_rate, what is read and written by kernels whose tensors
    lie in the second-level cache and in memory. A nanosecond: vector_rate, operations on f32 by vectors; product_rate,
    bf16_rate, int8_rate, operations of products (two for each multiply-add) with f32, bf16 and 8-bit operands. 0: not
    known.
    """

    name: str
    arch: str
    launch_time: float
    cache_bytes: int
    cache_rate: float
    memory_rate: float
    vector_rate: float
    product_rate: float
    l1_rate: float
    l2_rate: float
    l3_rate: float
    bf16_rate: float
    int8_rate: float


_NEEDED = ("launch_time", "cache_bytes", "cache_rate", "memory_rate", "vector_rate", "product_rate")
"""What the cost model divides by, or compares with."""


def read_rates(path: Path) -> CpuRates:
    """The rates of a file. Raises KilnError, naming the field, for one that is wrong or, if decisions need it, 0."""
    if is_of_gpu(path):
        raise KilnError(f"{path}: a CPU's file expected, found that of a GPU")
    found = read_machine_file(path, CpuRates)
    for name in _NEEDED:
        if not getattr(found, name):
            raise KilnError(f"{path}: {name} must be more than 0")
    return found


@cache
def generic() -> CpuRates:
    """Round numbers for a core of a server processor."""
    return read_rates(_FOLDER / "core.toml")


@cache
def measured() -> CpuRates:
    """Those of the user's file, or the generic ones."""
    path = user_file("cpu")
    return generic() if path is None else read_rates(path)


@cache
def known() -> tuple[CpuRates, ...]:
    """Those of all files that Kiln has: examples of what machines have been measured to do."""
    return tuple(read_rates(path) for path in sorted(_FOLDER.glob("*.toml")))
