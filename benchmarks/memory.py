# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Memory of this process, and of those that a process starts, from Linux' ``/proc``; None where there is none."""

import ctypes
import gc
import subprocess
from pathlib import Path

__all__ = ["DescendantPeak", "peak_bytes", "resident_bytes", "start_peak"]

_PROC = Path("/proc")


def _status(pid: int | str, field: str) -> int | None:
    """A line of ``/proc/PID/status`` in bytes; None for a process that has ended."""
    try:
        lines = (_PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), None)


def resident_bytes() -> int | None:
    """Resident memory of this process, after what is not used any more has been given back."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc
    if trim is not None:
        trim(0)
    return _status("self", "VmRSS")


def start_peak() -> bool:
    """Let `peak_bytes` begin anew. Returns whether the system can do that."""
    try:
        (_PROC / "self" / "clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def peak_bytes() -> int | None:
    """Most resident memory of this process since `start_peak`, or since it began (``ru_maxrss`` begins at the
    parent's)."""
    return _status("self", "VmHWM")


class DescendantPeak:
    """The most memory that the processes below ``process`` hold at once; ``sample`` it often.

    Shared pages count once for each process that holds them.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.bytes: int | None = 0 if _PROC.exists() else None

    def sample(self) -> None:
        """Look at what runs now."""
        if self.bytes is not None:
            below = _children(self._process.pid)
            self.bytes = max(self.bytes, sum(_status(pid, "VmRSS") or 0 for pid in below))


def _children(pid: int) -> list[int]:
    """All processes below ``pid``."""
    found: list[int] = []
    try:
        files = list((_PROC / str(pid) / "task").glob("*/children"))
    except OSError:  # the process has ended while its threads were listed
        return found
    for file in files:
        try:
            mine = [int(child) for child in file.read_text(encoding="ascii").split()]
        except OSError:  # the thread has ended
            continue
        found += mine
        for child in mine:
            found += _children(child)
    return found
