# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules that the rules choose: limits that hold for every size. What they choose is in schedule_*.mlir."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kiln.dialects.schedules import from_plain, to_plain
from kiln.lowering.gpu.dot.conv_schedule import ConvShape, choose_conv
from kiln.lowering.gpu.dot.machine import machine
from kiln.lowering.gpu.dot.schedule import ProductShape, choose_product
from kiln.lowering.gpu.schedule import RowShape, choose_row

SIZES = st.one_of(st.none(), st.integers(0, 5000))


@settings(max_examples=200)
@given(
    SIZES,
    SIZES,
    SIZES,
    st.sampled_from(["f64", "f32", "tf32", "bf16", "f16", "i8", "i16", "i32", "i64"]),
    st.booleans(),
    st.sampled_from(["sm_80", "sm_90", "sm_100", "sm_120", "gfx942"]),
)
def test_every_product_fits_the_machine(m, n, k, dtype, descriptors, arch):
    s = choose_product(ProductShape(1, m, n, k, (k, 1), (1, k), dtype), machine(arch), descriptors)
    assert from_plain(to_plain(s)) == s  # what its fields allow
    if s.kernel != "gpu.gemm.gemv":
        size = {"f64": 8, "f32": 4, "tf32": 4, "bf16": 2, "f16": 2, "i8": 1, "i16": 2, "i32": 4, "i64": 8}[dtype]
        used = s.num_stages * (s.block_m + s.block_n) * s.block_k * size
        assert used <= machine(arch).shared_bytes
        assert s.block_k >= (32 if dtype == "i8" else 16)


@given(
    st.one_of(st.none(), st.integers(1, 1 << 20)),
    st.integers(1, 16),
    st.integers(2, 3000),
    st.integers(1, 3000),
    st.integers(1, 49),
    st.sampled_from(["f32", "tf32", "bf16", "f16", "f64"]),
    st.sampled_from(["sm_80", "sm_89", "sm_90", "sm_100", "gfx942"]),
)
@example(2491, 13, 10, 17, 9, "tf32", "sm_89")
@settings(max_examples=100)
def test_every_convolution_fits_the_machine(rows, groups, channels, out, taps, dtype, arch):
    s = choose_conv(ConvShape(rows, groups, channels, out, taps, dtype), machine(arch), groups == taps == 1)
    size = {"f64": 8, "f32": 4, "tf32": 4}.get(dtype, 2)
    assert s.num_stages * (s.block_m + s.block_n) * s.block_k * size <= machine(arch).shared_bytes
    assert s.block_m * s.block_n <= 128 * 128 and s.num_stages >= 1


@pytest.mark.parametrize("rows", [None, 1, 7, 64, 100, 4096, 1 << 20])
@pytest.mark.parametrize("length", [None, 0, 1, 3, 100, 4096, 10**6])
@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("reread", [True, False])
def test_every_row_has_a_tile(rows: int | None, length: int | None, contiguous: bool, reread: bool) -> None:
    """A row in registers is whole, and has elements."""
    chosen = choose_row(RowShape(rows, length, contiguous, reread=reread))
    tile, row, warps = chosen.tile[0], chosen.row, chosen.num_warps
    assert tile & (tile - 1) == 0 and row & (row - 1) == 0
    assert tile * row <= 1 << 20
    assert warps in (1, 2, 4, 8, 16, 32)
    assert not chosen.persistent or (length and row >= length)


@pytest.mark.parametrize("reread", [False, True])
@pytest.mark.parametrize("likely", [2, 100, 512, 9000, 30000, 100_000, None])
def test_rows_of_any_length(likely: int | None, reread: bool) -> None:
    """A tile as long as rows were, which holds them whole where that saves reading them again; else blocks."""
    chosen = choose_row(RowShape(None, None, reread=reread, likely=likely))
    fits = likely is not None and likely <= (32768 if reread else 8192)
    assert chosen.row == (1024 if likely is None else max(128, 1 << (likely - 1).bit_length()) if fits else 4096)
    assert chosen.persistent == (fits and reread)
