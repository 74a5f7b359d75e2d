# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a reduced module must still do: fail as the given one does."""

from collections.abc import Callable
from dataclasses import replace

from kiln.errors import KilnError
from kiln.passes.numerics.sample import KINDS, SPECIALS
from kiln.tools.debugging.attempts import Task, attempt, run_command
from kiln.tools.debugging.children import seconds_computed

__all__ = ["why_broken"]

_LONGER, _AT_LEAST = 2.0, 3.0
"""A smaller module may compute for so many times as long as the whole one, and so many seconds more; else it hangs."""


def why_broken(task: Task, text: str) -> Callable[[str], bool] | None:
    """A function that says of a smaller module whether it fails like ``text``; None where ``text`` does not fail.

    The same is: the same kind of failure, in the pass of that name. Inputs of a user fit the whole function alone, so
    pieces of it are run on random ones.
    """
    if task.command and not task.kernels and not task.steps():
        if not run_command(task.command, text, task.timeout):
            return None
        return lambda candidate: run_command(task.command, candidate, task.timeout)
    start = seconds_computed()
    found = attempt(task, text)
    if not found:
        return None
    limit = min(task.timeout, _LONGER * (seconds_computed() - start) + _AT_LEAST)
    # NaN among the inputs would let a piece that reads memory which nothing wrote look like what is wrong.
    only_specials = f"({SPECIALS} inputs)" in found.message
    free = replace(task, samples=(), kinds=(SPECIALS,) if only_specials else KINDS)
    if task.samples and not attempt(free, text).is_like(found):
        raise KilnError("it fails on the given inputs and not on random ones, so no piece of it can be tried")

    limited = replace(free, timeout=limit)

    def is_broken(candidate: str) -> bool:
        try:
            return attempt(limited, candidate).is_like(found)
        except KilnError:  # it cannot be read
            return False

    return is_broken
