# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kinds of kernels: which function writes the kernel of which op, for which target.

An emitter registers itself where it is defined, for an op whose row in the table of ops has ``has_kernel``:

    @emits(kiln.ScanOp, target="cpu")
    def emit_scan_fusion(kernel: Kernel) -> None: ...

The ops that have an emitter for a target stay whole in its pipeline; others are taken apart into loops, which have one
emitter for all.
"""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, TypeVar

from torch_mlir import ir

from kiln.dialects.kiln import opdefs
from kiln.dialects.schedules import Schedule
from kiln.errors import KilnError, UnsupportedError, did_you_mean

__all__ = ["KernelKind", "emits", "kernel_kinds"]

_Emit = TypeVar("_Emit", bound=Callable[..., None])


@dataclass(frozen=True)
class KernelKind:
    """How the kernels of one op are made. What the functions take is the target's: see its ``emit.py``.

    emit: writes the kernel of a fusion. plan: its schedule; None where the layouts alone give the loops. schedules: the
    class of these, or a union of classes.
    """

    op: type[Any]
    emit: Callable[..., None]
    plan: Callable[..., Any] | None = None
    schedules: type[Schedule] | UnionType | None = None

    def accepted(self, schedule: Schedule | None, fusion: ir.OpView) -> Schedule | None:
        """A fusion's schedule, for its emitter. Raises UnsupportedError for that of another kernel."""
        if schedule is not None and self.schedules is not None and not isinstance(schedule, self.schedules):
            raise UnsupportedError(
                self.op.__name__, str(fusion.location), f"no kernel for a schedule {schedule.kernel}"
            )
        return schedule


_KINDS: dict[str, dict[str, KernelKind]] = {"cpu": {}, "gpu": {}}
"""By the folder of `lowering` whose `emit.py` writes the kernels."""


def emits(
    op: type[Any],
    target: str,
    plan: Callable[..., Any] | None = None,
    schedules: type[Schedule] | UnionType | None = None,
) -> Callable[[_Emit], _Emit]:
    """Decorator: the function writes kernels of fusions around ``op`` for ``target``, the folder of `lowering` that its
    module is in: "cpu" or "gpu".

    ``plan`` chooses a schedule, of the class or union of classes ``schedules``.

    Raises KilnError for another target, a second emitter of an op, and an op whose row says that it has no kernels.
    """
    entry = next((entry for entry in opdefs() if entry.op is op), None)
    if entry is None or not entry.has_kernel:
        raise KilnError(f"{op.__name__}: an emitter needs a row in the table of ops with has_kernel=True")
    if target not in _KINDS and importlib.util.find_spec(f"kiln.lowering.{target}") is None:
        raise KilnError(f"no target {target!r}{did_you_mean(target, _KINDS)}; targets: {', '.join(_KINDS)}")
    kinds = _KINDS.setdefault(target, {})
    if entry.kind in kinds:
        raise KilnError(f"{entry.name} has two emitters for {target!r}")

    def register(emit: _Emit) -> _Emit:
        kinds[entry.kind] = KernelKind(op, emit, plan, schedules)
        return emit

    return register


def kernel_kinds(target: str) -> Mapping[str, KernelKind]:
    """The kinds of kernels of a target by the ``kind`` of their fusions, in order of their names."""
    importlib.import_module(f"kiln.lowering.{target}.emit")
    return dict(sorted(_KINDS[target].items()))
