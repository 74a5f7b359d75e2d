# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Threads in which LLVM and Triton compile: both release Python's interpreter lock."""

import functools
import os
from concurrent.futures import ThreadPoolExecutor

__all__ = ["available_cores", "compiler_threads"]


@functools.cache
def compiler_threads(name: str, most: int = 1024) -> ThreadPoolExecutor:
    """A pool of that name: a thread for each core that the process may use, `most` at most. They start as there is work
    for them; more of them would take time from the thread that emits the next kernel, and finish none earlier.
    """
    return ThreadPoolExecutor(min(available_cores(), most), thread_name_prefix=name)


def available_cores() -> int:
    """Cores that the process may use: fewer than there are where a scheduler or a container says so."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# A forked process has none of its parent's threads.
os.register_at_fork(after_in_child=compiler_threads.cache_clear)
