# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`emit_matmul`: from a scheduled matmul problem to loops."""

from dataclasses import replace
from functools import partial
from typing import Any

from kiln.dialects.schedules import kernels
from kiln.dialects.schedules.cpu import (
    AmxBf16x3Schedule,
    BlockedSchedule,
    ByRowsSchedule,
    DotTileSchedule,
    GemmSchedule,
    VendorSchedule,
    VnniBf16Schedule,
)
from kiln.lowering import paths
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.matmul.plan import TileSchedule, tiles_layout
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, MatmulProblem
from kiln.lowering.cpu.matmul.tiles import Tiles
from kiln.lowering.cpu.matmul.vendor import emit_vendor, vendor_layout
from kiln.lowering.cpu.problem import KernelContext, known

_TAKEN = paths.group(
    "cpu product",
    (kernel.how for kernel in kernels().values() if issubclass(kernel, GemmSchedule)),
    *("packed rhs", "packed by threads", "batch", "sums in steps of k"),
    needs={"vnni_bf16": "avx512bf16", "amx_bf16": "amx-bf16", "amx_bf16x3": "amx-bf16", "amx_int8": "amx-int8"},
)


def emit_matmul(
    b: Builder,
    problem: MatmulProblem,
    schedule: GemmSchedule,
    operands: Buffers,
    epilogue: Epilogue,
    ctx: KernelContext,
) -> None:
    """Emits `epilogue(lhs @ rhs)` at the current insertion point, as one thread's share of the work.

    schedule: from `choose_schedule`; its class selects the kernel. Raises ValueError where that kernel does not take
    the problem's strides.
    The thread's scratch must hold `scratch_bytes(problem, schedule)` bytes, 64-byte aligned.
    """
    problem = normalise(problem)
    rest = (operands, epilogue, ctx)
    _mark(problem, schedule)
    if isinstance(schedule, ByRowsSchedule):
        small, large = (partial(emit_matmul, b, problem, part, *rest) for part in (schedule.small, schedule.large))
        b.if_(b.cmpi("sle", known(problem.m), schedule.limit), small, large)
    else:
        missing = _missing(problem, schedule)
        if missing is not None:
            raise ValueError(f"matmul kernel {schedule.kernel!r} needs {missing}")
        if isinstance(schedule, VendorSchedule):
            emit_vendor(b, problem, schedule, *rest)
        else:
            assert isinstance(schedule, TileSchedule)
            Tiles(b, problem, schedule, *rest).emit()


def _missing(problem: MatmulProblem, schedule: GemmSchedule) -> str | None:
    """What the strides of a problem lack for a kernel; None where it takes them."""
    lhs_k, rhs_k, rhs_n = problem.lhs_strides[-1], problem.rhs_strides[-2], problem.rhs_strides[-1]
    if isinstance(schedule, DotTileSchedule):
        return None if lhs_k == rhs_k == 1 else "unit stride along k in both operands; use 'cpu.gemm.blocked'"
    if isinstance(schedule, (BlockedSchedule, VnniBf16Schedule)):
        is_read = rhs_n == 1 or schedule.pack_rhs or schedule.packed
        return None if is_read else "pack_rhs for a rhs without unit stride along n"
    if isinstance(schedule, AmxBf16x3Schedule):
        return (
            None if lhs_k == 1 == (rhs_k if schedule.transposed else rhs_n) else "unit strides; use 'cpu.gemm.blocked'"
        )
    return None


def _mark(problem: MatmulProblem, schedule: GemmSchedule) -> None:
    """Tell which special paths a product takes."""
    _TAKEN(schedule.how)
    kc = getattr(schedule, "kc", None)
    taken = {
        "packed rhs": getattr(schedule, "packed", False),
        "packed by threads": getattr(schedule, "pack_rhs", False),
        "batch": problem.batch,
        "sums in steps of k": isinstance(problem.k, int) and kc is not None and problem.k > kc,
    }
    _TAKEN.those(taken)


def scratch_bytes(problem: MatmulProblem, schedule: GemmSchedule) -> int:
    """Bytes of scratch that one thread needs; the same for all sizes."""
    if isinstance(schedule, ByRowsSchedule):
        return max(scratch_bytes(problem, part) for part in (schedule.small, schedule.large))
    if isinstance(schedule, VendorSchedule):
        return vendor_layout(problem, schedule)["bytes"]
    assert isinstance(schedule, TileSchedule)
    return tiles_layout(problem, schedule)["bytes"]


def normalise(problem: MatmulProblem) -> MatmulProblem:
    """The same problem with the strides of dimensions known to have size 1, which no access uses, set to what
    makes the operand look dense.
    """
    lhs, rhs = list(problem.lhs_strides), list(problem.rhs_strides)
    _dense(lhs, problem.m, problem.k)
    _dense(rhs, problem.k, problem.n)
    return replace(problem, lhs_strides=tuple(lhs), rhs_strides=tuple(rhs))


def _dense(strides: list[Any], rows: object, cols: object) -> None:
    if cols == 1 and strides[-2] != 1:
        strides[-1] = 1
    elif cols == 1:
        strides[-1] = rows  # a vector: contiguous along its rows
    elif rows == 1:
        strides[-2] = cols if strides[-1] == 1 else 1
