# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A kernel at each of its levels, from the fusion to instructions, as JSON."""

import re
from collections.abc import Sequence
from typing import Any

from kiln.frontend.report.trace.locations import Line, located_lines
from kiln.frontend.report.trace.machine_code import Instruction, assembly, hot_loop, ptx, sass, triton_stage
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
            levels.append(_triton_ir(trace, name, known))
        text = trace.part_at(name, stage)
        if text is not None:
            levels.append(_level(title, located_lines(text), name, known))
    code = trace.code.get(name, {})
    if "s" in code:
        levels.append(_assembly(trace, name, code["s"], known, levels))
    elif "LLVM IR" in [level["title"] for level in levels] and not code:
        levels.append({"title": "assembly", "text": "", "sets": [], "note": "neither llvm-objdump nor objdump is here"})
    levels += _by_triton(trace, name, known, levels) if name in trace.ttir else []
    return {
        "name": name,
        "kind": trace.kinds.get(name, ""),
        "schedule": trace.schedules.get(name, ""),
        "levels": levels,
    }


def _triton_ir(trace: GraphTrace, name: str, known: Provenance) -> Level:
    """What Triton is given; kernels that Kiln schedules itself are TTGIR of a template, which knows no ops."""
    level = _level("Triton IR", located_lines(trace.ttir[name]), name, known)
    if max(level["sets"], default=-1) < 0:
        whole = known.number_in(name, _whole(trace, name))
        level |= {
            "sets": [whole] * len(level["sets"]),
            "note": "lines lead to the kernel as a whole: it is a template's",
        }
    return level


def _by_triton(trace: GraphTrace, name: str, known: Provenance, levels: Sequence[Level]) -> list[Level]:
    """What Triton and ptxas made of a kernel; ``levels``: those above."""
    code, found = trace.code.get(name, {}), list(levels)
    for ending, title in _BY_TRITON.items():
        if ending in code:
            lines = ptx(code[ending]) if ending == "ptx" else triton_stage(code[ending])
            found.append(_of_level(title, lines, found, _number(found, "Triton IR")))
    if "sass" in code:
        found.append(_of_level("SASS", sass(code["sass"], code["ptx"]), found, _number(found, "PTX")))
    elif "ptx" in code:
        found.append({"title": "SASS", "text": "", "sets": [], "note": "no nvdisasm is here"})
    return found[len(levels) :]


def _level(title: str, lines: Sequence[Line], kernel: str, known: Provenance) -> Level:
    return {"title": title, **known.text(lines, kernel).data()}


def _assembly(trace: GraphTrace, name: str, code: str, known: Provenance, levels: list[Level]) -> Level:
    text = trace.part_at(name, "llvm") or ""
    plain = "\n".join(line.text for line in located_lines(text))
    lines, problem = assembly(code, plain, name, trace.levels[name])
    level = _of_level("assembly", lines, levels, _number(levels, "LLVM IR"))
    if problem:  # all lines lead to the kernel as a whole
        whole = known.number_in(name, _whole(trace, name))
        level |= {"sets": [whole] * len(lines), "note": f"lines lead to the kernel as a whole: {problem}"}
    return level


def _number(levels: Sequence[Level], title: str) -> int:
    return next(number for number, level in enumerate(levels) if level["title"] == title)


def _of_level(title: str, lines: list[Instruction], levels: Sequence[Level], of: int) -> Level:
    """Instructions of lines of the level ``levels[of]``."""
    sets: list[int] = levels[of]["sets"]
    texts = [instruction.text for instruction in lines]
    return {
        "title": title,
        "text": "\n".join(re.sub(r" *\t", "  ", text) for text in texts),
        "sets": [sets[i.line - 1] if 0 < i.line <= len(sets) else -1 for i in lines],
        "refs": [i.line - 1 for i in lines],
        "of": of,
        "hot": hot_loop(texts) if title in ("assembly", "PTX", "SASS") else None,
    }


def _whole(trace: GraphTrace, kernel: str) -> str:
    """The locations of all ops of a kernel's fusion."""
    position = trace.launched.index(kernel) if kernel in trace.launched else -1
    return " ".join(trace.locations[position]) if 0 <= position < len(trace.locations) else ""
