# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""GPU kernels that do not compile: the graph is compiled again with smaller schedules for them before it calls ATen."""

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.schedules import Schedule, from_attribute, to_attribute
from kiln.lowering.gpu.smaller import smaller_schedule
from kiln.lowering.host.kernels import fusion_key
from kiln.passes.core import Pass
from kiln.passes.fusion.kernels import fusions_of

__all__ = ["Rejected", "SmallerSchedules", "UseSmallerSchedules"]

_MOST_ATTEMPTS = 8
"""As often a graph is compiled again: what is still rejected then is not rejected for its size."""


@dataclass(frozen=True)
class Rejected:
    """A kernel that Triton did not compile: which one, the schedule to try next (None: there is none), and why."""

    key: str
    smaller: Schedule | None
    reason: str

    @classmethod
    def of(cls, fusion: ir.OpView, reason: str) -> "Rejected":
        """That of a fusion with its schedule; ``reason`` is the compiler's."""
        attributes = fusion.operation.attributes
        smaller = smaller_schedule(from_attribute(attributes["schedule"])) if "schedule" in attributes else None
        return cls(_key(fusion), smaller, reason.partition("\n")[0])


class SmallerSchedules:
    """What was rejected in the attempts at one graph; there are `_MOST_ATTEMPTS` of these."""

    def __init__(self) -> None:
        self._known: dict[str, Rejected] = {}
        self._attempts = 0

    def learn(self, rejected: list[Rejected | None]) -> bool:
        """Whether another attempt makes sense: each of these kernels has a smaller schedule."""
        found = [r for r in rejected if r is not None and r.smaller is not None and r.key not in self._known]
        self._attempts += 1
        if len(found) < len(rejected) or self._attempts > _MOST_ATTEMPTS:
            return False
        self._known.update((r.key, r) for r in found)
        return bool(found)

    def __bool__(self) -> bool:
        """Whether there is anything to replace."""
        return bool(self._known)

    def apply(self, module: ir.Module, note: Callable[[ir.Operation, str], None]) -> None:
        """Replace the schedules of a module's fusions that were rejected before."""
        for fusion in fusions_of(module):
            while (known := self._known.get(_key(fusion))) is not None and known.smaller is not None:
                fusion.operation.attributes["schedule"] = to_attribute(known.smaller)
                note(fusion.operation, f"a smaller schedule: {known.reason}")


class UseSmallerSchedules(Pass):
    """Replace the schedules of kernels that Triton did not compile in an earlier attempt at the graph."""

    name = "use-smaller-schedules"

    def __init__(self, smaller: SmallerSchedules) -> None:
        self._smaller = smaller

    def run(self, module: ir.Module) -> None:
        self._smaller.apply(module, self.note)


def _key(fusion: ir.OpView) -> str:
    """Equal for equal kernels, also before it is known which addresses are aligned."""
    attributes = fusion.operation.attributes
    unaligned = attributes["unaligned"] if "unaligned" in attributes else None
    if unaligned is not None:
        del attributes["unaligned"]
    try:
        return fusion_key(fusion.operation)
    finally:
        if unaligned is not None:
            attributes["unaligned"] = unaligned
