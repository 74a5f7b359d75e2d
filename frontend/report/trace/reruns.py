# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Running the rest of a recorded graph's pipeline again, from any module that was recorded."""

from torch_mlir import ir

from kiln.dialects import create_context, parse
from kiln.errors import KilnError
from kiln.frontend.report.compile_report import CompileReport
from kiln.frontend.report.trace.recorder import Recorder
from kiln.frontend.report.trace.records import GraphTrace
from kiln.passes import PassManager, PipelineStep, parse_pipeline
from kiln.passes.instruments import Instrument
from kiln.passes.plan_host import PlanHost

__all__ = ["rerun"]


def rerun(record: GraphTrace, done: int, source: str, passes: str, until: str | None, *, check: bool) -> GraphTrace:
    """Run ``passes``, then what is left of the pipeline, on a module.

    Args:
        record: the graph, whose pipeline it is.
        done: how many steps of that the module is behind.
        source: the module's text.
        passes: pipeline text; may be empty.
        until: the last stage to complete; "": nothing is left to run; None: everything but the host's plan.
        check: compare numbers after each pass (docs/checking.md).

    Raises:
        KilnError: an unknown pass or stage, or kernels that are symbols already: their code is not in the text.
        CompileError: a pass that fails; with ``check``, one that changes numbers.
    """
    if any(step.stage == "kernels" for step in record.steps[: done + 1]):
        raise KilnError("behind the stage 'kernels' the module has no text of its own: begin at an earlier stage")
    trace = GraphTrace(CompileReport(record.report.graph, record.report.nodes), record.target, nodes=record.nodes)
    recorder = Recorder(trace)
    instruments: list[Instrument] = [recorder]
    if check:
        from kiln.passes.instruments.numerics import VerifyNumerics

        instruments.insert(0, VerifyNumerics())
    with create_context(tt=True), ir.Location.unknown():
        module = parse(source)
        steps = [*(parse_pipeline(passes) if passes else []), *_left(record, done, until)]
        PassManager(steps, instruments).run(module)
        recorder.keep_code(module)
    return trace


def _left(record: GraphTrace, done: int, until: str | None) -> list[PipelineStep]:
    """The steps behind the first ``done``, up to the last one that completes a stage."""
    if until == "":
        return []
    steps = [PipelineStep(spec, why, stage) for spec, why, stage in record.pipeline[done:]]
    if until is None:
        return [step for step in steps if not isinstance(step.pass_, PlanHost)]
    ends = [i for i, step in enumerate(steps) if step.stage == until]
    if not ends:
        stages = list(dict.fromkeys(step.stage for step in steps if step.stage))
        raise KilnError(f"no step behind this one completes stage {until!r}; there are {', '.join(stages)}")
    return steps[: ends[-1] + 1]
