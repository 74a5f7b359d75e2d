# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Choosing a kernel's schedule by running candidates."""

from collections.abc import Callable
from typing import Any

from torch_mlir import ir

from kiln.errors import KilnError, UnsupportedError
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.schedule_attr import from_attribute
from kiln.lowering.cpu.tune.candidates import candidates, difference
from kiln.lowering.cpu.tune.measure import Measure, interleaved
from kiln.lowering.cpu.tune.store import Found, TriedSchedule, TunedSchedules
from kiln.lowering.cpu.tune.trial import Trial
from kiln.lowering.host.constants import constant_name
from kiln.lowering.host.kernels import fusion_key
from kiln.runtime.threads import max_threads

__all__ = ["Tuner"]

MARGIN = 1.03
"""A candidate has to be faster than the default by more than this: timing is not more exact."""
MAX_CANDIDATES = 8
_FINALISTS = 2


class Tuner:
    """Finds schedules, remembering them in `store`.

    Args:
        seconds: how long the candidates of one kernel are timed; compiling them comes on top.
        measure: times runs, see `Measure`.
    """

    def __init__(self, store: TunedSchedules, seconds: float = 0.5, measure: Measure = interleaved) -> None:
        self.store, self.seconds, self.measure = store, seconds, measure

    def key(self, fusion: ir.OpView) -> str:
        """What a kernel's time depends on: all that its code does, which operands are constants, CPU and threads."""
        attributes = fusion.operation.attributes
        schedule = attributes["schedule"]
        del attributes["schedule"]
        try:
            text = fusion_key(fusion.operation)
        finally:
            attributes["schedule"] = schedule
        frozen = [i for i, v in enumerate(fusion.operation.operands) if constant_name(v) is not None]
        return self.store.key(text, frozen, isa.target(), max_threads())

    def known(self, fusion: ir.OpView) -> Found | None:
        """What was found for an equal kernel before."""
        return self.store.get(self.key(fusion))

    def find(self, fusion: ir.OpView) -> Found:
        """Time the candidates for a fusion with a schedule, and remember the winner.

        The best ones of the first half of the time meet the default in the second half, which decides.

        Raises:
            UnsupportedError: it cannot be run by itself, or timed now, with the reason.
            KilnError: the default does not compile.
        """
        default: dict[str, Any] = from_attribute(fusion.operation.attributes["schedule"])
        trial = Trial(fusion, max_threads())
        others = candidates(trial.body, trial.layouts, default)[:MAX_CANDIDATES]
        if not others:
            raise UnsupportedError("kiln.fusion", str(fusion.operation.location), "no other schedule fits")
        runs: list[tuple[dict[str, Any], str, Callable[[], None]]] = [(default, "default", trial.prepare(default))]
        failed: list[TriedSchedule] = []
        for schedule in others:
            label = difference(schedule, default)
            try:
                runs.append((schedule, label, trial.prepare(schedule)))
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a candidate, the default is there
                reason = str(error) if isinstance(error, KilnError) else f"{type(error).__name__}: {error}"
                failed.append(TriedSchedule(label, 0.0, reason.splitlines()[0] if reason else "it failed"))
        times = self.measure([run for *_, run in runs], self.seconds / 2)
        order = sorted(range(1, len(runs)), key=lambda i: times[i].median)[:_FINALISTS]
        last = [0, *order]
        final = self.measure([runs[i][2] for i in last], self.seconds / 2) if order else [times[0]]
        if final[0].is_disturbed:
            where = str(fusion.operation.location)
            raise UnsupportedError("kiln.fusion", where, "calls of one kernel vary too much: the machine is busy")
        best = 0
        for i in range(1, len(last)):
            if final[i].beats(final[0], MARGIN) and (best == 0 or final[i].median < final[best].median):
                best = i
        schedule, label, _ = runs[last[best]]
        tried = [TriedSchedule(name, t.median) for (_, name, _), t in zip(runs, times, strict=True)]
        found = Found(schedule, label, final[0].median, final[best].median, [*tried, *failed])
        self.store.put(self.key(fusion), found)
        return found
