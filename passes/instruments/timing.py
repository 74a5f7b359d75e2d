# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Wall time of each pass."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from typing_extensions import override

from kiln.passes.instruments.base import Instrument

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.errors import CompileError
    from kiln.passes.manager import PipelineStep

__all__ = ["Timing"]


class Timing(Instrument):
    """Seconds per pass in ``seconds`` (pass name to seconds, in pipeline order; runs of one pass add up).

    ``report()`` makes the table; with ``out`` it is written there after the pipeline. Put it last among the
    instruments, so that the others' work is not counted.
    """

    kernel_by_kernel = True

    def __init__(self, out: TextIO | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.total = 0.0
        self._out = out
        self._pipeline_start = self._start = 0.0

    @classmethod
    def to_stderr(cls) -> "Timing":
        """An instance that reports to stderr."""
        return cls(sys.stderr)

    @override
    def before_pipeline(self, module: "ir.Module", steps: "Sequence[PipelineStep]") -> None:
        self._pipeline_start = time.perf_counter()

    @override
    def after_pipeline(self, module: "ir.Module") -> None:
        self.total += time.perf_counter() - self._pipeline_start
        if self._out is not None:
            print(self.report(), file=self._out)

    @override
    def before_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        self._start = time.perf_counter()

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        elapsed = time.perf_counter() - self._start
        self.seconds[step.name] = self.seconds.get(step.name, 0.0) + elapsed

    @override
    def pass_failed(self, index: int, step: "PipelineStep", module: "ir.Module", error: "CompileError") -> None:
        self.after_pass(step, module)

    def report(self) -> str:
        """The table: milliseconds and share of the pipeline for each pass, then the total."""
        whole = self.total or sum(self.seconds.values()) or 1.0
        lines = ["===- Pass timing -===", f"{'ms':>10}  {'share':>6}  pass"]
        lines += [f"{1e3 * s:10.3f}  {100 * s / whole:5.1f}%  {name}" for name, s in self.seconds.items()]
        lines.append(f"{1e3 * whole:10.3f}  100.0%  total")
        return "\n".join(lines)
