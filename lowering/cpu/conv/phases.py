# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The phases of a row of a transposed convolution: columns that meet the same columns of the window; their tiles."""

from dataclasses import dataclass

from kiln.lowering.cpu.conv.borders import Run, cut_row
from kiln.lowering.cpu.conv.problem import Axis, ConvProblem
from kiln.lowering.cpu.conv.window import taps

__all__ = ["Phase", "find_phases", "phase_runs"]


@dataclass(frozen=True)
class Phase:
    """Columns j = stride * i + remainder of the result, i = 0, 1, ...: the t-th of `count` columns of the window that
    they meet is first + t * step, at column i + offset - t * back of the input.
    """

    remainder: int
    first: int
    step: int
    count: int
    offset: int
    back: int

    def reach(self, t: int) -> int:
        """The distance of the input's column from i."""
        return self.offset - t * self.back


def find_phases(axis: Axis) -> list[Phase]:
    """The phases of a row; some may meet no column of the window."""
    step, back = taps(axis)
    phases: list[Phase] = []
    for remainder in range(axis.stride):
        at = remainder + axis.padding
        first = next((z for z in range(min(step, axis.kernel)) if (at - z * axis.dilation) % axis.stride == 0), None)
        if first is None:
            phases.append(Phase(remainder, 0, step, 0, 0, back))
        else:
            count = -(-(axis.kernel - first) // step)
            phases.append(Phase(remainder, first, step, count, (at - first * axis.dilation) // axis.stride, back))
    return phases


def phase_runs(p: ConvProblem, phase: Phase, mr: int) -> list[Run] | None:
    """The tiles of a phase of a row, in units of its columns; None where the sizes are not known."""
    if not isinstance(p.columns, int) or not isinstance(p.width, int):
        return None
    width = p.width
    columns = max(0, -(-(p.columns - phase.remainder) // p.stride[1]))
    reach = [phase.reach(t) for t in range(phase.count)] or [0]
    low, high = max(0, -min(reach)), max(0, min(columns, width - max(reach))) if phase.count else columns

    def valid(start: int, count: int, t: int) -> tuple[int, int]:
        first, last = max(0, -phase.reach(t) - start), min(count, width - phase.reach(t) - start)
        return (first, last) if first < last else (0, 0)

    return cut_row(columns, mr, low, high, phase.count, valid)
