# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Garbage collection in a process that imports a compiler, works for seconds and ends."""

import atexit
import gc

__all__ = ["collect_rarely"]

_THRESHOLDS = (100_000, 20, 100)


def collect_rarely() -> None:
    """For the rest of a tool's process: fewer collections, and none when it ends.

    Imports of PyTorch and Kiln make millions of objects, all of which stay. Collections look through them without
    finding any garbage, and so does the interpreter at exit, except for frozen objects.
    """
    gc.set_threshold(*_THRESHOLDS)
    atexit.register(gc.freeze)
