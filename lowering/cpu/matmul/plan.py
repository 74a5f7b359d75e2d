# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What schedules of register tiles say, whatever the matrix unit; and what a thread has in scratch memory."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from kiln.dialects.schedules.cpu import (
    AmxBf16Schedule,
    AmxBf16x3Schedule,
    AmxInt8Schedule,
    DotSchedule,
    DotTileSchedule,
    Int8DotSchedule,
    Int8Schedule,
    PanelSchedule,
    VnniBf16Schedule,
)
from kiln.lowering.cpu.bf16 import has_pairs
from kiln.lowering.cpu.contraction import MatrixUnit
from kiln.lowering.cpu.contraction.amx import AMX_BF16, AMX_BF16X3, AMX_INT8
from kiln.lowering.cpu.contraction.integers import IntegerUnit, integer_unit
from kiln.lowering.cpu.contraction.parts import RANGE_BYTES
from kiln.lowering.cpu.contraction.vectors import VectorUnit, float_unit
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.matmul.problem import MatmulProblem
from kiln.lowering.cpu.sizes import LINE, apart, areas, round_up

__all__ = ["Plan", "TileSchedule", "packed_strides", "plan_of", "tiles_layout", "transposed"]

TileSchedule = PanelSchedule | AmxBf16x3Schedule | DotTileSchedule

_AMX: dict[type[object], MatrixUnit] = {
    AmxBf16x3Schedule: AMX_BF16X3,
    AmxBf16Schedule: AMX_BF16,
    AmxInt8Schedule: AMX_INT8,
}

_ALL = 1 << 30
"""Steps of k in one go, where a schedule does not cut them."""


@dataclass(frozen=True)
class Plan:
    """A schedule, of the problem that the kernel works on (`transposed`: the transposed one).

    high, wide: tiles of a run of rows and of columns. left, right: where tiles come from. strips: the operand of the
    outer loop is packed run by run, `ks` steps of k at a time. The others are fields of schedules.
    """

    unit: MatrixUnit
    width: int
    high: int
    wide: int
    mc: int
    nc: int
    kc: int
    ks: int
    left: Literal["place", "scratch"]
    right: Literal["place", "scratch", "panels"]
    transposed: bool = False
    shared: bool = False
    strips: bool = False
    fetch: bool = False

    @property
    def parts(self) -> int:
        """Parts of an element of an operand."""
        return 1 + max(part for part, _ in self.unit.terms)

    @property
    def is_shifted(self) -> bool:
        """Whether sums have too much by a multiple of the sums of rows of the lhs."""
        return isinstance(self.unit, IntegerUnit) and self.unit.shifted

    @property
    def along_k(self) -> bool:
        """Whether lanes of sums are steps of k."""
        return isinstance(self.unit, VectorUnit) and self.unit.along_k


def _unit(s: TileSchedule, dtype: str = "f32", sums: str = "f32", in_rows: bool = False) -> MatrixUnit:
    along_k = isinstance(s, DotTileSchedule)
    if type(s) in _AMX:
        return _AMX[type(s)]
    if isinstance(s, (Int8Schedule, Int8DotSchedule)):
        return integer_unit(s.width, target(), along_k=along_k)
    pairs = has_pairs(dtype, s.width, target()) if along_k else isinstance(s, VnniBf16Schedule)
    return float_unit(sums, s.width, pairs=pairs, in_rows=pairs and in_rows and not along_k, along_k=along_k)


def plan_of(s: TileSchedule, problem: MatmulProblem) -> Plan:
    """The plan of a schedule."""
    if isinstance(s, DotTileSchedule):
        unit, nc = _unit(s, problem.dtype, problem.sum_dtype), round_up(s.nc, max(s.nr, s.width))
        kc = s.kc if isinstance(s, DotSchedule) else _ALL
        return Plan(unit, s.width, s.mr, s.nr, s.mc, nc, kc, kc, "place", "place")
    right = "panels" if getattr(s, "packed", False) else "scratch" if getattr(s, "pack_rhs", True) else "place"
    in_place = s.in_place if isinstance(s, Int8Schedule) else not getattr(s, "pack_lhs", True)
    unit, turned = _unit(s, problem.dtype, problem.sum_dtype, right == "place"), getattr(s, "transposed", False)
    high, wide, mc, nc = s.mr // unit.rows, s.nv, s.mc, s.nc
    if turned:
        high, wide, mc, nc = wide, high, nc, mc
    strips = isinstance(s, AmxBf16x3Schedule)
    fetch = strips or getattr(s, "fetch", False)
    return Plan(
        unit, s.width, high, wide, mc, nc, s.kc, getattr(s, "ks", s.kc), "place" if in_place else "scratch", right,
        transposed=turned, shared=getattr(s, "shared", False), strips=strips, fetch=fetch,
    )  # fmt: skip


def packed_strides(schedule: PanelSchedule, k: int) -> tuple[int, int, int]:
    """Of a packed rhs [n / lanes][k / group][lanes][group]: the columns of a panel, which are the stride along k from
    group to group; the stride along n from the first column of a panel to that of another, k with the zeros that fill
    it; and the group.
    """
    unit = _unit(schedule)
    return schedule.nv * unit.columns, round_up(k, unit.depth), unit.group


def tiles_layout(problem: MatmulProblem, schedule: TileSchedule) -> dict[str, int]:
    """Sizes of a block, offsets of the scratch areas in bytes, and their total `bytes`."""
    plan = plan_of(schedule, problem)
    unit = plan.unit
    mc, nc = round_up(plan.mc, plan.high * unit.rows), round_up(plan.nc, plan.wide * unit.columns)
    kc = round_up(plan.kc, unit.depth)
    deep = round_up(kc, unit.group * unit.columns)
    layout = {"mc": mc, "nc": nc, "kc": kc}
    lines, depths = {"left": round_up(mc, unit.columns), "right": nc}, {"left": deep, "right": deep}
    if plan.left == "place":
        lines["left"] = unit.rows if unit.is_numbered else 0
    if plan.right != "scratch":
        lines["right"] = 0
    if plan.strips:
        outer, count = ("left", plan.high * unit.rows) if plan.transposed else ("right", plan.wide * unit.columns)
        lines[outer], depths[outer] = count, plan.ks
    word = {side: unit.group * unit.bits(side) // 8 for side in lines}
    layout["left_pitch"] = apart(depths["left"] // unit.group, LINE // word["left"])
    layout["right_line"] = depths["right"] // unit.group
    # Of one group of steps, where lines are neighbours:
    layout["left_row"] = apart(lines["left"], LINE // word["left"]) if lines["left"] else 0
    layout["left_part"] = max(
        lines["left"] * layout["left_pitch"], depths["left"] // unit.group * layout["left_row"] * (not unit.is_numbered)
    )
    layout["right_part"] = lines["right"] * layout["right_line"]
    size = problem.sum_bytes * mc * nc
    sizes = {"sums": size, "turned": size * plan.transposed, "over": 4 * mc * plan.is_shifted}
    sizes |= {side: word[side] * plan.parts * layout[f"{side}_part"] for side in lines}
    sizes |= {"cells": LINE}
    if plan.strips:
        sizes |= {"left_range": RANGE_BYTES, "right_range": RANGE_BYTES}
    layout |= areas(sizes, LINE)
    return layout | {"bytes": layout["end"]}


def transposed(problem: MatmulProblem) -> MatmulProblem:
    """The problem whose result is the transpose: operands exchanged, each with its last two strides."""

    def turn(strides: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*strides[:-2], strides[-1], strides[-2])

    return replace(
        problem, m=problem.n, n=problem.m, lhs_strides=turn(problem.rhs_strides), rhs_strides=turn(problem.lhs_strides)
    )
