# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The native path of one graph: import, pass pipeline, host plan, executor, and the boxed callable around it."""

import functools
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule
from torch_mlir import ir

from kiln.dialects import create_context, to_text
from kiln.dialects.kiln import KernelOp, name_of
from kiln.errors import CompileError, UnsupportedError
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
from kiln.frontend.smaller_schedules import Rejected, SmallerSchedules, UseSmallerSchedules
from kiln.frontend.targets import Target, choose_target
from kiln.lowering.cpu import isa
from kiln.lowering.host.kernels import kernels_of
from kiln.passes import PassManager, PipelineStep, parse_pipeline
from kiln.passes.core import Compilation
from kiln.passes.instruments import Instrument, KernelDump, Reproducer, StageDump, Timing
from kiln.passes.plan_host import PlanHost
from kiln.passes.prove_kernels import ProveKernels

if TYPE_CHECKING:
    from kiln.lowering.gpu.validate.proofs import Proofs

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
        with isa.compiling_for(isa.named(options.cpu, options.float_parts)), no_full_collections():
            made = _attempt(gm, options, report, avoid, smaller)
        if isinstance(made, NativeGraph):
            return made
        if not smaller.learn([kernel.rejected for kernel in made]):
            culprits = _culprits(made, report, options)
            if culprits.keys() <= avoid.keys() or len(avoid) >= _MAX_RETRIES:
                _attempt(gm, options, report, avoid, smaller, strict=True)  # raises, with a reproducer
                raise made[0].error()
            avoid |= culprits
        report.decisions.clear()


def _attempt(
    gm: GraphModule,
    options: Options,
    report: CompileReport,
    avoid: Mapping[str, str],
    smaller: SmallerSchedules,
    *,
    strict: bool = False,
) -> "NativeGraph | list[_NoKernel]":
    """The compiled graph, or the kernels that there is no machine code for. ``strict``: these are an error."""
    target = choose_target(gm, options)
    with report.stage("import"):
        needs_tt = target.codegen != "cpu" or bool(options.pipeline)
        imported = import_graph(gm, create_context(tt=needs_tt))
    report.symbols, report.opaque = list(imported.symbols), imported.opaque
    text = to_text(imported.module, enable_debug_info=True) if options.verify else ""
    planning = PlanHost(target.device, show=False)
    planning.inputs, planning.graph = imported.inputs, report.graph
    planning.num_inputs = sum(node.op == "placeholder" for node in gm.graph.nodes)
    with imported.module.context:
        steps = [
            *_steps(target, options, avoid),
            *([PipelineStep(UseSmallerSchedules(smaller), "what Triton compiles")] if smaller else []),
            *target.kernels(options.check, shared=not options.debug_dir, strict=strict),
            PipelineStep(planning, "launch order and buffers, while kernels are compiled"),
        ]
    _run_passes(imported, steps, _dump_folder(options, report), options, report)
    if planning.plan is None:
        return [_NoKernel(k) for k in kernels_of(imported.module) if "unsupported" in k.operation.attributes]
    report.proved = next((_proved(s.pass_.proofs) for s in steps if isinstance(s.pass_, ProveKernels)), None)
    with report.stage("load"):
        run = make_runner(planning.plan, imported.constants, options)
    if options.verify:
        from kiln.frontend.verification import GivenInputs

        again = functools.partial(_steps, target, options, avoid)
        run = GivenInputs(run, text, again, imported.inputs, imported.constants)
    describe_plan(report, imported.module, planning.plan, gm)
    signature = Signature(
        imported.inputs, imported.outputs, imported.mutations, shared_results(imported, planning.plan), imported.found
    )
    boxed = BoxedGraph(signature, run, imported.constants)
    return NativeGraph(boxed, StoredGraph.of(signature, planning.plan, report), imported.constants)


def _proved(proofs: "Proofs") -> Proved:
    return Proved(proofs.kernels, proofs.proved, tuple(proofs.unknown))


def _culprits(kernels: Sequence["_NoKernel"], report: CompileReport, options: Options) -> dict[str, str]:
    """Torch ops, with a reason, that kernels without code are about; none if a defect is to be an error."""
    culprits: dict[str, str] = {}
    for kernel in kernels:
        if kernel.is_defect and not options.fallback:
            return {}
        if kernel.is_defect:
            text = f"kiln: an op runs with ATen because of a defect: {kernel.error()}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        names = {f'"{name}"(' for name in kernel.names}
        for decision in report.decisions:
            if decision.way != "aten" and any(name in decision.location for name in names):
                culprits.setdefault(decision.op, f"no kernel: {kernel.reason}")
    return culprits


class _NoKernel:
    """A kernel without code, by the attribute `unsupported`: ``names`` are the FX nodes that are to blame.

    ``is_defect``: a bug, not a known limit. ``rejected``: what is to be tried next, where its compiler refused it.
    """

    def __init__(self, kernel: KernelOp) -> None:
        attributes = kernel.operation.attributes
        fusion = kernel.fusion.operation
        self.reason = ir.StringAttr(attributes["unsupported"]).value
        self.op = ir.StringAttr(attributes["unsupported_op"]).value
        self.location = str(fusion.location)
        self.is_defect = "defect" in attributes
        self.rejected = Rejected.of(kernel.fusion, self.reason) if "rejected" in attributes else None
        # The op that the error names, if the body holds it; else the whole fusion is to blame.
        body = [inner.operation for inner in fusion.regions[0].blocks[0].operations]
        blamed = [inner for inner in body if name_of(inner) == self.op] or [fusion]
        self.names = {name for inner in blamed for name in names_in_location(str(inner.location))}

    def error(self) -> CompileError:
        """What to raise where nothing can be done."""
        return CompileError(str(UnsupportedError(self.op, self.location, self.reason)), pass_name="emit-kernels")


def _dump_folder(options: Options, report: CompileReport) -> Path | None:
    """``<debug_dir>/graph<N>-<kind>``, with N counting the graphs of this process."""
    if not options.debug_dir:
        return None
    return Path(options.debug_dir) / f"graph{next(_numbers)}-{report.graph}"


def _run_passes(
    imported: ImportedGraph, steps: list[PipelineStep], folder: Path | None, options: Options, report: CompileReport
) -> None:
    timing = Timing()
    instruments: list[Instrument] = [Reproducer()]
    if options.verify:
        from kiln.passes.instruments.numerics import VerifyNumerics

        instruments.append(VerifyNumerics())
    if folder is not None:
        instruments += [StageDump(folder, stages_only=True, debug_info=True), KernelDump(folder)]
    try:
        PassManager(steps, [*instruments, timing]).run(imported.module)
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
    """The passes up to scheduled kernels. ``avoid``: torch ops that are to stay calls of ATen, with the reason."""
    compilation = Compilation(avoid, tuned_schedules(options))
    if options.pipeline:
        return parse_pipeline(options.pipeline, compilation)
    return target.pipeline(options, compilation)
