# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the passes that try schedules have in common: which kernels come first, what is remembered, what is told."""

import math
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from torch_mlir import ir

from kiln.dialects.schedules import to_attribute
from kiln.errors import KilnError, UnsupportedError
from kiln.lowering.tune.store import Found, TunedSchedules
from kiln.lowering.tune.tuner import Contest, Tuner
from kiln.passes.core import Compilation, Pass
from kiln.passes.fusion.kernels import fusions_of

__all__ = ["AutotunePass", "RemembersSchedules"]

_in_memory = TunedSchedules()


class RemembersSchedules:
    """A pass that keeps what it measured."""

    @classmethod
    def made(cls, options: Mapping[str, Any], compilation: Compilation) -> Self:
        """The pass with its options and the compilation's store of schedules, if that has one."""
        pass_ = cls(**options)
        if compilation.schedules is not None:
            pass_.store = compilation.schedules
        return pass_

    @property
    def store(self) -> TunedSchedules:
        """Where that is kept: in this process, unless set."""
        return self.__dict__.get("_store", _in_memory)

    @store.setter
    def store(self, store: TunedSchedules) -> None:
        self.__dict__["_store"] = store


class AutotunePass(RemembersSchedules, Pass):
    """A pass that tunes every fusion with a schedule; subclasses have the options, and make the tuner."""

    graph_seconds: float
    ahead: ClassVar[int] = 0
    """Kernels whose candidates are made before those of the kernel in front of them are timed."""

    def tuner(self) -> Tuner:
        """What finds schedules."""
        raise NotImplementedError(f"{type(self).__name__}.tuner")

    def run(self, module: ir.Module) -> None:
        """Tune every fusion with a schedule, those with the most work first; equal ones once."""
        tuner = self.tuner()
        equal: dict[str, list[ir.OpView]] = {}
        for fusion in fusions_of(module):
            if "schedule" in fusion.operation.attributes:
                equal.setdefault(tuner.key(fusion), []).append(fusion)
        start = time.perf_counter()
        waiting: list[tuple[list[ir.OpView], Contest]] = []
        for fusions in sorted(equal.values(), key=lambda fs: _weight(fs[0]) * len(fs), reverse=True):
            found = tuner.known(fusions[0])
            if found is not None:
                self._take(found, fusions, remembered=True)
                continue
            try:
                if time.perf_counter() - start > self.graph_seconds:
                    raise UnsupportedError("", "", f"the {self.graph_seconds:g} s for this graph are over")
                waiting.append((fusions, tuner.prepared(fusions[0])))
            except KilnError as error:
                self._leave(fusions, error)
            while len(waiting) > self.ahead:
                self._decide(tuner, *waiting.pop(0))
        for entry in waiting:
            self._decide(tuner, *entry)

    def _decide(self, tuner: Tuner, fusions: list[ir.OpView], contest: Contest) -> None:
        try:
            found = tuner.decide(fusions[0], contest)
        except KilnError as error:
            self._leave(fusions, error)
            return
        self._take(found, fusions)

    def _take(self, found: Found, fusions: list[ir.OpView], remembered: bool = False) -> None:
        for i, fusion in enumerate(fusions):
            fusion.operation.attributes["schedule"] = to_attribute(found.kernel_schedule)
            self.count("failed" if found.label == "default" else "matched")
            before = ", found before" if remembered or i else ""
            self.note(fusion.operation, f"{_name(fusion)}: {_summary(found)}{before}")

    def _leave(self, fusions: list[ir.OpView], error: KilnError) -> None:
        reason = error.reason if isinstance(error, UnsupportedError) else str(error)
        for fusion in fusions:
            self.count("failed")
            self.note(fusion.operation, f"{_name(fusion)}: not tuned: {reason}")


def _name(fusion: ir.OpView) -> str:
    return ir.StringAttr(fusion.operation.attributes["name"]).value


def _weight(fusion: ir.OpView) -> float:
    """About the multiplications of a fusion, to order by: for a product the root of its operands' sizes."""
    sizes = [math.prod(max(n, 1) for n in t.shape) for t in _tensor_types(fusion)]
    return math.sqrt(math.prod(float(n) for n in sorted(sizes)[-3:]))


def _tensor_types(fusion: ir.OpView) -> list[ir.RankedTensorType]:
    values = [*fusion.operation.operands, *fusion.operation.results]
    return [ir.RankedTensorType(v.type) for v in values if isinstance(v.type, ir.RankedTensorType)]


def _summary(found: Found) -> str:
    tried = ", ".join(f"{t.label} {t.reason or _time(t.seconds)}" for t in found.tried if t.label != "default")
    if found.label == "default":
        return f"the default stays ({_time(found.default)}); tried: {tried}"
    won = f"{found.label} {_time(found.seconds)} instead of {_time(found.default)}"
    return f"{won} ({found.default / found.seconds:.2f} times as fast); tried: {tried}"


def _time(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} us" if seconds < 1e-3 else f"{1e3 * seconds:.2f} ms"
