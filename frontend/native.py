# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The native path of one graph: import, pass pipeline, host plan, executor, and the boxed callable around it."""

import functools
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule
from torch_mlir import ir

from kiln.dialects import create_context, to_text
from kiln.dialects.kiln import name_of
from kiln.errors import CompileError, ProofError, UnsupportedError
from kiln.frontend.cache.stored_graph import StoredGraph
from kiln.frontend.cache.tuned_schedules import tuned_schedules
from kiln.frontend.calls.boxed_graph import BoxedGraph, shared_results
from kiln.frontend.calls.signature import Signature
from kiln.frontend.compiler_import import no_full_collections
from kiln.frontend.import_.fx_import import ImportedGraph, import_graph
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport, Decision, Proved
from kiln.frontend.report.inspection import describe_plan, names_in_location, rewrites_of
from kiln.frontend.runners import make_runner
from kiln.frontend.smaller_schedules import Rejected, SmallerSchedules
from kiln.frontend.targets import Target, choose_target
from kiln.lowering.cpu import isa
from kiln.lowering.host.plan import build_plan
from kiln.passes import PassManager, PipelineStep, parse_pipeline
from kiln.passes.core import Compilation
from kiln.passes.instruments import Instrument, Reproducer, StageDump, Timing
from kiln.passes.plan_host import PlanHost
from kiln.runtime.plan import Plan

__all__ = ["NativeGraph", "compile_native"]

_numbers = itertools.count()


#: Torch ops that one graph may send to ATen because no kernel could be made of them, before it is given up.
_MAX_RETRIES = 8


@dataclass(frozen=True)
class NativeGraph:
    """A compiled graph: ``run``, the boxed callable; ``stored``, the same as data; the tensors it reads, by name."""

    run: Callable[[list[Any]], list[Any]]
    stored: StoredGraph
    constants: dict[str, torch.Tensor]


def compile_native(gm: GraphModule, options: Options, report: CompileReport) -> NativeGraph:
    """Compile ``gm`` to kernels and a host plan.

    A kernel that Triton does not compile gets a smaller schedule, as long as there is one. An op that converts but that
    the code generator has no kernel for becomes an ATen call: the graph is compiled again with that op avoided.

    Raises:
        ImportUnsupported: the graph holds what the torch dialect cannot express.
        CompileError: a pass or the code generation failed; it carries a reproducer.
    """
    avoid: dict[str, str] = {}
    smaller = SmallerSchedules()
    while True:
        try:
            with isa.compiling_for(isa.named(options.cpu, options.float_parts)), no_full_collections():
                return _attempt(gm, options, report, avoid, smaller)
        except CompileError as error:
            if smaller.learn([getattr(failure, "rejected", None) for failure in _failures(error)]):
                report.decisions.clear()
                continue
            culprits = _culprits(error, report, options)
            if culprits.keys() <= avoid.keys() or len(avoid) >= _MAX_RETRIES:
                raise
            avoid |= culprits
            report.decisions.clear()


def _attempt(
    gm: GraphModule, options: Options, report: CompileReport, avoid: Mapping[str, str], smaller: SmallerSchedules
) -> NativeGraph:
    target = choose_target(gm, options)
    if options.check and target.codegen != "cpu":
        from kiln.lowering.gpu.validate.proofs import Proofs

        target = replace(target, proofs=Proofs(options.check))
    with report.stage("import"):
        needs_tt = target.codegen != "cpu" or bool(options.pipeline)
        imported = import_graph(gm, create_context(tt=needs_tt))
    report.symbols, report.opaque = list(imported.symbols), imported.opaque
    folder = _dump_folder(options, report)
    planning = _Planning(compile=True)
    planning.smaller, planning.is_checked = smaller, bool(options.check)
    planning.imported, planning.folder, planning.graph, planning.target = imported, folder, report.graph, target
    planning.placeholders = sum(node.op == "placeholder" for node in gm.graph.nodes)
    text = to_text(imported.module, enable_debug_info=True) if options.verify else ""
    _run_passes(planning, options, report, avoid)
    assert planning.plan is not None
    if target.proofs is not None:
        report.proved = Proved(target.proofs.kernels, target.proofs.proved, tuple(target.proofs.unknown))
    with report.stage("load"):
        run = make_runner(planning.plan, imported.constants, options)
    if options.verify:
        from kiln.frontend.verification import GivenInputs

        steps = functools.partial(_steps, target, options, avoid)
        run = GivenInputs(run, text, steps, imported.inputs, imported.constants)
    describe_plan(report, imported.module, planning.plan, gm)
    signature = Signature(
        imported.inputs, imported.outputs, imported.mutations, shared_results(imported, planning.plan), imported.found
    )
    boxed = BoxedGraph(signature, run, imported.constants)
    return NativeGraph(boxed, StoredGraph.of(signature, planning.plan, report), imported.constants)


def _culprits(error: CompileError, report: CompileReport, options: Options) -> dict[str, str]:
    """Torch ops, with a reason, that a failure to make a kernel is about; none when it is about something else."""
    culprits: dict[str, str] = {}
    for failure in _failures(error):
        if not isinstance(failure, _NoKernel) or (failure.is_defect and not options.fallback):
            return {}
        if failure.is_defect:
            warnings.warn(f"kiln: an op runs with ATen because of a defect: {failure}", RuntimeWarning, stacklevel=2)
        names = {f'"{name}"(' for name in failure.names}
        for decision in report.decisions:
            if decision.way != "aten" and any(name in decision.location for name in names):
                culprits.setdefault(decision.op, f"no kernel: {failure.reason}")
    return culprits


def _failures(error: CompileError) -> Sequence[BaseException | None]:
    """What a failed attempt failed for."""
    cause = error.__cause__
    return cause.failures if isinstance(cause, _NoKernels) else [cause]


class _NoKernel(UnsupportedError):
    """A fusion without a kernel: ``names`` are the FX nodes it is about; ``is_defect``: a bug, not a known limit.

    ``rejected`` has what is to be tried next where it was emitted, and did not compile.
    """

    def __init__(self, fusion: ir.OpView, error: Exception, rejected: Rejected | None = None) -> None:
        self.rejected = rejected
        self.is_defect = not isinstance(error, UnsupportedError)
        op = error.op if isinstance(error, UnsupportedError) else "kiln.fusion"
        reason = error.reason if isinstance(error, UnsupportedError) else f"{type(error).__name__}: {error}"
        # The op that the error names, if the body holds it; else the whole fusion is to blame.
        body = [inner.operation for inner in fusion.operation.regions[0].blocks[0].operations]
        blamed = [inner for inner in body if name_of(inner) == op] or [fusion.operation]
        self.names = {name for inner in blamed for name in names_in_location(str(inner.location))}
        super().__init__(op, str(fusion.operation.location), reason)


class _NoKernels(UnsupportedError):
    """Several fusions without kernels."""

    def __init__(self, failures: list[_NoKernel]) -> None:
        self.failures = failures
        first = failures[0]
        super().__init__(first.op, first.location, f"{first.reason} (and {len(failures) - 1} other fusions)")


class _Planning(PlanHost):
    """The last step: the host plan and its kernels, kept as data (the module stays as it is).

    It is a pass so that a failure in it leaves a reproducer like any other pass: ``plan-host{compile=true}``.
    """

    imported: ImportedGraph
    folder: Path | None = None
    graph: str = ""
    placeholders: int = 0
    target: Target = Target("cpu")
    smaller: SmallerSchedules | None = None
    is_checked: bool = False
    plan: Plan | None = None

    def run(self, module: ir.Module) -> None:
        if self.smaller is not None:
            self.smaller.apply(module, self.note)
        failures: list[_NoKernel] = []

        def compiler(fusion: ir.OpView, name: str) -> ir.Module | None:
            try:
                return self.target.kernel(fusion, name)
            except ProofError:
                raise
            except Exception as error:
                failures.append(_NoKernel(fusion, error))
                return None

        has_dump = self.folder is not None
        kernels = self.target.kernels(
            compiler,
            self._dump if has_dump else None,
            self._write if has_dump else None,
            lambda fusion, error: _NoKernel(fusion, error, Rejected.of(fusion, error)),
        )
        self.plan = build_plan(
            module,
            None,
            self.imported.inputs,
            name=self.graph,
            num_inputs=self.placeholders,
            kernels=kernels,
            device=self.target.device,
            is_checked=self.is_checked,
        )
        if failures:
            raise failures[0] if len(failures) == 1 else _NoKernels(failures)
        if self.folder is not None:
            (self.folder / "plan.mlir").write_text(self.plan.text, encoding="utf-8")

    def _dump(self, name: str, module: ir.Module) -> None:
        self._write(f"{name}.mlir", module.operation.get_asm())

    def _write(self, name: str, text: str) -> None:
        assert self.folder is not None
        (self.folder / name).write_text(text, encoding="utf-8")


def _dump_folder(options: Options, report: CompileReport) -> Path | None:
    """``<debug_dir>/graph<N>-<kind>``, with N counting the graphs of this process."""
    if not options.debug_dir:
        return None
    return Path(options.debug_dir) / f"graph{next(_numbers)}-{report.graph}"


def _run_passes(planning: _Planning, options: Options, report: CompileReport, avoid: Mapping[str, str]) -> None:
    module = planning.imported.module
    with module.context:
        steps = _steps(planning.target, options, avoid)
    steps = [*steps, PipelineStep(planning, "launch order, buffers and machine code")]
    timing = Timing()
    instruments: list[Instrument] = [Reproducer()]
    if options.verify:
        from kiln.passes.instruments.numerics import VerifyNumerics

        instruments.append(VerifyNumerics())
    if planning.folder is not None:
        instruments.append(StageDump(planning.folder, stages_only=True, debug_info=True))
    try:
        PassManager(steps, [*instruments, timing]).run(module)
    finally:
        report.stages.update(timing.seconds)
        report.rewrites.clear()
        report.notes.clear()
        for step in steps:
            report.notes += step.pass_.notes
            report.rewrites.update(rewrites_of(step.pass_))
            for decision in getattr(step.pass_, "decisions", ()):
                report.decisions.append(Decision(decision.op, decision.location, decision.way, decision.reason))


def _steps(target: Target, options: Options, avoid: Mapping[str, str]) -> list[PipelineStep]:
    """The passes of one attempt. ``avoid``: torch ops that are to stay calls of ATen, with the reason."""
    compilation = Compilation(avoid, tuned_schedules(options))
    if options.pipeline:
        return parse_pipeline(options.pipeline, compilation)
    return target.pipeline(options, compilation)
