# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What schedules and choices of libraries need to know about a GPU: one file of `lowering/gpu/machines` each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from kiln.errors import KilnError
from kiln.lowering.machine_files import is_of_gpu, read_machine_file, user_file

__all__ = ["DEFAULT_ARCH", "Machine", "machine", "machines", "read_machine"]

_FOLDER = Path(__file__).resolve().parent.parent / "machines"
DEFAULT_ARCH = "sm_90"
"""The GPU that rules were measured on."""


@dataclass(frozen=True)
class Machine:
    """One GPU, as schedules and choices of libraries see it.

    Attributes:
      name: the chip's product name. arch: what its code is for ("sm_90", "gfx942").
      sms: multiprocessors. shared_bytes: shared memory that one program may have. l2_bytes: the second-level cache.
      tensor_maps: whether blocks can be loaded through descriptors (TMA). warpgroups: whether four warps multiply
        blocks of shared memory while others load the next ones (wgmma), as `dot/specialized.py` has them do. float8:
        whether it has conversions of float8_e4m3fn.
      fma_rate: multiply-adds a nanosecond that one multiprocessor does on its tensor cores with 16-bit operands. Shares
        of it with other operands: f64_share, f32_share (without tensor cores), tf32_share, int8_share, float8_share.
      load_rate: bytes a nanosecond that one multiprocessor loads from the second-level cache. memory_rate: that the
        chip reads from its memory. sums_rate: of partial sums that it writes to the second-level cache and reads again.
      kernel_time: nanoseconds of a product besides its loop (start, first loads, stores). library_time: the same of one
        by the library. second_kernel_time: of a kernel behind another one, besides what it moves. term_time: of the
        steps of a sum for each of its terms, where nothing else takes longer. round_time: of a round of tiles over the
        multiprocessors, besides its loop. sums_time: of a kernel that adds up few partial sums.
    """

    name: str
    arch: str
    sms: int
    shared_bytes: int
    l2_bytes: int
    tensor_maps: bool
    warpgroups: bool
    float8: bool
    fma_rate: float
    load_rate: float
    memory_rate: float
    sums_rate: float
    kernel_time: float
    library_time: float
    second_kernel_time: float
    term_time: float
    round_time: float
    sums_time: float
    f64_share: float
    f32_share: float
    tf32_share: float
    int8_share: float
    float8_share: float

    def rate_of(self, dtype: str) -> float:
        """`fma_rate` with operands of a type, as in `ProductShape`."""
        shares = {"bf16": 1.0, "f16": 1.0, "f64": self.f64_share, "f32": self.f32_share, "tf32": self.tf32_share}
        shares |= {"i8": self.int8_share, "f8E4M3FN": self.float8_share, "f8E5M2": self.float8_share}
        # Wider integers are multiplied without tensor cores: at half of f32's rate, of 64 bits in three steps.
        shares |= {"i16": self.f32_share / 2, "i32": self.f32_share / 2, "i64": self.f32_share / 6}
        return self.fma_rate * shares[dtype]

    def peak_time(self, work: int) -> float:
        """Nanoseconds that multiply-adds take all tensor cores at their peak."""
        return work / (self.fma_rate * self.sms)


def read_machine(path: Path) -> Machine:
    """The machine of a file: name, arch, and each other field of `Machine` with its value and where that comes from.

    Raises KilnError, naming the field, for one that is missing, of another type, unknown, or without a source.
    """
    if not is_of_gpu(path):
        raise KilnError(f"{path}: a GPU's file expected, found that of a CPU")
    found = read_machine_file(path, Machine)
    for field in fields(Machine):
        if field.type is float and not getattr(found, field.name):
            raise KilnError(f"{path}: {field.name} must be more than 0")
    return found


@cache
def machines() -> Mapping[str, Machine]:
    """All machines that there is a file of, by `arch`; the user's file is read in place of Kiln's."""
    own = user_file("gpu")
    found = [read_machine(path) for path in [*sorted(_FOLDER.glob("*.toml")), *([own] if own is not None else [])]]
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
