# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The bugs that `python -m benchmarks.planted` plants still have their places in the compiler."""

from benchmarks.planted import programs
from benchmarks.planted.__main__ import load_bugs


def test_each_bug_has_its_place_and_its_program() -> None:
    bugs = load_bugs()  # raises where the text of one does not stand once in its file
    assert len(bugs) >= 40
    assert [bug.program for bug in bugs if not callable(getattr(programs, bug.program, None))] == []
