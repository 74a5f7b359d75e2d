# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What passes counted and remarked."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from typing_extensions import override

from kiln.passes.core import Note
from kiln.passes.instruments.base import Instrument

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.passes.manager import PipelineStep

__all__ = ["Remarks", "Statistics"]


class Statistics(Instrument):
    """Collects ``Pass.statistics`` and ``Pass.notes`` of every pass that ran.

    ``counts`` maps pass name to its counters, ``notes`` lists the remarks in order. With ``out`` the counts are
    written there after the pipeline.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self.counts: dict[str, dict[str, int]] = {}
        self.notes: list[Note] = []
        self._out = out
        self._before: dict[str, int] = {}
        self._noted = 0

    @override
    def before_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        self._before = dict(step.pass_.statistics)
        self._noted = len(step.pass_.notes)

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        mine = self.counts.setdefault(step.name, {})
        for key, value in step.pass_.statistics.items():
            mine[key] = mine.get(key, 0) + value - self._before.get(key, 0)
        self.notes += step.pass_.notes[self._noted :]

    @override
    def after_pipeline(self, module: "ir.Module") -> None:
        if self._out is not None:
            print(self.report(), file=self._out)

    def report(self) -> str:
        """One line a pass that counted something: ``fuse: matched=3 failed=1``."""
        lines = ["===- Pass statistics -==="]
        for name, counts in self.counts.items():
            if counts:
                lines.append(f"{name}: " + " ".join(f"{k}={v}" for k, v in counts.items()))
        return "\n".join(lines)


class Remarks(Instrument):
    """Hands each remark to ``report`` as its pass ends; prints it to stderr as ``file:3:5: remark: ...`` otherwise."""

    def __init__(self) -> None:
        self._noted = 0

    @override
    def before_pipeline(self, module: "ir.Module", steps: "Sequence[PipelineStep]") -> None:
        self._noted = 0

    @override
    def before_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        self._noted = len(step.pass_.notes)

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        for note in step.pass_.notes[self._noted :]:
            self.report(note)

    def report(self, note: Note) -> None:
        """Called with each remark; override to collect."""
        from kiln.passes.diagnostics import Diagnostic, locate

        message = f"{note.op}: {note.reason} [{note.pass_name}]"
        print(Diagnostic("remark", message, *locate(note.location)), file=sys.stderr)
