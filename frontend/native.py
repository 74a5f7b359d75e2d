# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The native path of one graph: import, pass pipeline, host plan, executor, and the boxed callable around it."""

import functools
import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from kiln.dialects import create_context, to_text
from kiln.frontend.cache.stored_graph import StoredGraph
from kiln.frontend.cache.tuned_schedules import tuned_schedules
from kiln.frontend.calls.boxed_graph import USER_OUTPUTS, BoxedGraph, lost_alias, shared_results
from kiln.frontend.calls.signature import Signature
from kiln.frontend.compiler_import import no_full_collections
from kiln.frontend.import_.fx_import import ImportedGraph, import_graph
from kiln.frontend.import_.fx_values import ImportUnsupported
from kiln.frontend.options import Options
from kiln.frontend.overrides import check_unedited, overridden
from kiln.frontend.report import CompileReport
from kiln.frontend.report.announce import is_traced
from kiln.frontend.report.inspection import describe_plan, report_calls, report_passes
from kiln.frontend.report.log_topics import is_logged
from kiln.frontend.report.pass_log import PassLog
from kiln.frontend.report.progress import showing_progress
from kiln.frontend.report.stage_trace import StageTrace
from kiln.frontend.report.trace.session import recorders, tell
from kiln.frontend.runners import make_runner
from kiln.frontend.targets import choose_target
from kiln.lowering.cpu import isa
from kiln.lowering.target import Target
from kiln.passes import PassManager, PipelineStep, parse_pipeline, pipelines
from kiln.passes.call_unsupported_kernels import CallUnsupportedKernels
from kiln.passes.core import Compilation
from kiln.passes.instruments import CheckStages, Instrument, KernelDump, Reproducer, StageDump, Timing, VerifyEach
from kiln.passes.kernel_pass import KernelPass
from kiln.passes.manager import inserted
from kiln.passes.plan_host import PlanHost
from kiln.passes.shrink_schedules import ShrinkSchedules
from kiln.runtime.plan import Plan

__all__ = ["NativeGraph", "compile_native"]

_numbers = itertools.count()


#: How often kernels that Triton refuses get smaller schedules: what it still refuses then becomes calls.
_MOST_ATTEMPTS = 8


@dataclass(frozen=True)
class NativeGraph:
    """A compiled graph: ``run``, the boxed callable; ``stored``, the same as data; the tensors it reads, by name."""

    run: Callable[[list[Any]], list[Any]]
    stored: StoredGraph
    constants: dict[str, torch.Tensor]


def compile_native(gm: GraphModule, options: Options, report: CompileReport) -> NativeGraph:
    """Compile ``gm`` to kernels and a host plan. Kernels that there is no code for are calls in the plan.

    Raises:
        ImportUnsupported: the graph holds what the torch dialect cannot express, or returns views that a plan has lost.
        CompileError: a pass or the code generation failed; it carries a reproducer.
    """
    with isa.compiling_for(isa.named(options.cpu, options.float_parts)), no_full_collections():
        return _compile(gm, options, report)


def _compile(gm: GraphModule, options: Options, report: CompileReport) -> NativeGraph:
    target = choose_target(gm, options)
    with report.stage("import"):
        needs_tt = target.uses_triton or bool(options.pipeline)
        imported = import_graph(gm, create_context(tt=needs_tt))
    report.symbols, report.opaque = list(imported.symbols), imported.opaque
    text = to_text(imported.module, enable_debug_info=True) if options.verify == "numerics" else ""
    num_inputs = sum(node.op == "placeholder" for node in gm.graph.nodes)
    recorded = recorders(options, report, target.name)
    with showing_progress(f"{report.graph} graph of {report.nodes} ops") as progress:
        plan = _plan(imported, target, options, report, num_inputs, [*progress, *recorded])
    if lost := lost_alias(imported, plan, gm.meta.get(USER_OUTPUTS, 0)):
        raise ImportUnsupported(lost)
    with report.stage("load"):
        run = make_runner(plan, imported.constants, options)
    if options.verify == "numerics":
        from kiln.frontend.verification import GivenInputs

        verified = functools.partial(_steps, target, options)
        run = GivenInputs(run, text, lambda: verified()[0], imported.inputs, imported.constants)
    describe_plan(report, imported.module, plan, gm)
    tell(recorded, gm, plan, options)
    signature = Signature(
        imported.inputs, imported.outputs, imported.mutations, shared_results(imported, plan), imported.found
    )
    boxed = BoxedGraph(signature, run, imported.constants)
    return NativeGraph(boxed, StoredGraph.of(signature, plan, report), imported.constants)


def _plan(
    imported: ImportedGraph,
    target: Target,
    options: Options,
    report: CompileReport,
    num_inputs: int,
    more: list[Instrument],
) -> Plan:
    """Runs the pipeline. Kernels that Triton refuses go through its last steps again, with smaller schedules."""
    with imported.module.context:
        first, made = _steps(target, options)
        steps = [*first, *made]
        if options.override:
            steps = overridden(steps, imported.module, options.override, report.graph)
        shrink = PipelineStep(ShrinkSchedules(), "what Triton compiles")
    again = list(itertools.dropwhile(lambda step: not isinstance(step.pass_, KernelPass), made))
    planning = next(step.pass_ for step in steps if isinstance(step.pass_, PlanHost))
    planning.inputs, planning.graph, planning.num_inputs = imported.inputs, report.graph, num_inputs
    planning.show = False
    timing, attempts = Timing(), 0
    instruments = [*_instruments(options, report), *more, timing]
    try:
        PassManager(steps, instruments).run(imported.module)
        while planning.plan is None:
            attempts += 1
            rest = [shrink, *again] if attempts <= _MOST_ATTEMPTS else again
            PassManager(rest, instruments).run(imported.module)
    finally:
        report.stages.update(timing.seconds)
        report_passes(report, [step.pass_ for step in (*steps, shrink)])
    calls = [call for step in made if isinstance(step.pass_, CallUnsupportedKernels) for call in step.pass_.called]
    report_calls(report, calls)
    for called in calls:
        if called.is_defect:
            text = f"kiln: a kernel runs with ATen because of a defect: {called}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    return planning.plan


def _dump_folder(options: Options, report: CompileReport) -> Path | None:
    """``<debug_dir>/graph<N>-<kind>``, with N counting the graphs of this process."""
    if not options.debug_dir:
        return None
    folder = Path(options.debug_dir) / f"graph{next(_numbers)}-{report.graph}"
    if folder.exists():
        check_unedited(folder)
    return folder


def _instruments(options: Options, report: CompileReport) -> list[Instrument]:
    folder = _dump_folder(options, report)
    instruments: list[Instrument] = [Reproducer()]
    if options.verify == "numerics":
        from kiln.passes.instruments.numerics import VerifyNumerics

        instruments.append(VerifyNumerics())
    if options.verify:
        instruments += [CheckStages(), VerifyEach()]  # the last one is the first behind a pass
    if is_traced():
        instruments.append(StageTrace(report.graph))
    if is_logged():
        instruments.append(PassLog())
    if folder is not None:
        stages_only = not options.pipeline  # the text of a pipeline does not say which passes complete stages
        instruments += [StageDump(folder, stages_only=stages_only, debug_info=True), KernelDump(folder)]
    return instruments


def _steps(target: Target, options: Options) -> tuple[list[PipelineStep], list[PipelineStep]]:
    """The passes up to scheduled kernels, and those behind."""
    compilation = Compilation(tuned_schedules(options))
    if options.pipeline:
        first = parse_pipeline(options.pipeline, compilation)
    else:
        first = pipelines.pipeline(target, options, compilation, last="schedule")
    made = pipelines.pipeline(target, options, first="emit")
    first, made = _joined(first, made)
    steps = inserted([*first, *made], options.inserts, compilation)
    end = next(i for i, step in enumerate(steps) if step is made[0])
    return steps[:end], steps[end:]


def _joined(first: list[PipelineStep], made: list[PipelineStep]) -> tuple[list[PipelineStep], list[PipelineStep]]:
    """Two parts of a pipeline, of which the first may go on into the second: what it names is not done twice.

    A pipeline of the user's own may end with scheduled kernels, with the host plan, or anywhere between.
    """
    names = [step.name.partition("{")[0] for step in made]
    given = [step.name.partition("{")[0] for step in first]
    start = next((i for i, name in enumerate(given) if name in names), None)
    if start is None:
        return first, made
    named = [names.index(name) for name in given[start:] if name in names]
    return first[:start], [*made[: named[0]], *first[start:], *made[max(named) + 1 :]]
