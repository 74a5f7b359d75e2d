# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A recorded graph as JSON for the page: what each tab shows."""

import re
from typing import Any

from kiln.dialects.kiln import opdef_of_kind
from kiln.frontend.report.device_times import work_of
from kiln.frontend.report.explain import Explanation
from kiln.frontend.report.trace.diffing import changed_lines
from kiln.frontend.report.trace.estimates import estimated_seconds, roof_of
from kiln.frontend.report.trace.kernel_data import kernel_data
from kiln.frontend.report.trace.locations import Line, located_lines
from kiln.frontend.report.trace.model_source import read_lines
from kiln.frontend.report.trace.provenance import Provenance
from kiln.frontend.report.trace.records import HOST, GraphTrace, StepRecord
from kiln.notes import names_in_location
from kiln.runtime.plan import AtenStep, Launch, Plan

__all__ = ["graph_data"]

_MOST_DIFF_LINES = 3000
_CHOOSING = ("schedule-", "autotune-", "emit-kernels")
_OPERATOR = re.compile(r'"kiln\.aten"\(.*\bop = "([^"]+)"')
_OF_KERNELS = ("vector", "ttir", "llvm", "object", "plan", "kernels")
"""Stages that rewrite kernels as a whole: the levels of a kernel show them better than a diff."""


def graph_data(trace: GraphTrace) -> dict[str, Any]:
    """All that the page shows of a graph."""
    known = Provenance(trace)
    report = trace.report
    data: dict[str, Any] = {
        "kind": report.graph,
        "target": trace.target,
        "ops": report.nodes,
        "seconds": report.seconds,
        "report": Explanation([report]).to_text(verbose=True),
        "passes": _passes(trace, known),
        "stages": _stages(trace, known),
        "kernels": [kernel_data(trace, name, known) | _remarks(trace, name) for name in trace.kernels()],
        "launches": _launches(trace, known),
        "roof": roof.name if (roof := roof_of(trace)) is not None else "",
        "memory": _memory(trace.plan),
        "host": trace.plan.text if trace.plan is not None else "",
        "calls": [[call.op, call.reason] for call in report.aten_calls],
    }
    data["nodes"], data["files"] = _nodes(trace, known)
    data["sets"] = known.sets
    return data


def _remarks(trace: GraphTrace, name: str) -> dict[str, Any]:
    """What was noted where a kernel's schedule was chosen: what was tried, with times, and what won. ``choices``: what
    cost models chose, the unit of costs, and candidates with their costs, the cheapest first.
    """
    first = trace.launched.index(name)
    fusion = trace.locations[first][0] if first < len(trace.locations) else ""
    notes = [note for step in trace.steps if step.name.startswith(_CHOOSING) for note in step.notes]
    found = [f"{note.pass_name}: {note.reason}" for note in notes if note.location == fusion]
    choices = dict.fromkeys(c for step in trace.steps for c in step.choices if fusion and c.location == fusion)
    return {
        "notes": list(dict.fromkeys(found)),
        "choices": [[choice.what, choice.unit, [list(pair) for pair in choice.candidates]] for choice in choices],
    }


def _nodes(trace: GraphTrace, known: Provenance) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The FX nodes, and the model's files that they come from."""
    files = {file: i for i, file in enumerate(dict.fromkeys(f for node in known.nodes for f, _ in node.frames))}
    ways = {name: d for d in trace.report.decisions for name in names_in_location(d.location)}
    nodes = [
        {
            "name": node.name,
            "op": node.op,
            "args": node.args,
            "type": node.type,
            "frames": [[files[file], line] for file, line in node.frames],
            "way": ways[node.name].way if node.name in ways else "",
            "why": ways[node.name].reason if node.name in ways else "",
        }
        for node in known.nodes
    ]
    return nodes, [{"name": file, "text": "\n".join(read_lines(file))} for file in files]


def _passes(trace: GraphTrace, known: Provenance) -> list[dict[str, Any]]:
    """The passes that changed something, or had something to say, with what they changed."""
    texts: dict[str, list[Line]] = {}
    found: list[dict[str, Any]] = []
    for i, step in enumerate(trace.steps):
        diffs: list[dict[str, Any]] = []
        for part, text in step.parts.items():
            lines = located_lines(text)
            before = texts.get(part)
            if before is not None and not (part != HOST and step.stage in _OF_KERNELS):
                diffs += _diff(part, before, lines, known)
            texts[part] = lines
        if i and (step.has_changed or step.notes or step.rewrites):
            found.append({**_pass(step, known), "diffs": diffs})
    return found


def _pass(step: StepRecord, known: Provenance) -> dict[str, Any]:
    return {
        "name": step.name.partition("{")[0],
        "spec": step.spec,
        "stage": step.stage,
        "why": step.why,
        "own": step.is_inserted,
        "ms": 1e3 * step.seconds,
        "changed": [part for part in step.parts if part != HOST],
        "notes": [[note.op, note.reason, known.number_of(note.location)] for note in step.notes],
        "counts": step.statistics,
        "rewrites": [
            [r.rewrite.rule, r.rewrite.op, r.rewrite.location, r.source, known.number_of(r.rewrite.provenance)]
            for r in step.rewrites
        ],
    }


def _diff(part: str, before: list[Line], after: list[Line], known: Provenance) -> list[dict[str, Any]]:
    lines = changed_lines([line.text for line in before], [line.text for line in after])
    if not lines:
        return []
    kept = lines[:_MOST_DIFF_LINES]
    numbers = [
        known.number_of(after[line.new].location if line.new >= 0 else before[line.old].location)
        if line.kind != "@"
        else -1
        for line in kept
    ]
    if len(kept) < len(lines):
        numbers.append(-1)
    texts = [line.kind + line.text for line in kept]
    texts += [f"@{len(lines) - len(kept)} more lines"] if len(kept) < len(lines) else []
    return [{"part": part, "text": "\n".join(texts), "sets": numbers}]


def _stages(trace: GraphTrace, known: Provenance) -> list[dict[str, Any]]:
    """The module where a stage is complete; behind `kernels`, its functions alone: kernels have a tab of their own."""
    found: list[dict[str, Any]] = []
    text = ""
    for i, step in enumerate(trace.steps):
        text = step.parts.get(HOST, text)
        later = [other.stage for other in trace.steps[i + 1 :]]
        is_last = step.stage and step.stage not in later
        if (is_last and (HOST in step.parts or step.stage in ("graph", "kiln", "fused", "sched"))) or i == 0:
            found.append({"title": step.stage or "torch", **known.text(located_lines(text)).data()})
    return found


def _launches(trace: GraphTrace, known: Provenance) -> list[dict[str, Any]]:
    """The steps of the plan: what each reads and writes, computes, is estimated to take, and takes."""
    plan = trace.plan
    if plan is None:
        return []
    kernels = {name: i for i, name in enumerate(trace.kernels())}
    places = {name: [i for i, other in enumerate(trace.launched) if other == name] for name in kernels}
    calls = _called(trace, known)
    memory, roof = trace.report.memory, roof_of(trace)
    found: list[dict[str, Any]] = []
    for i, step in enumerate(plan.steps):
        moved = memory.steps[i] if memory is not None else None
        is_launch = isinstance(step, Launch)
        name = step.op if isinstance(step, AtenStep) else trace.kernel_of(step)
        place = places[name].pop(0) if places.get(name) else None
        times = trace.times[i] if i < len(trace.times) else None
        kind = plan.kernels[step.kernel].kind if isinstance(step, Launch) else "aten"
        flops = _flops(kind, work_of(step)) if isinstance(step, Launch) else None
        reads, writes = _buffers(step)
        found.append(
            {
                "name": step.name or name,
                "kernel": kernels.get(name, -1),
                "kind": kind,
                "reason": _reason(step),
                "set": known.of_launch(trace, place) if place is not None else _taken(calls, step.name or name),
                "read": moved.read if moved else None,
                "written": moved.written if moved else None,
                "flops": flops,
                "estimate": estimated_seconds(trace.target, _is_product(kind), moved, flops) if is_launch else None,
                "measured": times.median if times is not None else None,
                "roof": roof.seconds(times) if roof is not None and times is not None and is_launch else None,
                "reads": reads,
                "writes": writes,
            }
        )
    return found


def _called(trace: GraphTrace, known: Provenance) -> dict[str, list[int]]:
    """The nodes of each call through PyTorch's dispatcher, by the operator's name, in order."""
    texts = [step.parts[HOST] for step in trace.steps if HOST in step.parts]
    found: dict[str, list[int]] = {}
    for line in located_lines(texts[-1]) if texts else ():
        operator = _OPERATOR.search(line.text)
        if operator is not None:
            found.setdefault(operator[1], []).append(known.number_of(line.location))
    return found


def _taken(calls: dict[str, list[int]], name: str) -> int:
    """The first of the calls of an operator that was not taken yet; -1: there is none."""
    return calls[name].pop(0) if calls.get(name) else -1


def _flops(kind: str, work: int) -> int | None:
    """Operations of a launch, where they are known; products count a multiplication and its addition as one."""
    if work <= 0:
        return None
    return 2 * work if kind == "library" or _is_product(kind) else work


def _is_product(kind: str) -> bool:
    return kind not in ("library", "aten") and opdef_of_kind(kind).flops is not None


def _reason(step: Launch | AtenStep) -> str:
    """Why a library does a step."""
    if isinstance(step, AtenStep):
        return step.reason
    called = step.product or step.convolution
    return called.reason if called is not None else ""


def _buffers(step: Launch | AtenStep) -> tuple[list[int], list[int]]:
    if isinstance(step, AtenStep):
        return [operand.buffer for operand in step.operands], [b for b in step.results if b >= 0]
    count = len(step.pointers) - step.results
    return [p.buffer for p in step.pointers[:count]], [p.buffer for p in step.pointers[count:]]


def _memory(plan: Plan | None) -> dict[str, Any]:
    """The buffers of a plan, with the steps between which they live."""
    if plan is None:
        return {"buffers": [], "steps": 0}
    offsets = plan.offsets or {}
    return {
        "steps": len(plan.steps),
        "buffers": [
            {
                "kind": b.kind,
                "type": f"{b.dtype}[{', '.join(map(str, b.shape))}]",
                "bytes": b.bytes,
                "first": b.first,
                "last": b.last,
                "offset": offsets.get(i),
            }
            for i, b in enumerate(plan.buffers)
        ],
    }
