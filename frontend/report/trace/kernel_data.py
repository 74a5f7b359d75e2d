# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A kernel at each of its levels, from the fusion to instructions, as JSON."""

from collections.abc import Sequence
from typing import Any

from kiln.frontend.report.trace.locations import Line, located_lines
from kiln.frontend.report.trace.machine_code import Instruction, assembly, hot_loop, ptx, triton_stage
from kiln.frontend.report.trace.provenance import Provenance
from kiln.frontend.report.trace.records import GraphTrace

__all__ = ["kernel_data"]

Level = dict[str, Any]

_STAGES = {"kernels": "linalg", "vector": "loops", "llvm": "LLVM IR"}
_BY_TRITON = {"ttgir": "TTGIR", "llir": "LLVM IR", "ptx": "PTX"}


def kernel_data(trace: GraphTrace, name: str, known: Provenance) -> dict[str, Any]:
    """Name, kind, schedule and levels. A level has ``text`` and ``sets`` as `Text`; ``of``: the level whose lines its
    ``refs`` name (from 0; -1: none); ``hot``: first and last line of its hot loop; ``note``: what is missing, and why.
    """
    levels: list[Level] = []
    for stage, title in _STAGES.items():
        if stage == "vector" and name in trace.ttir:
            levels.append(_level("Triton IR", located_lines(trace.ttir[name]), name, known))
        text = trace.part_at(name, stage)
        if text is not None:
            levels.append(_level(title, located_lines(text), name, known))
    code = trace.code.get(name, {})
    if "s" in code:
        levels.append(_assembly(trace, name, code["s"], known, levels))
    elif "LLVM IR" in [level["title"] for level in levels] and not code:
        levels.append({"title": "assembly", "text": "", "sets": [], "note": "neither llvm-objdump nor objdump is here"})
    given = trace.ttir.get(name, "")
    for ending, title in _BY_TRITON.items():
        if ending in code:
            lines = ptx(code[ending]) if ending == "ptx" else triton_stage(code[ending])
            levels.append(_instructions(title, lines, name, known, levels, "Triton IR", given))
    return {
        "name": name,
        "kind": trace.kinds.get(name, ""),
        "schedule": trace.schedules.get(name, ""),
        "levels": levels,
    }


def _level(title: str, lines: Sequence[Line], kernel: str, known: Provenance) -> Level:
    return {"title": title, **known.text(lines, kernel).data()}


def _assembly(trace: GraphTrace, name: str, code: str, known: Provenance, levels: list[Level]) -> Level:
    text = trace.part_at(name, "llvm") or ""
    plain = "\n".join(line.text for line in located_lines(text))
    lines, problem = assembly(code, plain, name, trace.levels[name])
    level = _instructions("assembly", lines, name, known, levels, "LLVM IR", text)
    if problem:  # all lines lead to the kernel as a whole
        whole = known.number_in(name, _whole(trace, name))
        level |= {"sets": [whole] * len(lines), "note": f"lines lead to the kernel as a whole: {problem}"}
    return level


def _instructions(
    title: str, lines: list[Instruction], kernel: str, known: Provenance, levels: list[Level], of: str, source: str
) -> Level:
    """Instructions with the nodes of the lines of IR that they come from."""
    ir = located_lines(source)
    sets = [known.number_in(kernel, ir[i.line - 1].location) if 0 < i.line <= len(ir) else -1 for i in lines]
    texts = [instruction.text for instruction in lines]
    return {
        "title": title,
        "text": "\n".join(texts).expandtabs(8),
        "sets": sets,
        "refs": [i.line - 1 for i in lines],
        "of": next((n for n, level in enumerate(levels) if level["title"] == of), -1),
        "hot": hot_loop(texts) if title in ("assembly", "PTX") else None,
    }


def _whole(trace: GraphTrace, kernel: str) -> str:
    """The locations of all ops of a kernel's fusion."""
    position = trace.launched.index(kernel) if kernel in trace.launched else -1
    return " ".join(trace.locations[position]) if 0 <= position < len(trace.locations) else ""
