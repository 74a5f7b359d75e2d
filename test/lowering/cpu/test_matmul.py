# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul kernels against float64: layouts, tails, dynamic sizes, dtypes, threads, batch strides."""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from matmul_support import Kernel, Machine, StoreEpilogue, rational_gate

from kiln.dialects.schedules import from_plain, to_plain
from kiln.dialects.schedules.cpu import BlockedSchedule, DotSchedule, PanelSchedule, VendorSchedule
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.matmul import (
    Buffers,
    MatmulProblem,
    choose_packed_schedule,
    choose_schedule,
    emit_matmul,
    packed_strides,
    scratch_bytes,
)
from kiln.lowering.cpu.matmul.vendor import vendor_gemm_available

AVX2, AVX512 = Machine(), Machine(64, 32)
DTYPE = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
# Shapes with whole and partial tiles in every dimension, and degenerate ones.
SIZES = [
    (1, 1, 1), (1, 17, 5), (2, 8, 8), (3, 64, 31), (4, 5, 257), (7, 24, 64), (12, 33, 16), (13, 65, 70),
    (32, 48, 300), (65, 25, 9), (97, 130, 40), (5, 1, 33), (40, 1, 8), (1, 300, 3), (6, 0, 4), (0, 4, 4), (9, 20, 0),
]  # fmt: skip


def blocked(**changes) -> BlockedSchedule:
    base = BlockedSchedule(mr=4, nv=3, width=8, mc=16, nc=48, kc=64, pack_lhs=False, pack_rhs=False)
    return replace(base, **changes)


def dot(**changes) -> DotSchedule:
    return replace(DotSchedule(mr=3, nr=4, width=8, mc=12, nc=16, kc=64), **changes)


VENDOR = VendorSchedule(mc=64, nc=64, width=8)
KERNELS = {
    "dot": (dot(), "n", "t"),
    "dot column": (dot(mr=8, nr=1), "n", "t"),
    "in place": (blocked(), "n", "n"),
    "in place, lhs transposed": (blocked(mr=6, nv=2), "t", "n"),
    "packed": (blocked(pack_lhs=True, pack_rhs=True), "n", "n"),
    "packed, rhs transposed": (blocked(pack_rhs=True, mr=2, nv=2), "n", "t"),
    "packed, both transposed": (blocked(pack_lhs=True, pack_rhs=True, mr=6, nv=1), "t", "t"),
    "packed, strided": (blocked(pack_lhs=True, pack_rhs=True), "s", "s"),
    "avx512": (blocked(width=16, mr=8, nv=3, kc=96, pack_lhs=True, pack_rhs=True), "n", "t"),
    "avx512 fetching": (blocked(width=16, mr=8, nv=3, kc=32, pack_rhs=True, fetch=True), "n", "t"),
    "avx512 fetching rows": (blocked(width=16, mr=5, kc=24, pack_rhs=True, fetch=True), "n", "n"),
    "avx512 dot": (dot(width=16, mr=6, nr=4, kc=96), "n", "t"),
    "vendor": (VENDOR, "n", "t"),
    "vendor, lhs transposed": (VENDOR, "t", "n"),
}

LONGEST_CHAIN = 96
"""The largest `kc` of these schedules: each piece of k is summed from zero."""


def operand(rows: int, cols: int, layout: str, dtype: torch.dtype, batch=()) -> torch.Tensor:
    """A random [*batch, rows, cols] tensor: row-major, transposed, or with no unit stride."""
    if layout == "s":
        return torch.randn(*batch, rows, max(3 * cols, 1)).to(dtype)[..., ::3][..., :cols]
    if layout == "t":
        return torch.randn(*batch, cols, rows).to(dtype).mT
    return torch.randn(*batch, rows, cols).to(dtype)


def check(out: torch.Tensor, lhs: torch.Tensor, rhs: torch.Tensor, bias=None, factor: float = 3.0, chain=2) -> None:
    """Error against float64 at most `factor` times torch's own, up to a rounding of the result and to the error that
    chains of `chain` additions, added up, have by themselves."""
    exact = lhs.double() @ rhs.double()
    sums = torch.float64 if lhs.dtype == torch.float64 else torch.float32
    ours, eager = out.double(), lhs.to(sums) @ rhs.to(sums)
    if bias is not None:
        exact, eager = exact + bias.double(), eager + bias
        exact, eager = exact / (1 + exact * exact), eager / (1 + eager * eager)
    if not exact.numel():
        return
    eps = torch.finfo(out.dtype).eps
    scale = exact.abs().max().item()
    # torch's error is small by chance where results are few. A chain of c sums of products of normal numbers has an
    # error of 0.2 c eps (root mean square), k / c chains one of 0.2 eps sqrt(k c): the limit is five times that.
    k = lhs.shape[-1]
    spread = torch.finfo(sums).eps * (k * min(k, chain)) ** 0.5
    bound = factor * (eager.double() - exact).abs().max().item() + 4 * eps * max(scale, 1e-30) + spread
    error = (ours - exact).abs().max().item()
    assert error <= bound, f"error {error:.3e}, bound {bound:.3e}, shape {tuple(out.shape)}"


@cache
def dynamic_kernel(name: str, with_bias: bool, in_place: bool) -> Kernel:
    """Kernel of one 2-D problem whose sizes m, n, k and row strides are all run-time values."""
    schedule, left, right = KERNELS[name]

    def problem(m, n, k, lhs_stride, rhs_stride) -> MatmulProblem:
        lhs = {"n": (lhs_stride, 1), "t": (1, lhs_stride), "s": (lhs_stride, 3)}[left]
        rhs = {"n": (rhs_stride, 1), "t": (1, rhs_stride), "s": (rhs_stride, 3)}[right]
        return MatmulProblem((), m, n, k, lhs, rhs)

    def emit(b, buffers, symbols, ctx):
        m, n, k, lhs_stride, rhs_stride = symbols
        bias = buffers[2] if with_bias else None
        epilogue = StoreEpilogue(buffers[3], (n,), bias, rational_gate if with_bias else None, in_place)
        emit_matmul(b, problem(m, n, k, lhs_stride, rhs_stride), schedule, Buffers(*buffers[:2]), epilogue, ctx)

    return Kernel(["f32"] * 4, 5, scratch_bytes(problem(None, None, None, None, None), schedule), emit)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_dynamic_sizes(name: str, with_bias: bool) -> None:
    if name.startswith("vendor") and not vendor_gemm_available():
        pytest.skip("this torch has no MKL")
    torch.manual_seed(0)
    kernel = dynamic_kernel(name, with_bias, in_place=with_bias)
    _, left, right = KERNELS[name]
    for threads in (1, 2):
        for m, n, k in SIZES:
            lhs, rhs = operand(m, k, left, torch.float32), operand(k, n, right, torch.float32)
            bias, out = torch.randn(n), torch.full((m, n), torch.nan)
            strides = [x.stride(-1 if layout == "t" else -2) for x, layout in ((lhs, left), (rhs, right))]
            kernel(lhs, rhs, bias, out, symbols=(m, n, k, *strides), threads=threads)
            check(out, lhs, rhs, bias if with_bias else None, chain=LONGEST_CHAIN)


@pytest.mark.parametrize("left", "nt")
@pytest.mark.parametrize("right", "nt")
@pytest.mark.parametrize("m,n,k", [(1, 40, 50), (16, 48, 64), (37, 29, 100)])
def test_chosen_schedule_static(m: int, n: int, k: int, left: str, right: str) -> None:
    torch.manual_seed(0)
    lhs, rhs, out = operand(m, k, left, torch.float32), operand(k, n, right, torch.float32), torch.empty(m, n)
    run_static(lhs, rhs, out, AVX2)
    check(out, lhs, rhs)


def test_operands_in_place_need_no_scratch() -> None:
    """Scratch memory is that of sums, and a cache line that says what is packed."""
    problem = MatmulProblem((), 8, 96, 512, (512, 1), (96, 1))
    assert scratch_bytes(problem, blocked(mc=16, nc=48, kc=512)) == 4 * 16 * 48 + 64


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("m,n,k", [(8, 300, 250), (49, 512, 192), (128, 777, 300), (255, 130, 520), (300, 35, 17)])
def test_panels(m: int, n: int, k: int, packed: bool) -> None:
    """High tiles over panels that are fetched ahead: the rhs [n, k], or a constant in panels."""
    torch.manual_seed(0)
    lhs, rhs = operand(m, k, "n", torch.float32), operand(k, n, "t", torch.float32)
    problem = MatmulProblem((), m, n, k, lhs.stride(), rhs.stride())
    schedule = choose_packed_schedule(problem, AVX512) if packed else choose_schedule(problem, AVX512, vendor=True)
    assert schedule is not None
    assert isinstance(schedule, PanelSchedule)
    assert schedule.fetch == (packed or m <= 256) and schedule.packed == packed
    given = rhs
    if packed:
        lanes, rows, _ = packed_strides(schedule, k)
        panels = -(-n // lanes)
        padded = torch.zeros(k, panels * lanes)
        padded[:, :n] = rhs
        given = padded.view(k, panels, lanes).permute(1, 0, 2).contiguous()
        problem = replace(problem, rhs_strides=(lanes, rows))

    def emit(b, buffers, symbols, ctx):
        emit_matmul(b, problem, schedule, Buffers(*buffers[:2]), StoreEpilogue(buffers[2], (n,)), ctx)

    kernel = Kernel(["f32"] * 3, 0, scratch_bytes(problem, schedule), emit)
    for threads in (1, 2):
        out = torch.full((m, n), torch.nan)
        kernel(lhs, given, out, threads=threads)
        check(out, lhs, rhs)


def run_static(lhs: torch.Tensor, rhs: torch.Tensor, out: torch.Tensor, machine: Machine, vendor: bool = False) -> dict:
    batch = torch.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    (m, k), n = lhs.shape[-2:], rhs.shape[-1]
    lhs, rhs = lhs.expand(*batch, m, k), rhs.expand(*batch, k, n)
    dtype = next(name for name, t in DTYPE.items() if t == lhs.dtype)
    out_dtype = next(name for name, t in DTYPE.items() if t == out.dtype)
    problem = MatmulProblem(tuple(batch), m, n, k, lhs.stride(), rhs.stride(), dtype)
    schedule = choose_schedule(problem, machine, vendor)

    def emit(b, buffers, symbols, ctx):
        epilogue = StoreEpilogue(buffers[2], out.stride()[:-1])
        emit_matmul(b, problem, schedule, Buffers(*buffers[:2]), epilogue, ctx)

    kernel = Kernel([dtype, dtype, out_dtype], 0, scratch_bytes(problem, schedule), emit)
    kernel(lhs, rhs, out, threads=2)
    return schedule


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16"])
@pytest.mark.parametrize("left,right,m", [("n", "t", 3), ("n", "n", 1), ("n", "n", 3), ("n", "t", 40), ("t", "n", 40)])
def test_dtypes(dtype: str, left: str, right: str, m: int) -> None:
    torch.manual_seed(0)
    t = DTYPE[dtype]
    lhs, rhs, out = operand(m, 70, left, t), operand(70, 37, right, t), torch.empty(m, 37, dtype=t)
    run_static(lhs, rhs, out, AVX2)
    check(out, lhs, rhs)


@pytest.mark.parametrize("machine", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_batch_strides(machine: Machine) -> None:
    """Batch dimensions: two of them, one broadcast (stride 0), operands permuted in memory."""
    torch.manual_seed(0)
    lhs = torch.randn(2, 18, 3, 20).transpose(1, 2)
    rhs = torch.randn(3, 20, 31)
    out = torch.empty(2, 3, 18, 31)
    run_static(lhs, rhs, out, machine)
    check(out, lhs, rhs)


@pytest.mark.skipif(not vendor_gemm_available(), reason="this torch has no MKL")
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_vendor_batch(dtype: str) -> None:
    torch.manual_seed(0)
    lhs = torch.randn(2, 3, 100, 24, dtype=DTYPE[dtype])
    rhs = torch.randn(2, 1, 300, 24, dtype=DTYPE[dtype]).mT
    out = torch.empty(2, 3, 100, 300, dtype=DTYPE[dtype])
    assert run_static(lhs, rhs, out, AVX2, vendor=True).kernel == "cpu.gemm.vendor"
    check(out, lhs, rhs)


@pytest.mark.parametrize("row,k", [(2, 16), (2, None), (None, 16), (None, None)], ids=str)
def test_library_takes_rows_known_not_to_overlap(row: int | None, k: int | None) -> None:
    """Of sliding windows (row < k) BLAS refuses the leading dimension; one that is not known may be such."""
    problem = MatmulProblem((), 512, 512, k, (row, 1), (512, 1))
    assert choose_schedule(problem, AVX2, vendor=True).kernel == "cpu.gemm.blocked"
    known = replace(problem, k=16, lhs_strides=(16, 1))
    assert choose_schedule(known, AVX2, vendor=True).kernel == "cpu.gemm.vendor"


@pytest.mark.parametrize("right,m", [("t", 4), ("t", 20), ("n", 1), ("n", 4), ("n", 40)])
def test_long_sums_stay_accurate(right: str, m: int) -> None:
    """K = 4096: every piece of k is summed from zero (one chain of additions has 5 times the error)."""
    torch.manual_seed(0)
    lhs, rhs, out = operand(m, 4096, "n", torch.float32), operand(4096, 64, right, torch.float32), torch.empty(m, 64)
    run_static(lhs, rhs, out, AVX2)
    check(out, lhs, rhs, factor=1.5)


def test_infinities_and_nans_stay_in_their_rows() -> None:
    """Padding of partial tiles must not leak into results, nor read what does not belong to the matrix."""
    lhs, rhs, out = torch.zeros(7, 9), torch.zeros(9, 11), torch.empty(7, 11)
    lhs[3, 2], rhs[4, 5] = torch.inf, torch.nan
    run_static(lhs, rhs, out, AVX2)
    torch.testing.assert_close(out, lhs @ rhs, equal_nan=True)


def test_schedules_are_values() -> None:
    """Equal problems give equal schedules, which come back from their text, checked."""
    for m in (None, 1, 8, 64, 500):
        for rhs in ((1, 768), (768, 1)):
            problem = MatmulProblem((None,), m, 768, 768, (None, 768, 1), (None, *rhs))
            schedule = choose_schedule(problem, AVX2)
            assert schedule == choose_schedule(problem, AVX2) == from_plain(to_plain(schedule))


@settings(max_examples=25, derandomize=True)
@given(
    name=st.sampled_from([name for name in KERNELS if not name.startswith("vendor")]),
    m=st.integers(0, 70),
    n=st.integers(0, 70),
    k=st.integers(0, 200),
    padding=st.integers(0, 5),
    threads=st.integers(1, 7),
)
def test_any_size_and_row_padding(name: str, m: int, n: int, k: int, padding: int, threads: int) -> None:
    """Any sizes, rows a little apart in memory; nothing outside of the result is written."""
    kernel = dynamic_kernel(name, False, in_place=False)
    _, left, right = KERNELS[name]
    lhs, rhs = (
        operand(rows + padding * (layout == "t"), cols + padding * (layout != "t"), layout, torch.float32)[:rows, :cols]
        for rows, cols, layout in ((m, k, left), (k, n, right))
    )
    guard = 64
    memory = torch.full((guard + m * n + guard,), 7.0)
    out = memory[guard : guard + m * n].view(m, n)
    strides = [x.stride(-1 if layout == "t" else -2) for x, layout in ((lhs, left), (rhs, right))]
    kernel(lhs, rhs, torch.zeros(n), out, symbols=(m, n, k, *strides), threads=threads)
    check(out, lhs, rhs, chain=LONGEST_CHAIN)
    assert (memory[:guard] == 7.0).all() and (memory[guard + m * n :] == 7.0).all()


@pytest.mark.parametrize("dtype", ["f32", "i8"])
def test_a_single_tile_of_rows_does_not_fetch_the_next_panel(dtype: str) -> None:
    """Tiles further down would find what the first ones fetch; where there are none it is waited for."""
    for rows in (4, 8, 16, 64):
        problem = MatmulProblem((), rows, 768, 768, (768, 1), (1, 768), dtype)
        schedule = choose_packed_schedule(problem, isa.other("x86-64-v4+avx512vnni"))
        assert isinstance(schedule, PanelSchedule)
        assert schedule.fetch == (rows > schedule.mr)
