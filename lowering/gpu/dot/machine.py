# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What schedules and choices of libraries need to know about a GPU: one file of `lowering/gpu/machines` each."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from kiln.errors import KilnError

__all__ = ["DEFAULT_ARCH", "Machine", "machine", "machines", "read_machine"]

_FOLDER = Path(__file__).resolve().parent.parent / "machines"
DEFAULT_ARCH = "sm_90"
"""The GPU that rules were measured on."""


@dataclass(frozen=True)
class Machine:
    """name: the chip's product name. arch: what its code is for ("sm_90", "gfx942").

    sms: multiprocessors. shared_bytes: shared memory that one program may have. tensor_maps: whether blocks can be
    loaded through descriptors (TMA). float8: whether it has conversions of float8_e4m3fn. fma_rate: multiply-adds a
    nanosecond that one multiprocessor does on its tensor cores with 16-bit operands. load_rate: bytes a nanosecond that
    it loads from the second-level cache. memory_rate: bytes a nanosecond that the chip reads from its memory.
    sums_rate: bytes a nanosecond of partial sums that the chip writes to the second-level cache and reads again.
    Nanoseconds: kernel_time, of a product besides its loop (start, first loads, stores); library_time, the same of one
    by the library; second_kernel_time, of a kernel behind another one besides what it moves; term_time, of the steps of
    a sum for each of its terms, where nothing else takes longer.
    """

    name: str
    arch: str
    sms: int
    shared_bytes: int
    tensor_maps: bool
    float8: bool
    fma_rate: float
    load_rate: float
    memory_rate: float
    sums_rate: float
    kernel_time: float
    library_time: float
    second_kernel_time: float
    term_time: float

    def peak_time(self, work: int) -> float:
        """Nanoseconds that multiply-adds take all tensor cores at their peak."""
        return work / (self.fma_rate * self.sms)


def read_machine(path: Path) -> Machine:
    """The machine of a file: name, arch, and each other field of `Machine` with its value and where that comes from.

    Raises KilnError, naming the field, for one that is missing, of another type, unknown, or without a source.
    """
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    values: dict[str, Any] = {}
    for field in fields(Machine):
        fact = found.pop(field.name, None)
        values[field.name] = fact if field.name in ("name", "arch") else _value(path, field.name, fact)
        accepted = (int, float) if field.type is float else (field.type,)
        if type(values[field.name]) not in accepted:
            raise KilnError(f"{path}: {field.name} must be a {field.type}, found {values[field.name]!r}")
    if found:
        raise KilnError(f"{path}: unknown {', '.join(sorted(found))}")
    return Machine(**values)


def _value(path: Path, name: str, fact: Any) -> Any:
    if not isinstance(fact, Mapping) or set(fact) != {"value", "source"} or not fact["source"]:
        raise KilnError(f"{path}: {name} must be {{ value = ..., source = ... }}, found {fact!r}")
    return fact["value"]


@cache
def machines() -> Mapping[str, Machine]:
    """All machines that there is a file of, by `arch`."""
    found = [read_machine(path) for path in sorted(_FOLDER.glob("*.toml"))]
    return {m.arch: m for m in found}


@cache
def machine(arch: str = DEFAULT_ARCH) -> Machine:
    """The facts of an architecture ("sm_90", "gfx942"); of the nearest older one of its maker if it is not known.

    Raises KilnError for what names no architecture.
    """
    known = machines()
    if arch in known:
        return known[arch]
    if re.fullmatch(r"gfx[0-9a-f]+", arch):
        return known["gfx942"]
    found = re.fullmatch(r"sm_([0-9]+)[af]?", arch)
    if found is None:
        raise KilnError(f"unknown GPU architecture {arch!r}: expected one like 'sm_90' or 'gfx942'")
    older = [a for a in known if a.startswith("sm_") and int(a[3:]) <= int(found[1])]
    return known[max(older, key=lambda a: int(a[3:]))] if older else known["sm_80"]
