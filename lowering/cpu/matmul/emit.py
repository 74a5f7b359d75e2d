# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`emit_matmul`: from a scheduled matmul problem to loops."""

from dataclasses import replace

from kiln.lowering import paths
from kiln.lowering.cpu.builder import Builder, Condition
from kiln.lowering.cpu.matmul.blocked import block_layout, emit_blocked
from kiln.lowering.cpu.matmul.dot import dot_layout, emit_dot
from kiln.lowering.cpu.matmul.float_tiles import emit_float_tiles, float_tiles_layout
from kiln.lowering.cpu.matmul.integer_dot import emit_integer_dot
from kiln.lowering.cpu.matmul.integer_tiles import emit_integers, integers_layout
from kiln.lowering.cpu.matmul.pairs import emit_pairs, pairs_layout
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, known
from kiln.lowering.cpu.matmul.stream import emit_stream, stream_layout
from kiln.lowering.cpu.matmul.tiles import emit_tiles, tiles_layout
from kiln.lowering.cpu.matmul.vendor import emit_vendor, leading_dimension_guard, vendor_layout

_LAYOUTS = {
    "dot": dot_layout,
    "blocked": block_layout,
    "pairs": pairs_layout,
    "tiles": tiles_layout,
    "float_tiles": float_tiles_layout,
    "vendor": vendor_layout,
    "stream": stream_layout,
    "integers": integers_layout,
    "integer_dot": dot_layout,
}
_TAKEN = paths.group(
    "cpu product",
    *(*_LAYOUTS, "by_rows", "packed rhs", "packed by threads", "batch", "sums in steps of k"),
    needs={"pairs": "avx512bf16", "tiles": "amx-bf16", "float_tiles": "amx-bf16"},
)


def emit_matmul(
    b: Builder, problem: MatmulProblem, schedule: dict, operands: Buffers, epilogue: Epilogue, ctx: KernelContext
) -> None:
    """Emits `epilogue(lhs @ rhs)` at the current insertion point, as one thread's share of the work.

    schedule: a dictionary from `choose_schedule`; `schedule["kernel"]` selects the leaf:

    * "dot", "blocked", "pairs", "tiles", "stream": see dot.py, blocked.py, pairs.py, tiles.py, stream.py;
    * "float_tiles", for f32 alone: float_tiles.py;
    * "integers", "integer_dot", for i8 alone: integer_tiles.py, integer_dot.py;
    * "vendor": vendor.py, with `schedule["fallback"]` for leading dimensions found unfit at run time;
    * "by_rows": `small` when m <= `limit` at run time, else `large` (both are schedules).

    The thread's scratch must hold `scratch_bytes(problem, schedule)` bytes, 64-byte aligned.
    """
    problem = normalise(problem)
    kernel = schedule["kernel"]
    rest = (operands, epilogue, ctx)
    _mark(problem, schedule)
    if kernel == "by_rows":
        few: Condition = b.cmpi("sle", known(problem.m), schedule["limit"])
        b.if_(
            few,
            lambda: emit_matmul(b, problem, schedule["small"], *rest),
            lambda: emit_matmul(b, problem, schedule["large"], *rest),
        )
    elif kernel == "vendor":
        b.if_(
            leading_dimension_guard(b, problem),
            lambda: emit_vendor(b, problem, schedule, *rest),
            lambda: emit_matmul(b, problem, schedule["fallback"], *rest),
        )
    elif kernel == "dot":
        if problem.lhs_strides[-1] != 1 or problem.rhs_strides[-2] != 1:
            raise ValueError("matmul kernel 'dot' needs unit stride along k in both operands; use 'blocked'")
        emit_dot(b, problem, schedule, *rest)
    elif kernel == "stream":
        if problem.m != 1 or problem.rhs_strides[-1] != 1:
            raise ValueError("matmul kernel 'stream' needs one row and a rhs with unit stride along n; use 'blocked'")
        emit_stream(b, problem, schedule, *rest)
    elif kernel == "blocked":
        if problem.rhs_strides[-1] != 1 and not (schedule["pack_rhs"] or schedule.get("packed")):
            raise ValueError("matmul kernel 'blocked' needs pack_rhs for a rhs without unit stride along n")
        emit_blocked(b, problem, schedule, *rest)
    elif kernel == "pairs":
        if problem.rhs_strides[-1] != 1 and not (schedule["pack_rhs"] or schedule.get("packed")):
            raise ValueError("matmul kernel 'pairs' needs pack_rhs for a rhs without unit stride along n")
        emit_pairs(b, problem, schedule, *rest)
    elif kernel == "tiles":
        emit_tiles(b, problem, schedule, *rest)
    elif kernel == "float_tiles":
        if problem.lhs_strides[-1] != 1 or problem.rhs_strides[-2 if schedule["turned"] else -1] != 1:
            raise ValueError("matmul kernel 'float_tiles' needs unit strides; use 'blocked'")
        emit_float_tiles(b, problem, schedule, *rest)
    elif kernel == "integers":
        emit_integers(b, problem, schedule, *rest)
    elif kernel == "integer_dot":
        if problem.lhs_strides[-1] != 1 or problem.rhs_strides[-2] != 1:
            raise ValueError("matmul kernel 'integer_dot' needs unit stride along k in both operands; use 'integers'")
        emit_integer_dot(b, problem, schedule, *rest)
    else:
        known_kernels = ", ".join((*_LAYOUTS, "by_rows"))
        raise ValueError(f"unknown matmul kernel {kernel!r}; expected one of {known_kernels}")


def _mark(problem: MatmulProblem, schedule: dict) -> None:
    """Tell which special paths a product takes."""
    if schedule["kernel"] in (*_LAYOUTS, "by_rows"):
        _TAKEN(schedule["kernel"])
    for path, is_so in (
        ("packed rhs", schedule.get("packed")),
        ("packed by threads", schedule.get("pack_rhs")),
        ("batch", problem.batch),
        ("sums in steps of k", isinstance(problem.k, int) and problem.k > schedule.get("kc", problem.k)),
    ):
        if is_so:
            _TAKEN(path)


def scratch_layout(problem: MatmulProblem, schedule: dict) -> dict[str, int]:
    """Where the areas of a leaf lie in a thread's scratch."""
    return _LAYOUTS[schedule["kernel"]](problem, schedule)


def scratch_bytes(problem: MatmulProblem, schedule: dict) -> int:
    """Bytes of scratch that one thread needs; the same for all sizes."""
    parts = [schedule[key] for key in ("small", "large", "fallback") if key in schedule]
    own = scratch_layout(problem, schedule)["bytes"] if schedule["kernel"] in _LAYOUTS else 0
    return max([own, *(scratch_bytes(problem, part) for part in parts)])


def normalise(problem: MatmulProblem) -> MatmulProblem:
    """The same problem with the strides of dimensions known to have size 1, which no access uses, set to what
    makes the operand look dense."""
    lhs, rhs = list(problem.lhs_strides), list(problem.rhs_strides)
    _dense(lhs, problem.m, problem.k)
    _dense(rhs, problem.k, problem.n)
    return replace(problem, lhs_strides=tuple(lhs), rhs_strides=tuple(rhs))


def _dense(strides: list, rows: object, cols: object) -> None:
    if cols == 1 and strides[-2] != 1:
        strides[-1] = 1
    elif cols == 1:
        strides[-1] = rows  # a vector: contiguous along its rows
    elif rows == 1:
        strides[-2] = cols if strides[-1] == 1 else 1
