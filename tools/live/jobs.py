# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a process that compiles is asked, and what it answers. Needs neither PyTorch nor MLIR."""

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Failure", "Job", "Outcome"]


@dataclass
class Job:
    """One compilation.

    model: "module:function". load: Python files that register passes, patterns or rules. inserts: pipeline text,
    "after" or "before", and a pass or stage. target, mode, dynamic, training: as for ``kiln-trace``. calls: how often
    the model is called to measure kernels. dump: a folder for the stages. override: a folder of edits, or empty.
    schedules: for a graph's folder in that, the name of a file of scheduled IR, and schedules by fusions. compare: also
    compare numbers and time with the model as it is compiled without edits. result: the file for the answer.
    """

    model: str
    dump: str
    result: str
    load: list[str] = field(default_factory=list[str])
    inserts: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    target: str = ""
    mode: str | None = None
    dynamic: bool = False
    training: bool = False
    calls: int = 5
    override: str = ""
    schedules: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict[str, tuple[str, dict[str, str]]])
    compare: bool = False

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)


@dataclass
class Failure:
    """Why a compilation has no result. ``file``, ``line``: of an edited file, where one is to blame."""

    message: str
    pass_name: str = ""
    file: str = ""
    line: int = 0
    trace: str = ""


@dataclass
class Outcome:
    """What became of a job.

    data: what the trace's page shows. graphs: the dump's folders, in the order of the data's graphs. sources: what may
    be edited of each graph: names of files by stage. schedules: of each graph's fusions. files: Python files that the
    compilation read. comparison: numbers and seconds.
    """

    data: dict[str, Any] = field(default_factory=dict[str, Any])
    graphs: list[str] = field(default_factory=list[str])
    sources: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    schedules: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    files: list[str] = field(default_factory=list[str])
    comparison: dict[str, Any] = field(default_factory=dict[str, Any])
    failure: Failure | None = None

    @staticmethod
    def of(found: dict[str, Any]) -> "Outcome":
        """From JSON."""
        failure = found.pop("failure", None)
        return Outcome(**found, failure=Failure(**failure) if failure else None)
