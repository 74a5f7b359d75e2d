# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Room for recursion over chains of ops: walks of a kernel's body are a few frames deep per op."""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

__all__ = ["LIMIT", "deep_recursion"]

#: Chains of some thousands of ops; Python's own limit of 1000 frames ends at 300.
LIMIT = 20_000

_lock = threading.Lock()
_users = 0
_before = 0


@contextmanager
def deep_recursion() -> Generator[None, None, None]:
    """Python's limit on recursion is at least ``LIMIT`` inside, and the user's again once no thread is inside.

    The limit is one for all threads, so a thread that leaves must not lower it under another that is deep inside.
    """
    global _users, _before
    with _lock:
        if _users == 0:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_before, LIMIT))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                with suppress(RecursionError):  # the caller is itself deeper than its limit
                    sys.setrecursionlimit(_before)
