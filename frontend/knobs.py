# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Environment variables that steer the frontend, typed, read when asked for, all in this one file.

Options of ``torch.compile`` (``frontend/options.py``) win over a knob of the same meaning.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from kiln.errors import BackendOptionError

__all__ = [
    "KNOBS",
    "TUNED_BYTES",
    "Knob",
    "cache",
    "cache_dir",
    "cache_mib",
    "check",
    "dump_dir",
    "fallback",
    "nvtx",
    "override_dir",
    "target",
    "trace_html",
    "tt_cpu",
    "tuned_dir",
    "verbose",
]

_CACHE_MIB = 1024
TUNED_BYTES = 16 << 20
"""How large the folder of tuned schedules may grow."""


@dataclass(frozen=True)
class Knob:
    """One environment variable: its name, what it holds and what it does."""

    name: str
    kind: str
    help: str


KNOBS = (
    Knob("KILN_CACHE", "0 or 1", "0: compile every graph anew and keep none"),
    Knob("KILN_CACHE_DIR", "folder", "where compiled graphs are kept; by default in the user's cache folder"),
    Knob("KILN_CACHE_MIB", "number", "size in MiB above which the least recently used graphs go; 1024 by default"),
    Knob("KILN_CHECK", "0, 1 or warn", "compare what each kernel writes with its IR; 1: stop at the first that is off"),
    Knob("KILN_DUMP", "folder", "write every stage of every compiled graph there"),
    Knob("KILN_FALLBACK", "0 or 1", "0: a graph that does not compile is an error instead of running with ATen"),
    Knob(
        "KILN_MACHINE",
        "file or none",
        "rates that `kiln-tune --machine` measured; none: those of no file of the user's",
    ),
    Knob("KILN_NVTX", "0 or 1", "1: a GPU's kernels are launched one by one, in NVTX ranges with the model's lines"),
    Knob("KILN_OVERRIDE", "folder", "a dump with edited files, which are compiled in place of what passes make"),
    Knob("KILN_TARGET", "cpu, cuda or tt-cpu", "what to compile for; tt-cpu runs the GPU's kernels on the CPU"),
    Knob("KILN_TRACE", "HTML file", "write the trace of every compiled graph there (docs/trace.md)"),
    Knob("KILN_TT_CPU", "settings", "what target tt-cpu does like a GPU: 'order=reversed seed=3', say"),
    Knob("KILN_VERBOSE", "0 or 1", "1: print one line per compiled graph to stderr"),
)


def _flag(name: str, default: bool) -> bool:
    text = os.environ.get(name, "").strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    return default


def cache() -> bool:
    """``KILN_CACHE``: whether compiled graphs are kept on the disk (the default)."""
    return _flag("KILN_CACHE", True)


def cache_dir() -> Path:
    """``KILN_CACHE_DIR``: where they are kept."""
    text = os.environ.get("KILN_CACHE_DIR", "").strip()
    return Path(text) if text else Path(platformdirs.user_cache_dir("kiln", appauthor=False))


def tuned_dir() -> Path:
    """Where the schedules that tuning found are kept: inside of the folder of the compiled graphs."""
    return cache_dir() / "tuned"


def cache_mib() -> int:
    """``KILN_CACHE_MIB``: how large the folder may grow.

    Raises:
        BackendOptionError: no whole number above 0.
    """
    text = os.environ.get("KILN_CACHE_MIB", "").strip() or str(_CACHE_MIB)
    if not text.isdecimal() or int(text) < 1:
        raise BackendOptionError(f"KILN_CACHE_MIB must be a whole number of MiB above 0, found {text!r}")
    return int(text)


def check() -> str:
    """``KILN_CHECK``: what checked execution does with a kernel that is off, "error" or "warn"; empty: it is off."""
    text = os.environ.get("KILN_CHECK", "").strip().lower()
    return text if text == "warn" else "error" if _flag("KILN_CHECK", False) else ""


def dump_dir() -> Path | None:
    """``KILN_DUMP``: where stage dumps go, or None. With TORCH_COMPILE_DEBUG=1: PyTorch's folder of this process."""
    text = os.environ.get("KILN_DUMP", "").strip()
    if not text and os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1":
        from torch._dynamo.utils import get_debug_dir

        return Path(get_debug_dir()) / "kiln"
    return Path(text) if text else None


def nvtx() -> bool:
    """``KILN_NVTX``: whether each launch on a GPU is in an NVTX range, for Nsight."""
    return _flag("KILN_NVTX", False)


def override_dir() -> Path | None:
    """``KILN_OVERRIDE``: the dump whose edited stages are compiled, or None."""
    text = os.environ.get("KILN_OVERRIDE", "").strip()
    return Path(text) if text else None


def fallback() -> bool:
    """``KILN_FALLBACK``: whether a graph that fails to compile runs with ATen (the default)."""
    return _flag("KILN_FALLBACK", True)


def target() -> str:
    """``KILN_TARGET``: what to compile for; empty: by where a graph's tensors are."""
    return os.environ.get("KILN_TARGET", "").strip()


def trace_html() -> str:
    """``KILN_TRACE``: the HTML file for the trace of every graph; empty: none."""
    return os.environ.get("KILN_TRACE", "").strip()


def tt_cpu() -> str:
    """``KILN_TT_CPU``: what the target tt-cpu does like a GPU; empty: all it can."""
    return os.environ.get("KILN_TT_CPU", "").strip()


def verbose() -> bool:
    """``KILN_VERBOSE``: whether each compiled graph prints one line."""
    return _flag("KILN_VERBOSE", False)
