# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The instrument that records the module behind each pass, and what the pass said and counted."""

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from kiln.dialects import to_text
from kiln.dialects.kiln import FusionOp, LaunchOp
from kiln.dialects.walk import ops_inside
from kiln.errors import KilnError
from kiln.frontend.report.trace.locations import SEPARATOR
from kiln.frontend.report.trace.records import HOST, AppliedRewrite, GraphTrace, StepRecord
from kiln.lowering.considered import Choice, considered
from kiln.lowering.cpu.codegen import level_of
from kiln.lowering.host.kernels import is_outlined, kernels_of
from kiln.lowering.host.objects import code_of
from kiln.passes.assemble import Assemble
from kiln.passes.instruments import Instrument
from kiln.passes.plan_host import PlanHost
from kiln.passes.rewrites import Rewrite, RewriteCounter, counted_rewrites

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.dialects.kiln import KernelOp
    from kiln.errors import CompileError
    from kiln.passes.manager import PipelineStep

__all__ = ["Recorder"]


class Recorder(Instrument):
    """Fills ``trace`` while passes run. Put it last but for instruments that measure time."""

    def __init__(self, trace: GraphTrace) -> None:
        self.trace = trace
        self._texts: dict[str, str] = {}
        self._start = 0.0
        self._noted = 0
        self._level: int | None = None
        self._counted: Counter[str] = Counter()
        self._rewrites: list[AppliedRewrite] = []
        self._choices: list[Choice] = []
        self._counting = contextlib.ExitStack()

    @override
    def before_pipeline(self, module: "ir.Module", steps: "Sequence[PipelineStep]") -> None:
        if not self.trace.steps:  # a later run goes on with the same module
            self.trace.pipeline = [(step.pass_.spec(), step.why, step.stage) for step in steps]
            first = StepRecord("input", "input")
            self.trace.steps.append(first)
            self._take(module, first)

    @override
    def before_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        if not is_outlined(module):
            self.trace.locations = _locations_of_fusions(module)
        self._noted, self._counted = len(step.pass_.notes), Counter(step.pass_.statistics)
        self._rewrites = []
        self._counting.enter_context(counted_rewrites(RewriteCounter(None, self._applied)))
        self._choices = self._counting.enter_context(considered())
        self._start = time.perf_counter()

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        seconds = time.perf_counter() - self._start
        self._counting.close()
        record = StepRecord(step.name, step.pass_.spec(), step.stage, step.why, step.is_inserted, seconds)
        record.notes = step.pass_.notes[self._noted :]
        record.statistics = {
            key: count - self._counted[key]
            for key, count in step.pass_.statistics.items()
            if count != self._counted[key]
        }
        record.rewrites = self._rewrites
        record.choices = list(dict.fromkeys(self._choices))
        self.trace.steps.append(record)
        self._take(module, record)
        if is_outlined(module) and not self.trace.launched:  # later, a launch may become a call
            self.trace.launched = _launched(module)
        if isinstance(step.pass_, Assemble):
            self._level = step.pass_.level
        if step.stage == "ttir":
            from kiln.lowering.host.gpu_kernels import ttir_of

            found = {kernel.symbol: ttir_of(kernel, debug_info=True) for kernel in kernels_of(module)}
            self.trace.ttir.update({name: text for name, text in found.items() if text})
        if isinstance(step.pass_, PlanHost) and step.pass_.plan is not None:
            self.trace.plan = step.pass_.plan
            self.keep_code(module)

    @override
    def pass_failed(self, index: int, step: "PipelineStep", module: "ir.Module", error: "CompileError") -> None:
        self._counting.close()

    def keep_code(self, module: "ir.Module") -> None:
        """Record machine code, once all of it is asked for: waits for the compilers."""
        for kernel in kernels_of(module):
            self._keep_code(kernel)

    def _applied(self, rewrite: Rewrite) -> None:
        self._rewrites.append(AppliedRewrite(rewrite, _asked_by()))

    def _take(self, module: "ir.Module", record: StepRecord) -> None:
        """Keep the texts of what has changed."""
        texts = (
            {HOST: to_text(module, enable_debug_info=True, assume_verified=True)}
            if not is_outlined(module)
            else _parts(module)
        )
        record.parts = {part: text for part, text in texts.items() if self._texts.get(part) != text}
        record.removed = tuple(part for part in self._texts if part not in texts)
        self._texts = texts

    def _keep_code(self, kernel: "KernelOp") -> None:
        attributes = kernel.fusion.operation.attributes
        kind = str(attributes["kind"]).strip('"')
        self.trace.kinds[kernel.symbol] = kind
        self.trace.levels[kernel.symbol] = level_of(kind) if self._level is None else self._level
        if "schedule" in attributes:
            self.trace.schedules[kernel.symbol] = str(attributes["schedule"])
        code = code_of(kernel)
        try:
            self.trace.code[kernel.symbol] = {} if code is None else code.texts()
        except KilnError:
            return  # the kernel's mark says why


def _parts(module: "ir.Module") -> dict[str, str]:
    """The functions as one text, and each kernel's code, or its fusion while there is no code."""
    functions = [op for op in module.body if op.operation.name == "func.func"]
    texts = {HOST: SEPARATOR.join(to_text(op, enable_debug_info=True, assume_verified=True) for op in functions)}
    for kernel in kernels_of(module):
        code = kernel.code
        texts[kernel.symbol] = to_text(
            (kernel.fusion if code is None else code).operation, enable_debug_info=True, assume_verified=True
        )
    return texts


def _locations_of_fusions(module: "ir.Module") -> list[tuple[str, ...]]:
    """The locations of the ops in each fusion, in the order in which the functions have the fusions."""
    fusions = [op for f in module.body if f.operation.name == "func.func" for op in f.regions[0].blocks[0]]
    return [
        tuple(str(inner.location) for inner in (op.operation, *ops_inside(op.operation)))
        for op in fusions
        if isinstance(op, FusionOp)
    ]


def _launched(module: "ir.Module") -> list[str]:
    """The kernels that the functions launch, in order."""
    ops = [op for f in module.body if f.operation.name == "func.func" for op in f.regions[0].blocks[0]]
    return [str(op.operation.attributes["kernel"]).strip('"') for op in ops if isinstance(op, LaunchOp)]


def _asked_by() -> str:
    """File and line of the code that asked ``may_rewrite``."""
    frame = sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).name in ("rewrites.py", "recorder.py"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
