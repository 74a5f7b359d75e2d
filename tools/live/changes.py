# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What differs between two compilations: their stages, kernels and times, from the data of the trace's page."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from kiln.frontend.report.trace.diffing import changed_lines

__all__ = ["changes", "launch_times"]

_MOST_LINES = 1500


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """The stages and levels of kernels that differ: the graph's number, a title, and lines that begin with " ", "-",
    "+" or "@" (lines that are left out).
    """
    found: list[dict[str, Any]] = []
    for number, (old, new) in enumerate(zip(before.get("graphs", ()), after.get("graphs", ()), strict=False)):
        theirs = dict(_texts(old))
        mine = dict(_texts(new))
        for title in dict.fromkeys([*mine, *theirs]):
            lines = changed_lines(theirs.get(title, "").split("\n"), mine.get(title, "").split("\n"))
            texts = [line.kind + line.text for line in lines[:_MOST_LINES]]
            if len(lines) > _MOST_LINES:
                texts.append(f"@{len(lines) - _MOST_LINES} more lines")
            if texts:
                found.append({"graph": number, "title": title, "text": "\n".join(texts)})
    return found


def launch_times(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of the plans that were measured in either: graph, name, seconds before and after (None: not there)."""
    found: list[dict[str, Any]] = []
    for number, (old, new) in enumerate(zip(before.get("graphs", ()), after.get("graphs", ()), strict=False)):
        theirs, mine = _measured(old), _measured(new)
        for name in dict.fromkeys([*mine, *theirs]):
            found.append({"graph": number, "name": name, "before": theirs.get(name), "after": mine.get(name)})
    return found


def _texts(graph: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Titles and texts of a graph's stages, and of the levels and schedules of its kernels."""
    for stage in graph["stages"]:
        yield f"stage {stage['title']}", stage["text"]
    seen: Counter[str] = Counter()
    for kernel in graph["kernels"]:
        name = _numbered(_without_digest(kernel["name"]), seen)
        yield f"schedule of {name}", kernel.get("schedule") or ""
        for level in kernel["levels"]:
            yield f"{level['title']} of {name}", level["text"].replace(kernel["name"], name)


def _measured(graph: dict[str, Any]) -> dict[str, float]:
    seen: Counter[str] = Counter()
    steps = [(_numbered(_without_digest(step["name"]), seen), step["measured"]) for step in graph["launches"]]
    return {name: seconds for name, seconds in steps if seconds is not None}


def _without_digest(name: str) -> str:
    """A kernel's name without the digest of its code, which differs where the code does."""
    head, _, last = name.rpartition("_")
    return head if head and len(last) == 16 and all(c in "0123456789abcdef" for c in last) else name


def _numbered(name: str, seen: Counter[str]) -> str:
    seen[name] += 1
    return name if seen[name] == 1 else f"{name}#{seen[name]}"
