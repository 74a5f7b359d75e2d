# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The architectures, in a module for each family."""

import functools
import importlib

from benchmarks.gpu.breadth.entry import Entry

__all__ = ["entries_of"]

_MODULES = (
    "decoders",
    "encoders",
    "pairs",
    "audio",
    "vision",
    "multimodal",
    "packages",
    "written_out",
    "blocks",
    "networks",
)


@functools.cache
def entries_of(module: str) -> dict[str, Entry]:
    """Entries by name: those of `module.ENTRIES`, or the built-in ones if it is empty."""
    modules = [module] if module else [f"{__name__}.{name}" for name in _MODULES]
    entries = [entry for name in modules for entry in importlib.import_module(name).ENTRIES]
    found = {entry.name: entry for entry in entries}
    assert len(found) == len(entries), "two entries have one name"
    return found
