# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a kernel of the target ``tt-cpu`` reports, and the error that is made of it.

The kernel gets the address of a record of `WORDS` 64-bit words and the number of its launch, behind its symbols. The
first op that finds something wrong fills in the record: an access outside of its buffer is left out, an assertion that
does not hold is passed over, and the launch goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kiln.errors import AccessError
from kiln.runtime.plan import Launch, Plan, Site

__all__ = ["WORDS", "Report", "access_error", "launch_error"]

WORDS = 7
"""Whether there is something, launch, site, argument, byte offset, bytes of the argument, program."""


@dataclass(frozen=True)
class Report:
    """A record that was filled in."""

    launch: int
    site: int
    argument: int
    offset: int
    size: int
    program: int

    @classmethod
    def read(cls, words: Sequence[int]) -> "Report":
        """The report in the words that a kernel has written; the first word, its flag, is left out."""
        return cls(*words[1:WORDS])


_VERBS = {"load": "reads", "store": "writes", "atomic": "changes"}


def access_error(report: Report, kernel: str, site: Site, buffer: str) -> Exception:
    """The error for a report. kernel, buffer: what to call them in the message."""
    at = f" at {site.source}" if site.source else ""
    where = f"{site.op}{at} in kernel {kernel}, program {report.program}"
    if site.kind == "assert":
        return IndexError(f"{site.detail} ({where})")
    if site.kind == "kernel":
        return AccessError(
            f"kernel {kernel}: its programs wait for each other for ever: {report.offset} of them are under way at "
            "a time, and none that is needed has begun, or signals"
        )
    if site.kind == "alignment":
        return AccessError(f"{where}: {site.detail} of {buffer} is {report.offset} bytes, no multiple of 16")
    if site.kind == "descriptor":
        return AccessError(
            f"{where}: a tensor map of {buffer} reaches byte {report.offset}; it has {report.size} bytes"
        )
    side = "behind its end" if report.offset >= 0 else "in front of its start"
    return AccessError(
        f"{where}: {_VERBS[site.kind]} at byte {report.offset} of {buffer}, {side}: it has {report.size} bytes"
    )


def launch_error(plan: Plan, words: Sequence[int]) -> Exception:
    """The error for what a launch of a plan reported."""
    report = Report.read(words)
    launch = plan.steps[report.launch]
    assert isinstance(launch, Launch)
    kernel = f"@{plan.kernels[launch.kernel].name}"
    title = f"{kernel} ({launch.source})" if launch.source else kernel
    return access_error(report, title, launch.sites[report.site], _buffer(plan, launch, report.argument))


def _buffer(plan: Plan, launch: Launch, argument: int) -> str:
    """An argument of a kernel in words."""
    if not 0 <= argument < len(launch.pointers):
        return "its scratch memory"
    first_result = len(launch.pointers) - launch.results
    is_result = argument >= first_result
    name = f"result {argument - first_result}" if is_result else f"operand {argument}"
    buffer = plan.buffers[launch.pointers[argument].buffer]
    what = f"input {buffer.index} of the graph" if buffer.kind == "input" else buffer.kind
    sizes = ", ".join(map(str, buffer.shape))
    return f"{name} ({what}, {buffer.dtype}[{sizes}])"
