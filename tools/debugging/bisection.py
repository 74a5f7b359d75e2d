# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The first pass that breaks a module, and the first of its rewrites that does."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from kiln.errors import KilnError
from kiln.passes.rewrites import Rewrite
from kiln.tools.debugging.attempts import KERNELS, Finding, Task, attempt, run_command, text_before

__all__ = ["Bisection", "bisect", "find_pass"]


@dataclass(frozen=True)
class Bisection:
    """``finding`` names the pass; ``rewrite`` is the first of its ``count`` rewrites that breaks it.

    ``rewrite`` is None where the pass is broken before its first one, or counts none; ``why`` says which. ``before`` is
    the module that the pass was given.
    """

    finding: Finding
    before: str
    rewrite: Rewrite | None = None
    count: int = 0
    why: str = ""


def bisect(task: Task, text: str) -> Bisection | None:
    """Looks for the first failure of a pipeline on a module; None where there is none.

    Raises KilnError for a module that cannot be read, or that is broken before the first pass.
    """
    finding = find_pass(task, text)
    if not finding:
        return None
    before = text_before(task, text, finding.step)
    if finding.name == KERNELS:
        return Bisection(finding, before, why="kernels are made of fusions, not by rewrites")
    return _first_rewrite(task, finding, before)


def find_pass(task: Task, text: str) -> Finding:
    """The first pass after which the module is broken; a finding that is False where there is none."""
    if not task.command:
        return attempt(task, text)
    if run_command(task.command, text, task.timeout):
        raise KilnError(f"--test={task.command} fails before the first pass")
    finding = attempt(task, text)
    if finding.kind != "test":
        return finding

    def is_broken(count: int) -> bool:
        return run_command(task.command, text_before(task, text, count), task.timeout)

    steps = task.steps()
    count = _first(len(steps), is_broken)
    return replace(finding, step=count - 1, name=steps[count - 1].name)


def _first_rewrite(task: Task, finding: Finding, before: str) -> Bisection:
    """Within a pass: fewer and fewer of its rewrites are made, on the module that it was given."""
    step = finding.step

    whole = attempt(task, before, step)
    if not whole.is_like(finding):
        return Bisection(finding, before, why="the pass does not fail when it runs by itself")
    # A pass that is not written for a counter is taken apart by what it does.
    by_uses = not whole.rewrites
    if by_uses:
        whole = attempt(task, before, step, by_uses=True)
    count = len(whole.rewrites)
    if not count:
        return Bisection(whole, before, why="the pass counts no rewrites (kiln.passes.rewrites.may_rewrite)")

    def found(limit: int) -> Finding:
        return attempt(task, before, step, limit, by_uses=by_uses)

    if found(0).is_like(finding):
        return Bisection(whole, before, None, count, "it fails without any of its rewrites")
    number = _first(count, lambda limit: found(limit).is_like(finding))
    last = found(number)
    rewrite = last.rewrites[number - 1] if len(last.rewrites) >= number else whole.rewrites[number - 1]
    # The message is that of the first wrong rewrite alone.
    return Bisection(replace(whole, message=last.message or whole.message), before, rewrite, count)


def _first(count: int, is_broken: Callable[[int], bool]) -> int:
    """The least of 1..``count`` that is broken, by bisection; ``count`` is, and 0 is not."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if is_broken(middle):
            high = middle
        else:
            low = middle
    return high
