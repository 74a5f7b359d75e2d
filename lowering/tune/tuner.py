# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Choosing a kernel's schedule by running candidates: what is the same for all targets."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from torch_mlir import ir

from kiln.dialects.schedules import Schedule
from kiln.errors import KilnError, UnsupportedError
from kiln.lowering.host.constants import constant_name
from kiln.lowering.host.kernels import fusion_key
from kiln.lowering.tune.measure import Measure, interleaved
from kiln.lowering.tune.store import Found, TriedSchedule, TunedSchedules

__all__ = ["Contest", "Tuner"]

_FINALISTS = 2


class Tuner(ABC):
    """Finds schedules, remembering them in `store`. A target's tuner says what is tried, and how it is run.

    Args:
        seconds: how long the candidates of one kernel are timed; compiling them comes on top.
        measure: times runs, see `Measure`.
    """

    margin: ClassVar[float]
    """A candidate has to be faster than the default by more than this: timing is not more exact."""

    def __init__(self, store: TunedSchedules, seconds: float = 0.5, measure: Measure = interleaved) -> None:
        self.store, self.seconds, self.measure = store, seconds, measure

    def key(self, fusion: ir.OpView) -> str:
        """What a kernel's time depends on: all that its code does, which operands are constants, and the machine."""
        attributes = fusion.operation.attributes
        schedule = attributes["schedule"]
        del attributes["schedule"]
        try:
            text = fusion_key(fusion.operation)
        finally:
            attributes["schedule"] = schedule
        frozen = [i for i, v in enumerate(fusion.operation.operands) if constant_name(v) is not None]
        return self.store.key(text, frozen, *self.machine(), *self.circumstances(fusion))

    def circumstances(self, fusion: ir.OpView) -> tuple[object, ...]:
        """What times depend on of the rest of the graph."""
        return ()

    @abstractmethod
    def machine(self) -> tuple[object, ...]:
        """What times depend on besides the kernel."""

    def known(self, fusion: ir.OpView) -> Found | None:
        """What was found for an equal kernel before."""
        return self.store.get(self.key(fusion))

    def find(self, fusion: ir.OpView) -> Found:
        """Time the candidates for a fusion with a schedule, and remember the winner.

        Raises:
            UnsupportedError: it cannot be run by itself, or timed now, with the reason.
            KilnError: the default does not compile.
        """
        return self.decide(fusion, self.prepared(fusion))

    @abstractmethod
    def prepared(self, fusion: ir.OpView) -> "Contest":
        """The candidates for a fusion, ready to be compared. Raises as `find` does."""

    def decide(self, fusion: ir.OpView, contest: "Contest") -> Found:
        """Time what was prepared for a fusion, and remember the winner.

        The best ones of the first half of the time meet the default in the second half, which decides.
        Raises UnsupportedError where times vary too much.
        """
        runs = contest.runs
        times = self.measure([run for *_, run in runs], self.seconds / 2)
        order = sorted(range(1, len(runs)), key=lambda i: times[i].median)[:_FINALISTS]
        last = [0, *order]
        final = self.measure([runs[i][2] for i in last], self.seconds / 2) if order else [times[0]]
        if final[0].is_disturbed:
            where = str(fusion.operation.location)
            raise UnsupportedError("kiln.fusion", where, "calls of one kernel vary too much: the machine is busy")
        best = 0
        for i in range(1, len(last)):
            if final[i].beats(final[0], self.margin) and (best == 0 or final[i].median < final[best].median):
                best = i
        schedule, label, _ = runs[last[best]]
        # Those that met in the end have the times of that: the clock may be another one by then.
        latest = dict(enumerate(times)) | dict(zip(last, final, strict=True))
        tried = [TriedSchedule(name, latest[i].median) for i, (_, name, _) in enumerate(runs)]
        found = Found(schedule, label, final[0].median, final[best].median, [*tried, *contest.failed])
        self.store.put(self.key(fusion), found)
        return found


@dataclass
class Contest:
    """What is compared for one kernel: schedule, label and run of each entry, the default first; and what failed."""

    runs: list[tuple[Schedule, str, Callable[[], None]]] = field(
        default_factory=list[tuple[Schedule, str, Callable[[], None]]]
    )
    failed: list[TriedSchedule] = field(default_factory=list[TriedSchedule])

    @classmethod
    def of(cls, fusion: ir.OpView, default: Schedule, others: Sequence[Schedule]) -> Self:
        """An empty one. Raises UnsupportedError where nothing can be compared with the default."""
        if not others:
            raise UnsupportedError("kiln.fusion", str(fusion.operation.location), "no other schedule fits")
        return cls()

    def enter(self, schedule: Schedule, label: str, run: Callable[[], None]) -> None:
        """Add an entry that runs."""
        self.runs.append((schedule, label, run))

    def discard(self, label: str, error: Exception) -> None:
        """Say why a candidate is none."""
        reason = str(error) if isinstance(error, KilnError) else f"{type(error).__name__}: {error}"
        self.failed.append(TriedSchedule(label, 0.0, reason.splitlines()[0] if reason else "it failed"))
