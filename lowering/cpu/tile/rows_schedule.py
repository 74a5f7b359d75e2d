# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How the threads share a kernel with products and loops behind them (`rows.py`), and in which blocks."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch_mlir import ir

from kiln.dialects.schedules.cpu import (
    AmxBf16Schedule,
    AmxBf16x3Schedule,
    ByRowsSchedule,
    GemmSchedule,
    PhasesSchedule,
    Split,
)
from kiln.errors import UnsupportedError
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.matmul import MatmulProblem
from kiln.lowering.cpu.sizes import round_up
from kiln.lowering.cpu.tile.phases import Phases, find_phases
from kiln.lowering.cpu.tile.product import Product, find_product, plan_matmul, schedule_product, static_size
from kiln.lowering.tile.body import FusionBody

__all__ = ["ROW_UNIT", "find_products", "plan_product_fusion", "split_of"]

ROW_UNIT = 8
"""Rows are shared among threads in multiples of this: a register tile of the product."""


def plan_product_fusion(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> GemmSchedule | PhasesSchedule:
    """The schedule of a fusion (or part) with products: that of `choose_schedule`, or of its phases."""
    phases = find_phases(body)
    if phases.count == 1:
        return plan_matmul(body, layouts)
    products = find_products(phases, layouts)
    problems = [p.problem(static_size) for p in products]
    split = split_of(body, phases)
    if split == "rows":
        # A block has as many rows as its turn comes to: not known before the kernel runs.
        problems = [replace(p, m=None) for p in problems]
    schedules = [schedule_product(body, x, p, blocks=split == "rows") for x, p in zip(products, problems, strict=True)]
    if split == "rows":
        height = _height(problems, len(phases.kept))
        return PhasesSchedule(split=split, products=tuple(schedules), height=height)
    if not phases.crossing:
        return PhasesSchedule(split=split, products=tuple(schedules))
    if len({x.lhs for x in products}) == 1:
        schedules = _share_lhs(schedules)
    mc, nc, nr = _block(problems, schedules)
    return PhasesSchedule(split=split, products=tuple(schedules), mc=mc, nc=nc, nr=nr)


def find_products(phases: Phases, layouts: Sequence[ir.AffineMap]) -> list[Product]:
    """The products of a kernel, with the same batch, rows and columns."""
    found = [find_product(p, layouts) for p in phases.products]
    if any((p.batch, p.m, p.n) != (found[0].batch, found[0].m, found[0].n) for p in found):
        # The rows of one lhs follow each other from batch to batch, those of another do not.
        found = [find_product(p, layouts, merge=False) for p in phases.products]
    if any((p.batch, p.m, p.n) != (found[0].batch, found[0].m, found[0].n) for p in found):
        raise UnsupportedError("kiln.matmul", str(found[0].op.location), "products of different rows in one kernel")
    return found


def split_of(body: FusionBody, phases: Phases) -> Split:
    """How threads can share a kernel of several phases: "blocks", "rows" or "team".

    Behind products, `waits = array<i64: ...>` of the fusion lists the parts whose threads wait ("team"). Without it,
    they do where the kernel stores what its loops read.
    """
    if phases.loops is None:
        return "blocks"
    attributes = body.fusion.operation.attributes
    if "waits" in attributes:
        return "team" if (body.part or 0) in list(ir.DenseI64ArrayAttr(attributes["waits"])) else "rows"
    roots = [body.roots[i] for i in body.mine]
    return "team" if all(v in roots for v in phases.behind) else "rows"


def _height(problems: Sequence[MatmulProblem], kept: int) -> int:
    """Rows whose sums take half of the second-level cache, as far as the columns are known."""
    columns = [p.n if isinstance(p.n, int) else 1024 for p in problems]
    row = max(1, sum(columns) * max(kept, 1) // len(columns) * problems[0].sum_bytes)
    return max(ROW_UNIT, min(256, isa.target().l2_bytes // 2 // row // ROW_UNIT * ROW_UNIT))


def _block(problems: Sequence[MatmulProblem], schedules: Sequence[GemmSchedule]) -> tuple[int, int, int]:
    """Rows and columns of a block, and what its columns are a multiple of, from the products' own schedules."""
    flat = [kernel for s in schedules for kernel in _kernels_of(s)]
    rows = min(getattr(s, "mc", 1) for s in flat)
    columns = min(s.nc for s in flat)
    lanes = isa.target().vector_bytes // problems[0].sum_bytes
    unit = math.lcm(lanes, *(getattr(s, "nv", 1) * s.width for s in flat))  # panels begin at multiples of their width
    return max(rows, 1), round_up(max(columns, 1), unit), unit


def _share_lhs(schedules: list[GemmSchedule]) -> list[GemmSchedule]:
    """The schedules of products with one lhs, computed block by block in turn, so that it is packed for the first block
    of all only; `begin_sharing` is to be called before the blocks. The same where they do not pack it.
    """
    first = schedules[0]
    if not isinstance(first, (AmxBf16Schedule, AmxBf16x3Schedule)) or any(s != first for s in schedules):
        return schedules
    if isinstance(first, AmxBf16Schedule) and not first.transposed:
        return schedules
    return [replace(first, shared=True)] * len(schedules)


def _kernels_of(schedule: GemmSchedule) -> list[Any]:
    """The schedules of the kernels that it is a choice of; all have `nc` and `width`."""
    if isinstance(schedule, ByRowsSchedule):
        return [*_kernels_of(schedule.small), *_kernels_of(schedule.large)]
    return [schedule]
