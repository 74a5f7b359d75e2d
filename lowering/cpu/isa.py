# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the host CPU has: vector width, registers, caches."""

from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm


@dataclass(frozen=True)
class Isa:
    """vector_bytes: width of a vector register; vector_registers: how many of them."""

    name: str
    vector_bytes: int
    vector_registers: int


@cache
def host() -> Isa:
    """The machine this process runs on."""
    features = llvm.get_host_cpu_features()
    name = llvm.get_host_cpu_name()
    if features.get("avx512f"):
        return Isa(name, 64, 32)
    if features.get("avx2"):
        return Isa(name, 32, 16)
    return Isa(name, 16, 16)
