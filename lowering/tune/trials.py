# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A kernel of its own, or a library's: what running an op both ways is given, and what it says (`Target.judges`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a graph that is loaded from the cache needs no MLIR
    from torch_mlir import ir

    from kiln.lowering.tune.store import TunedSchedules

__all__ = ["Judge", "Trials", "Verdict"]


@dataclass(frozen=True)
class Verdict:
    """Whether the library is to be called, with which of its algorithms (by its own ranking), and the times; else, into
    how many parts the sums are split.
    """

    library: bool
    reason: str
    candidate: int = 0
    parts: int = 1


class Judge(Protocol):
    """Runs an op both ways."""

    def verdict(self, op: "ir.Operation") -> Verdict | None:
        """Which way is faster; None where the rules are to decide."""
        ...


@dataclass(frozen=True)
class Trials:
    """How ops are run both ways.

    store: where what was found is kept. seconds: how long the two ways of an op are timed; graph_seconds: from when on
    the rules decide. tf32, tensor_maps: as ``schedule-gpu`` is told. roundings: kernels keep eager's roundings to 16
    bits between their ops. caller: what puts the library's call in the place of an op of such a name.
    """

    store: "TunedSchedules"
    seconds: float
    graph_seconds: float
    tf32: bool
    tensor_maps: bool
    roundings: bool
    caller: Callable[[str], Callable[["ir.Operation"], None]]
