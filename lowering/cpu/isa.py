# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a CPU has: vector width, registers, instruction sets, caches; the host, and the one that code is made for."""

import contextlib
import contextvars
import dataclasses
import os
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from kiln.errors import BackendOptionError
from kiln.lowering.cpu.rates import CpuRates, generic, measured
from kiln.lowering.cpu.rules import Rules, rules_of
from kiln.runtime.amx import tiles_permitted

__all__ = ["LEVELS", "Isa", "compiling_for", "host", "named", "other", "read_caches", "target"]

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_L2 = 256 << 10  # where the system does not tell: what every x86 server of the last ten years has at least


@dataclass(frozen=True)
class Isa:
    """One CPU, as schedules see it.

    Attributes:
      name: LLVM's name of the CPU ("znver3", "cascadelake").
      vector_bytes: width of a vector register; vector_registers: how many of them.
      features: LLVM's names of the instruction sets ("avx2", "fma", "f16c", ...), sorted; "amx-..." only where the
        system lets this process use tile registers.
      l2_bytes: second-level cache of a core; l3_bytes: the third one, of several; 0 where there is none, or the system
        does not tell.
      cores: logical processors that this process may use.
      library_bytes: width of the vectors that MKL, the BLAS in PyTorch's wheels for x86, uses here at most. Its
        AVX-512 kernels run on Intel's processors alone: on AMD's it takes those for AVX2.
      rates: how fast a core is, by the user's file of this machine or by `core.toml`.
      float_parts: products of f32 are to be made of bf16 by AMX. Not of the CPU: what the user allows.
    """

    name: str
    vector_bytes: int
    vector_registers: int
    features: tuple[str, ...] = ()
    l2_bytes: int = _L2
    l3_bytes: int = 0
    cores: int = 1
    library_bytes: int = 64
    rates: CpuRates = field(default_factory=generic)
    float_parts: bool = False

    def has(self, feature: str) -> bool:
        """Whether the CPU has an instruction set, by LLVM's name."""
        return feature in self.features

    @property
    def has_masks(self) -> bool:
        """Whether there are registers for masks of lanes (AVX-512), with which a masked load is as fast as any."""
        return self.has("avx512f")

    @property
    def rules(self) -> Rules:
        """The limits that schedules compare sizes with."""
        return rules_of(self.vector_bytes)


@cache
def host() -> Isa:
    """The machine this process runs on."""
    flags = llvm.get_host_cpu_features()
    features = tuple(sorted(name for name, present in flags.items() if present))
    if "amx-tile" in features and not tiles_permitted():
        features = tuple(name for name in features if not name.startswith("amx-"))
    if "avx512f" in features:
        width, registers = 64, 32
    elif "avx2" in features:
        width, registers = 32, 16
    else:
        width, registers = 16, 32 if "neon" in features else 16
    name = llvm.get_host_cpu_name()
    caches = read_caches(_CACHES)
    return Isa(
        name=name,
        vector_bytes=width,
        vector_registers=registers,
        features=features,
        l2_bytes=caches.get(2, _L2),
        l3_bytes=caches.get(3, 0),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        library_bytes=32 if name.startswith(_AMD) else width,
        rates=measured(),
    )


_AMD = ("znver", "bdver", "btver", "amdfam")  # how LLVM's names of AMD's processors begin


_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
LEVELS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "x86-64": (16, 16, ("sse2",)),
    "x86-64-v2": (16, 16, ("sse2", *_V2)),
    "x86-64-v3": (32, 16, ("sse2", *_V3)),
    "x86-64-v4": (64, 32, ("sse2", *_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")),
}
"""The levels of the x86-64 psABI, which LLVM knows as CPUs: bytes and number of vector registers, features."""

_target: contextvars.ContextVar[Isa | None] = contextvars.ContextVar("kiln_cpu", default=None)


def target() -> Isa:
    """The CPU that code is made for now: the host, except inside of `compiling_for`."""
    return _target.get() or host()


@contextlib.contextmanager
def compiling_for(isa: Isa) -> Generator[None, None, None]:
    """Schedules, kernels and machine code made inside are for `isa` (in this thread)."""
    token = _target.set(isa)
    try:
        yield
    finally:
        _target.reset(token)


def named(name: str, float_parts: bool = False) -> Isa:
    """A CPU by the option `cpu`: "native" (or nothing) for the host, or one of `LEVELS` that the host can run, and
    behind each "+" an instruction set more, by LLVM's name: ``x86-64-v4+avx512bf16``.

    Caches and cores are the host's. float_parts: see `Isa`; ignored where there is no AMX.

    Raises BackendOptionError for another name, or naming what the host lacks.
    """
    if name in ("", "native"):
        found = host()
        return dataclasses.replace(found, float_parts=True) if float_parts and found.has("amx-bf16") else found
    level, *more = name.split("+")
    if level not in LEVELS:
        known = ("native", *LEVELS)
        raise BackendOptionError(f"unknown cpu {level!r}; known are {', '.join(known)}", level, known)
    width, registers, features = LEVELS[level]
    features = (*features, *more)
    lacking = [f for f in features if not host().has(f)]
    if lacking:
        raise BackendOptionError(f"cpu {name!r}: this machine ({host().name}) lacks {', '.join(lacking)}")
    return dataclasses.replace(
        host(), name=level, vector_bytes=width, vector_registers=registers, features=tuple(sorted(features))
    )


_FACTS = {"l2": "l2_bytes", "cores": "cores", "library": "library_bytes"}


def other(text: str) -> Isa:
    """A CPU that need not be there, to read what is made for it: ``x86-64-v4+amx-tile+amx-bf16+l2=2097152``.

    text: one of `LEVELS`, and behind each "+" an instruction set by LLVM's name, "float-parts", or a number: "l2"
    (bytes), "library" (bytes of its vectors), "cores". Nothing is the host's: 1 MiB of second-level cache and 4 cores
    unless given.

    Raises BackendOptionError for what is none of these.
    """
    name, *more = text.split("+")
    if name not in LEVELS:
        raise BackendOptionError(f"unknown cpu {name!r}; known are {', '.join(LEVELS)}", name, tuple(LEVELS))
    width, registers, features = LEVELS[name]
    facts = {"l2_bytes": 1 << 20, "l3_bytes": 32 << 20, "cores": 4, "library_bytes": width}
    for word in more:
        fact, equals, number = word.partition("=")
        if equals and (fact not in _FACTS or not number.isdecimal()):
            raise BackendOptionError(f"cpu {text!r}: expected one of {', '.join(_FACTS)} and a number, found {word!r}")
        if equals:
            facts[_FACTS[fact]] = int(number)
    given = [word for word in more if "=" not in word and word != "float-parts"]
    features = tuple(sorted((*features, *given)))
    return Isa(name, width, registers, features, **facts, rates=generic(), float_parts="float-parts" in more)


def read_caches(folder: Path) -> dict[int, int]:
    """Level -> bytes of data and unified caches, from Linux's sysfs.

    Empty where the folder is missing or unreadable (containers, other systems).
    """
    found: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
            if kind in ("Data", "Unified"):
                found[int(level)] = _bytes(size)
        except (OSError, ValueError):
            continue
    return found


def _bytes(text: str) -> int:
    """``32K`` or ``8M`` in bytes."""
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1])
    return int(text[:-1]) * unit if unit else int(text)
