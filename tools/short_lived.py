# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Garbage collection in a process that imports a compiler, works for seconds and ends."""

import atexit
import gc
import os
import sys

__all__ = ["collect_rarely"]

_THRESHOLDS = (100_000, 20, 100)


def collect_rarely() -> None:
    """For the rest of a tool's process: fewer collections, and none when it ends.

    Imports of PyTorch and Kiln make millions of objects, all of which stay. Collections look through them without
    finding any garbage, and so does the interpreter at exit, except for frozen objects.
    """
    gc.set_threshold(*_THRESHOLDS)
    atexit.register(_freeze)


def _freeze() -> None:
    gc.freeze()
    if "triton._C.libtriton" in sys.modules:
        # Triton from 3.9 on reports each object that is not collected on stderr; to collect them takes 0.7 s.
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
