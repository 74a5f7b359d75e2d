# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A person's edits of stages and schedules, and the folder that a compilation takes them from."""

from dataclasses import dataclass, field
from pathlib import Path

from kiln.errors import KilnError
from kiln.passes.instruments.manifest import manifest, write_edits
from kiln.tools.live.edited_text import Merged, merged
from kiln.tools.live.jobs import Failure, Job, Outcome

__all__ = ["Edits", "Place"]

_LEVELS = ("ttir", "vector", "llvm", "ptx")


@dataclass(frozen=True)
class Place:
    """Where an error is: the number of a graph, a part of it ("sched"), a line of the text that was edited, from 1."""

    graph: int
    part: str
    line: int


@dataclass
class Edits:
    """``parts``: by the number of a graph and the part's name, a text; ``schedules``: by graph and fusion."""

    parts: dict[tuple[int, str], Merged] = field(default_factory=dict[tuple[int, str], Merged])
    schedules: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])

    def names(self) -> list[list[int | str]]:
        """What is edited: pairs of a graph's number and a text for people."""
        found: list[list[int | str]] = [[g, part] for g, part in self.parts if not self._of_schedules(g, part)]
        return [*found, *([g, f"schedule of {fusion}"] for g, fusion in self.schedules)]

    def with_part(self, graph: int, part: str, dumped: str, text: str) -> "Edits":
        """With an edited text. Edits of what is made of it are dropped: it would not be compiled otherwise."""
        parts = {key: kept for key, kept in self.parts.items() if key[0] != graph or not _is_behind(part, key[1])}
        schedules = {key: s for key, s in self.schedules.items() if key[0] != graph or not _is_behind(part, "sched")}
        return Edits({**parts, (graph, part): merged(dumped, text)}, schedules)

    def with_schedule(self, graph: int, fusion: str, dumped: str, schedule: str) -> "Edits":
        """With another schedule of a fusion. dumped: the scheduled IR, where no edit has one."""
        parts = {key: kept for key, kept in self.parts.items() if key[0] != graph or not _is_behind("sched", key[1])}
        parts.setdefault((graph, "sched"), Merged(dumped, 0))
        return Edits(parts, {**self.schedules, (graph, fusion): schedule})

    def write(self, folder: Path, unedited: Outcome, dump: Path, job: Job) -> None:
        """Make the folder that ``job`` compiles with. unedited: a compilation without edits; dump: its folder."""
        for number, name in enumerate(unedited.graphs):
            files = {_file(unedited, number, part): text.text for (g, part), text in self.parts.items() if g == number}
            if not files:
                continue
            write_edits(folder / name, manifest(dump / name)["graph"], files)
            schedules = {fusion: text for (g, fusion), text in self.schedules.items() if g == number}
            if schedules:
                job.schedules[name] = (_file(unedited, number, "sched"), schedules)
        job.override = str(folder)

    def place_of(self, failure: Failure, unedited: Outcome) -> Place | None:
        """The place of an error in a text that was edited."""
        path = Path(failure.file)
        for (graph, part), text in self.parts.items():
            file = (unedited.graphs[graph], _file(unedited, graph, part))
            if failure.file and file == (path.parent.name, path.name):
                line = 0 if self._of_schedules(graph, part) else failure.line - text.head
                return Place(graph, part, max(line, 0))
        return None

    def _of_schedules(self, graph: int, part: str) -> bool:
        """Whether a text is written anew with schedules."""
        return part == "sched" and any(g == graph for g, _ in self.schedules)


def _file(unedited: Outcome, graph: int, part: str) -> str:
    """The name of a part's file in a dump. Kernels need no file in that of the unedited model."""
    known = unedited.sources[graph]
    if part in known:
        return known[part]
    if "." not in part:
        raise KilnError(f"the graph has no stage {part!r}")
    return f"{part}.mlir"


_STAGES = ("torch", "graph", "kiln", "fused", "sched", "kernels")


def _is_behind(part: str, other: str) -> bool:
    """Whether ``other`` is made of ``part``, or is the same."""
    kernel, dot, level = part.rpartition(".")
    other_kernel, other_dot, other_level = other.rpartition(".")
    if dot:
        return bool(other_dot) and kernel == other_kernel and _LEVELS.index(other_level) >= _LEVELS.index(level)
    return bool(other_dot) or _rank(other) >= _rank(part)


def _rank(stage: str) -> int:
    return _STAGES.index(stage) if stage in _STAGES else len(_STAGES)
