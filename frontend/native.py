# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The native path of one graph: import, pass pipeline, host plan, executor, and the boxed callable around it."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.fx import GraphModule
from torch_mlir import ir

from kiln.dialects import create_context
from kiln.frontend.calling import BoxedGraph
from kiln.frontend.fx_import import ImportedGraph, import_graph
from kiln.frontend.inspection import describe_plan
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport, Decision
from kiln.lowering.cpu.emit import emit_kernel
from kiln.lowering.host.plan import build_plan
from kiln.passes import PassManager, PipelineStep, parse_pipeline
from kiln.passes.instruments import Instrument, Reproducer, StageDump, Timing
from kiln.passes.pipelines import cpu_pipeline
from kiln.passes.plan_host import PlanHost
from kiln.runtime.executor import Executor
from kiln.runtime.plan import Plan

__all__ = ["compile_native"]

_numbers = itertools.count()


def compile_native(gm: GraphModule, options: Options, report: CompileReport) -> Callable[[list[Any]], list[Any]]:
    """Compile ``gm`` to kernels and a host plan.

    Raises:
        ImportUnsupported: the graph holds what the torch dialect cannot express.
        CompileError: a pass or the code generation failed; it carries a reproducer.
    """
    with report.stage("import"):
        imported = import_graph(gm, create_context())
    report.symbols, report.opaque = list(imported.symbols), imported.opaque
    folder = _dump_folder(options, report)
    planning = _Planning(compile=True)
    planning.imported, planning.folder, planning.graph = imported, folder, report.graph
    planning.placeholders = sum(node.op == "placeholder" for node in gm.graph.nodes)
    _run_passes(planning, options, report)
    assert planning.plan is not None
    with report.stage("load"):
        executor = Executor(planning.plan, imported.constants)
    describe_plan(report, imported.module, planning.plan)
    return BoxedGraph(imported, executor.run)


class _Planning(PlanHost):
    """The last step: the host plan and its kernels, kept as data (the module stays as it is).

    It is a pass so that a failure in it leaves a reproducer like any other pass: ``plan-host{compile=true}``.
    """

    imported: ImportedGraph
    folder: Path | None = None
    graph: str = ""
    placeholders: int = 0
    plan: Plan | None = None

    def run(self, module: ir.Module) -> None:
        dump = self._dump if self.folder is not None else None
        self.plan = build_plan(
            module, emit_kernel, self.imported.inputs, name=self.graph, num_inputs=self.placeholders, dump=dump
        )
        if self.folder is not None:
            (self.folder / "plan.mlir").write_text(self.plan.text, encoding="utf-8")

    def _dump(self, name: str, module: ir.Module) -> None:
        assert self.folder is not None
        (self.folder / f"{name}.mlir").write_text(module.operation.get_asm(), encoding="utf-8")


def _dump_folder(options: Options, report: CompileReport) -> Path | None:
    """``<debug_dir>/graph<N>-<kind>``, with N counting the graphs of this process."""
    if not options.debug_dir:
        return None
    return Path(options.debug_dir) / f"graph{next(_numbers)}-{report.graph}"


def _run_passes(planning: _Planning, options: Options, report: CompileReport) -> None:
    module = planning.imported.module
    with module.context:
        steps = parse_pipeline(options.pipeline) if options.pipeline else cpu_pipeline(options)
    steps = [*steps, PipelineStep(planning, "launch order, buffers and machine code")]
    timing = Timing()
    instruments: list[Instrument] = [Reproducer()]
    if planning.folder is not None:
        instruments.append(StageDump(planning.folder, stages_only=True, debug_info=True))
    try:
        PassManager(steps, [*instruments, timing]).run(module)
    finally:
        report.stages.update(timing.seconds)
        for step in steps:
            for decision in getattr(step.pass_, "decisions", ()):
                report.decisions.append(Decision(decision.op, decision.location, decision.way, decision.reason))
