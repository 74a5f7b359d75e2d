# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A kernel of its own, or a library's: what all decide alike that run both ways. How they are run: `library.py` for
products, `calls.py` for what ATen is called for.
"""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from torch_mlir import ir

from kiln.errors import KilnError
from kiln.lowering.gpu.dot.fusions import DotOptions
from kiln.lowering.gpu.tune.tuner import GpuTuner, chip_name
from kiln.lowering.tune.measure import Measure
from kiln.lowering.tune.store import Found, LibraryVerdict, TunedSchedules
from kiln.lowering.tune.trials import Verdict

__all__ = ["Case", "Judge"]


@dataclass(frozen=True)
class Case:
    """What is to be decided. key: all that times depend on but the machine."""

    op: ir.Operation
    key: tuple[object, ...]


C = TypeVar("C", bound=Case)


class Judge(ABC, Generic[C]):
    """Decides by running both; what was found is remembered.

    Args:
        store: where schedules and verdicts are remembered.
        options, device, seconds, measure: as for `GpuTuner`.
        graph_seconds: from when on, compilation included, the rules decide.

    Subclasses have `case` and `compare`; `Found.schedule` is a `LibraryVerdict`, `default` is the time of the own
    kernel, `seconds` that of the library.
    """

    library: ClassVar[str] = "the library"
    """Its name."""

    def __init__(
        self,
        store: TunedSchedules,
        options: DotOptions,
        device: str,
        seconds: float = 0.5,
        graph_seconds: float = 60.0,
        measure: Measure | None = None,
    ) -> None:
        self.tuner = GpuTuner(store, options, device, seconds, measure)
        self.store, self.options, self.device = store, options, device
        self._end = time.perf_counter() + graph_seconds
        self._failed: set[str] = set()

    @abstractmethod
    def case(self, op: ir.Operation) -> C | None:
        """What to compare for an op; None where it cannot be tried."""

    @abstractmethod
    def compare(self, case: C) -> Found:
        """Run both ways. Raises KilnError where one does not run."""

    def verdict(self, op: ir.Operation) -> Verdict | None:
        """That of an op of known sizes; None where it cannot be tried, or there is no time left."""
        try:
            case = self.case(op)
        except (KilnError, RuntimeError, AssertionError):
            return None  # no kernel
        if case is None:
            return None
        key = self.store.key("library", *case.key, self.options, chip_name(self.device))
        found = self.store.get(key)
        if found is None:
            if key in self._failed or time.perf_counter() > self._end:
                return None
            try:
                found = self.compare(case)
            except (KilnError, RuntimeError, AssertionError):
                self._failed.add(key)  # what cannot be run is left to the rules: no GPU, no memory
                return None
            self.store.put(key, found)
        return self._told(found)

    def _told(self, found: Found) -> Verdict:
        verdict = found.schedule
        assert isinstance(verdict, LibraryVerdict), "a judge's key is that of no kernel"
        library, candidate, parts = verdict.library, verdict.candidate, verdict.parts
        which = f" (its algorithm {candidate})" if candidate else ""
        own = f"{1e6 * found.default:.1f} us in a kernel of its own"
        times = f"{1e6 * found.seconds:.1f} us with {self.library}{which}, {own}"
        if parts > 1:
            times += f", {1e6 * verdict.parts_seconds:.1f} us in {parts} parts of its sums"
        return Verdict(library, f"{self.library}: {times}" if library else times, candidate, parts)
