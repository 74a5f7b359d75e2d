# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of bf16 by register tiles of pairs: layouts, odd sizes, packed constants, sizes known at run time."""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from bf16_support import check, check_sizes, dynamic_problem, packed_rhs
from matmul_support import Kernel, Machine, StoreEpilogue, bf16_operand

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.matmul import Buffers, MatmulProblem, choose_packed_schedule, emit_matmul, scratch_bytes
from kiln.lowering.cpu.matmul.blocks import choose_pairs
from kiln.lowering.cpu.matmul.emit import normalise
from kiln.lowering.cpu.matmul.plan import packed_strides

pytestmark = pytest.mark.skipif(not isa.host().has("avx512bf16"), reason="a CPU without the instruction")

MACHINE = Machine(64, 32)


@pytest.fixture(autouse=True)
def without_amx():
    """A CPU with AMX takes tiles instead."""
    features = tuple(f for f in isa.host().features if not f.startswith("amx-"))
    with isa.compiling_for(replace(isa.host(), features=features)):
        yield


SIZES = [(1, 1, 1), (1, 17, 5), (3, 64, 31), (4, 5, 257), (7, 24, 64), (13, 65, 70), (37, 130, 33), (5, 1, 32), (6, 0, 4),
         (0, 4, 4), (9, 20, 0), (65, 70, 1031)]  # fmt: skip


@cache
def dynamic_kernel(left: str, right: str, m: int) -> Kernel:
    """A kernel whose sizes and row strides are run-time values, tiled for m rows."""
    problem = dynamic_problem(left, right)
    known = problem(None, None, None, None, None)
    schedule = replace(choose_pairs(known, m, MACHINE), mc=16, nc=64, kc=64)

    def emit(b, buffers, symbols, ctx):
        epilogue = StoreEpilogue(buffers[2], (symbols[1],))
        emit_matmul(b, problem(*symbols), schedule, Buffers(*buffers[:2]), epilogue, ctx)

    return Kernel(["bf16"] * 3, 5, scratch_bytes(known, schedule), emit)


@pytest.mark.parametrize(("left", "right", "m"), [("n", "n", 4), ("n", "n", 64), ("n", "t", 64), ("t", "n", 64), ("s", "s", 64)])  # fmt: skip
def test_dynamic_sizes(left: str, right: str, m: int) -> None:
    torch.manual_seed(0)
    check_sizes(dynamic_kernel(left, right, m), left, right, SIZES)


@pytest.mark.parametrize(("m", "n", "k"), [(4, 16, 16), (7, 50, 33), (30, 200, 700), (100, 33, 65)])
@pytest.mark.parametrize("packed", [False, True])
def test_static_sizes(m: int, n: int, k: int, packed: bool) -> None:
    torch.manual_seed(0)
    lhs, rhs, out = bf16_operand(m, k, "n"), torch.randn(k, n).bfloat16(), torch.empty(m, n, dtype=torch.bfloat16)
    problem = MatmulProblem((), m, n, k, lhs.stride(), rhs.stride(), "bf16")
    schedule = choose_packed_schedule(problem, MACHINE) if packed else choose_pairs(normalise(problem), m, MACHINE)
    assert schedule is not None and schedule.kernel == "cpu.gemm.vnni_bf16"
    given = rhs
    if packed:
        lanes, rows, _ = packed_strides(schedule, k)
        given = packed_rhs(rhs, lanes, rows)
        problem = MatmulProblem((), m, n, k, lhs.stride(), (lanes, rows), "bf16")

    def emit(b, buffers, symbols, ctx):
        emit_matmul(b, problem, schedule, Buffers(*buffers[:2]), StoreEpilogue(buffers[2], (n,)), ctx)

    Kernel(["bf16"] * 3, 0, scratch_bytes(problem, schedule), emit)(lhs, given, out, threads=2)
    check(out, lhs, rhs)


@pytest.mark.parametrize("m,n", [(49, 160), (49, 96), (49, 16), (13, 160), (100, 32)])
def test_tiles_have_enough_sums_to_hide_their_latency(m: int, n: int) -> None:
    """A tile of few vectors has the more rows."""
    schedule = choose_pairs(normalise(MatmulProblem((), m, n, 512, (512, 1), (1, 512), "bf16")), m, MACHINE)
    assert schedule.mr * schedule.nv >= 12
