# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of bf16 by AMX, emulated: layouts, odd sizes, packed constants, the weight as lhs, sizes of run time."""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from amx_emulation import EMULATED, emulated_amx
from bf16_support import check, check_sizes, dynamic_problem, packed_rhs
from matmul_support import Kernel, Machine, StoreEpilogue, bf16_operand, rational_gate

from kiln.dialects.schedules.cpu import AmxBf16Schedule
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.matmul import Buffers, MatmulProblem, choose_packed_schedule, emit_matmul, scratch_bytes
from kiln.lowering.cpu.matmul.blocks import choose_tiles
from kiln.lowering.cpu.matmul.emit import normalise
from kiln.lowering.cpu.matmul.plan import packed_strides
from kiln.lowering.cpu.tune.products import product_schedules

pytestmark = pytest.mark.skipif(not EMULATED, reason="a CPU without the other instructions")

MACHINE = Machine(64, 32)
BLOCKS = {"mc": 48, "nc": 64, "kc": 96, "ks": 64}
"""Small blocks, so that there are several of everything."""


@cache
def dynamic_kernel(left: str, right: str, m: int) -> Kernel:
    """A kernel whose sizes and row strides are run-time values, tiled for m rows."""
    problem = dynamic_problem(left, right)
    known = problem(None, None, None, None, None)
    with emulated_amx(pytest.MonkeyPatch()):
        schedule = choose_tiles(known, m, isa.target())
        assert schedule is not None and schedule.pack_lhs
        schedule = replace(schedule, **BLOCKS)

        def emit(b, buffers, symbols, ctx):
            epilogue = StoreEpilogue(buffers[2], (symbols[1],))
            emit_matmul(b, problem(*symbols), schedule, Buffers(*buffers[:2]), epilogue, ctx)

        return Kernel(["bf16"] * 3, 5, scratch_bytes(known, schedule), emit)


SIZES = [(1, 1, 1), (1, 17, 5), (3, 64, 31), (17, 65, 70), (37, 130, 33), (5, 1, 32), (6, 0, 4), (0, 4, 4), (9, 20, 0),
         (65, 70, 299), (49, 33, 96)]  # fmt: skip


@pytest.mark.parametrize(
    ("left", "right", "m"), [("n", "n", 16), ("n", "n", 64), ("n", "t", 64), ("t", "n", 64), ("s", "s", 64)]
)
def test_dynamic_sizes(left: str, right: str, m: int) -> None:
    torch.manual_seed(0)
    check_sizes(dynamic_kernel(left, right, m), left, right, SIZES)


@cache
def dynamic_rows(right: str, k: int) -> Kernel:
    """A kernel for known n = 70 and k, and m at run time: the lhs is read in place."""
    rhs = (80, 1) if right == "n" else (1, k + 3)

    def problem(m):
        return MatmulProblem((), m, 70, k, (k + 3, 1), rhs, "bf16")

    with emulated_amx(pytest.MonkeyPatch()):
        schedule = choose_tiles(problem(None), 24, isa.target())
        assert schedule is not None and not schedule.pack_lhs
        assert schedule.transposed == (right == "t")
        schedule = replace(schedule, **BLOCKS)

        def emit(b, buffers, symbols, ctx):
            epilogue = StoreEpilogue(buffers[2], (70,))
            emit_matmul(b, problem(*symbols), schedule, Buffers(*buffers[:2]), epilogue, ctx)

        return Kernel(["bf16"] * 3, 1, scratch_bytes(problem(None), schedule), emit)


@pytest.mark.parametrize(("right", "k"), [("n", 96), ("t", 96), ("n", 160), ("t", 160)])
def test_dynamic_rows(right: str, k: int) -> None:
    torch.manual_seed(0)
    kernel = dynamic_rows(right, k)
    for threads in (1, 2):
        for m in (0, 1, 15, 16, 17, 32, 49, 65, 100):
            lhs, out = bf16_operand(m, k, "n"), torch.full((m, 70), torch.nan, dtype=torch.bfloat16)
            rhs = bf16_operand(70, k, "n").mT if right == "t" else torch.randn(k, 80).bfloat16()[:, :70]
            kernel(lhs, rhs, out, symbols=(m,), threads=threads)
            check(out, lhs, rhs)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(4, 16, 32), (7, 50, 33), (16, 200, 64), (30, 200, 700), (30, 210, 704), (100, 33, 65), (49, 96, 256)],
)
@pytest.mark.parametrize("kind", ["packed", "n", "t"])
def test_static_sizes(m: int, n: int, k: int, kind: str) -> None:
    torch.manual_seed(0)
    lhs, rhs, out = bf16_operand(m, k, "n"), bf16_operand(k, n, kind[0]), torch.empty(m, n, dtype=torch.bfloat16)
    bias = torch.randn(n)
    if kind == "packed":
        rhs = torch.randn(k, n).bfloat16()
    problem = MatmulProblem((), m, n, k, lhs.stride(), rhs.stride(), "bf16")
    with emulated_amx(pytest.MonkeyPatch()):
        if kind == "packed":
            schedule = choose_packed_schedule(problem, MACHINE)
        else:
            schedule = choose_tiles(normalise(problem), m, isa.target())
        assert schedule is not None and schedule.kernel == "cpu.gemm.amx_bf16"
        assert schedule.transposed == (kind == "t" and k % 32 == 0 and (m <= 16 or 4 * m <= k))
        given = rhs
        if kind == "packed":
            lanes, rows, _ = packed_strides(schedule, k)
            given = packed_rhs(rhs, lanes, rows)
            problem = MatmulProblem((), m, n, k, lhs.stride(), (lanes, rows), "bf16")

        def emit(b, buffers, symbols, ctx):
            epilogue = StoreEpilogue(buffers[2], (n,), buffers[3], rational_gate)
            emit_matmul(b, problem, schedule, Buffers(*buffers[:2]), epilogue, ctx)

        kernel = Kernel(["bf16", "bf16", "bf16", "f32"], 0, scratch_bytes(problem, schedule), emit)
    for threads in (1, 2):
        kernel(lhs, given, out, bias, threads=threads)
        exact = lhs.double() @ rhs.double() + bias
        expected = exact / (1 + exact * exact)
        assert (out.double() - expected).abs().max() <= 2**-8


@pytest.mark.parametrize("right", ["n", "t"])
def test_batches(right: str) -> None:
    """A lhs that is the same for all, and operands of a batch each."""
    torch.manual_seed(0)
    lhs, rhs = torch.randn(3, 20, 64).bfloat16(), torch.randn(2, 3, 64, 40).bfloat16()
    if right == "t":
        rhs = rhs.mT.contiguous().mT
    out = torch.empty(2, 3, 20, 40, dtype=torch.bfloat16)
    problem = MatmulProblem((2, 3), 20, 40, 64, (0, *lhs.stride()), rhs.stride(), "bf16")
    with emulated_amx(pytest.MonkeyPatch()):
        schedule = choose_tiles(problem, 20, isa.target())
        assert schedule is not None

        def emit(b, buffers, symbols, ctx):
            epilogue = StoreEpilogue(buffers[2], out.stride()[:-1])
            emit_matmul(b, problem, schedule, Buffers(*buffers[:2]), epilogue, ctx)

        kernel = Kernel(["bf16"] * 3, 0, scratch_bytes(problem, schedule), emit)
    for threads in (1, 2):
        kernel(lhs, rhs, out, threads=threads)
        check(out, lhs, rhs)


@pytest.mark.parametrize("right", ["n", "t"])
def test_candidates(right: str) -> None:
    """What tuning tries of this kernel computes the same."""
    torch.manual_seed(0)
    m, n, k = 40, 100, 128
    lhs, rhs = bf16_operand(m, k, "n"), bf16_operand(k, n, right)
    problem = MatmulProblem((), m, n, k, lhs.stride(), rhs.stride(), "bf16")
    with emulated_amx(pytest.MonkeyPatch()):
        default = choose_tiles(problem, m, isa.target())
        assert default is not None
        found = product_schedules(problem, MACHINE, default, m, packed=True)
        amx = [s for s in found if isinstance(s, AmxBf16Schedule)]
        assert sum(s.packed for s in amx) >= 2
        own = [s for s in amx if not s.packed]
        assert len(own) >= 2
        for schedule in own:

            def emit(b, buffers, symbols, ctx, schedule=schedule):
                emit_matmul(b, problem, schedule, Buffers(*buffers[:2]), StoreEpilogue(buffers[2], (n,)), ctx)

            out = torch.empty(m, n, dtype=torch.bfloat16)
            Kernel(["bf16"] * 3, 0, scratch_bytes(problem, schedule), emit)(lhs, rhs, out, threads=2)
            check(out, lhs, rhs)
