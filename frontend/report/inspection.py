# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""From a planned graph to the lines of its report: kernels, what they hold, and the ATen calls that are left."""

import dataclasses
from collections.abc import Iterable, Sequence

from torch.fx import GraphModule
from torch_mlir import ir

from kiln.dialects.walk import is_structural
from kiln.frontend.report import CompileReport, Decision, Kernel, Proved
from kiln.frontend.report.eager_memory import eager_memory, symbol_hints
from kiln.notes import names_in_location
from kiln.passes.call_unsupported_kernels import Called
from kiln.passes.core import Pass
from kiln.passes.prove_kernels import ProveKernels
from kiln.runtime.plan import AtenStep, Launch, Plan
from kiln.runtime.statistics import memory_report

__all__ = ["describe_plan", "report_calls", "report_passes"]


def report_passes(report: CompileReport, passes: Sequence[Pass]) -> None:
    """Fill notes, decisions, rewrites and proofs of ``report`` from the passes that ran."""
    for pass_ in passes:
        report.notes += pass_.notes
        report.rewrites.update(_rewrites_of(pass_))
        if pass_.statistics:
            counted = report.statistics.setdefault(pass_.name, {})
            for key, count in pass_.statistics.items():
                counted[key] = counted.get(key, 0) + count
        for decision in getattr(pass_, "decisions", ()):
            report.decisions.append(Decision(decision.op, decision.location, decision.way, decision.reason))
        if isinstance(pass_, ProveKernels):
            proofs = pass_.proofs
            report.proved = Proved(proofs.kernels, proofs.proved, tuple(proofs.unknown))


def report_calls(report: CompileReport, kernels: Iterable[Called]) -> None:
    """Say of the torch ops in kernels that became calls that they run with ATen, and why."""
    reasons = {f'"{name}"(': kernel.reason for kernel in kernels for name in names_in_location(kernel.location)}
    for i, decision in enumerate(report.decisions):
        reason = next((why for name, why in reasons.items() if name in decision.location), None)
        if reason is not None and decision.way != "aten":
            report.decisions[i] = dataclasses.replace(decision, way="aten", reason=f"no kernel: {reason}")


def _rewrites_of(pass_: Pass) -> dict[str, int]:
    """How often each pattern of ``rewrite-patterns`` matched; empty for other passes."""
    if pass_.name != "rewrite-patterns":
        return {}
    matched = {key.partition(":")[2]: count for key, count in pass_.statistics.items() if key.startswith("matched:")}
    return dict(sorted(matched.items()))


def describe_plan(report: CompileReport, module: ir.Module, plan: Plan, gm: GraphModule) -> None:
    """Fill kernels, ATen calls and memory of ``report`` from the final module, its plan and the graph it came from."""
    held = _held_by_fusion(module)
    launches: dict[int, list[str]] = {}
    for step in plan.steps:
        if isinstance(step, Launch):
            launches.setdefault(step.kernel, []).append(step.name)
        elif isinstance(step, AtenStep):
            op = step.op if step.name == step.op else f"{step.op} of {step.name}"
            report.aten_calls.append(Decision(op, step.name, "aten", step.reason))
    for number, names in launches.items():
        kernel = plan.kernels[number]
        ops = tuple(names) if kernel.kind == "library" else held.get(names[0], ())
        report.kernels.append(Kernel(kernel.name, kernel.kind, ops, len(names)))
    if plan.offsets is not None:
        ends = [offset + size for i, offset in plan.offsets.items() if isinstance(size := plan.buffers[i].bytes, int)]
        report.workspace_bytes = max(ends, default=0)
    report.constant_bytes = sum(b.bytes for b in plan.buffers if b.kind == "constant" and isinstance(b.bytes, int))
    symbols = symbol_hints(gm, plan)
    if symbols is not None:
        report.memory, report.eager_memory = memory_report(plan, symbols), eager_memory(gm)


def _held_by_fusion(module: ir.Module) -> dict[str, tuple[str, ...]]:
    """Fusion name -> the FX nodes whose code its body holds, in order."""
    held: dict[str, tuple[str, ...]] = {}
    for function in module.body.operations:
        for block in function.operation.regions[0].blocks:
            for op in block.operations:
                if op.operation.name.startswith("kiln.fusion"):
                    name = ir.StringAttr(op.operation.attributes["name"]).value
                    held.setdefault(name, _held(op.operation))
    return held


def _held(fusion: ir.Operation) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for op in fusion.regions[0].blocks[0].operations:
        if not is_structural(op.operation):
            names.update(dict.fromkeys(names_in_location(str(op.operation.location))))
    return tuple(names)
