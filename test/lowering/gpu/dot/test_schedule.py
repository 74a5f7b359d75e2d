# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The rules that choose tiles: the rows that were measured, and limits that hold for every problem."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiln.dialects.schedules import from_plain, to_plain
from kiln.errors import KilnError
from kiln.lowering.gpu.dot.attention_schedule import AttentionShape, choose_attention
from kiln.lowering.gpu.dot.conv_schedule import ConvShape, choose_conv
from kiln.lowering.gpu.dot.machine import machine
from kiln.lowering.gpu.dot.schedule import ProductShape, choose_product
from kiln.lowering.gpu.dot.split import split_parts

H200 = machine("sm_90")


def linear(m, n, k, dtype="bf16", batch=1):
    """A product with weights as [n, k]."""
    return ProductShape(batch, m, n, k, (k, 1), (1, k), dtype)


@pytest.mark.parametrize(
    ("size", "tile"),
    [
        ((16, 4096, 4096), (16, 32, 128, 4, 8)),
        ((64, 4096, 4096), (64, 32, 256, 4, 4)),
        ((128, 4096, 4096), (64, 64, 128, 4, 5)),
        ((256, 4096, 4096), (64, 128, 128, 4, 4)),
        ((1024, 1024, 1024), (64, 128, 128, 4, 4)),
        ((512, 4096, 4096), (128, 128, 64, 4, 4)),
        ((2048, 4096, 4096), (128, 256, 64, 8, 3)),
        ((8192, 8192, 8192), (128, 256, 64, 8, 3)),
        ((4000, 4104, 4104), (256, 128, 64, 8, 3)),
        ((16384, 50257, 1024), (128, 256, 64, 8, 3)),  # rows that start anywhere are stored in long pieces
    ],
)
def test_measured_tiles(size, tile):
    s = choose_product(linear(*size), H200)
    assert (s.block_m, s.block_n, s.block_k, s.num_warps, s.num_stages) == tile


def test_one_row_is_summed_along_its_columns():
    s = choose_product(linear(1, 4096, 4096), H200)
    assert (s.kernel, s.block_n, s.block_k) == ("gpu.gemm.gemv", 1, 4096)
    turned = ProductShape(1, 1, 4096, 4096, (4096, 1), (4096, 1), "bf16")
    assert choose_product(turned, H200).block_n > 1


def test_descriptors_need_rows_of_16_bytes():
    assert choose_product(linear(4096, 4096, 4096), H200, descriptors=True).kernel == "gpu.gemm.tma"
    assert choose_product(linear(4096, 4096, 4104), H200, descriptors=True).kernel == "gpu.gemm.tma"
    assert choose_product(linear(4096, 4096, 4100), H200, descriptors=True).kernel == "gpu.gemm.tile"
    assert choose_product(linear(1024, 50257, 1024), H200, descriptors=True).kernel == "gpu.gemm.tma"
    assert choose_product(linear(None, 4096, 4096), H200, descriptors=True).kernel == "gpu.gemm.tma"
    assert choose_product(linear(4096, 4096, 4096), machine("sm_80"), descriptors=True).kernel == "gpu.gemm.tile"
    assert choose_product(linear(4096, 4096, 4096, "f32"), H200, descriptors=True).kernel == "gpu.gemm.tile"


def test_persistent_where_tiles_outnumber_multiprocessors():
    assert choose_product(linear(4096, 4096, 4096), H200, descriptors=True).persistent
    assert not choose_product(linear(1024, 1024, 1024), H200, descriptors=True).persistent


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
def test_every_schedule_fits_the_machine(m, n, k, dtype, descriptors, arch):
    s = choose_product(linear(m, n, k, dtype), machine(arch), descriptors)
    assert from_plain(to_plain(s)) == s  # what its fields allow
    if s.kernel != "gpu.gemm.gemv":
        size = {"f64": 8, "f32": 4, "tf32": 4, "bf16": 2, "f16": 2, "i8": 1, "i16": 2, "i32": 4, "i64": 8}[dtype]
        used = s.num_stages * (s.block_m + s.block_n) * s.block_k * size
        assert used <= machine(arch).shared_bytes
        assert s.block_k >= (32 if dtype == "i8" else 16)


@pytest.mark.parametrize(
    ("size", "tile"), [(64, (64, 128, 2)), (128, (64, 64, 3)), (80, (64, 64, 3)), (32, (64, 128, 2))]
)
def test_measured_attention(size, tile):
    s = choose_attention(AttentionShape(128, 4096, 4096, size, size, "bf16"), H200)
    assert (s.block_m, s.block_n, s.num_stages) == tile


def test_few_queries_take_a_small_block():
    s = choose_attention(AttentionShape(32, 1, 4096, 128, 128, "bf16"), H200)
    assert s.block_m == 16


@pytest.mark.parametrize(("heads", "stages"), [(32, 1), (16, 2), (64, 2)])
def test_one_stage_where_that_makes_room_for_all_programs(heads, stages):
    assert choose_attention(AttentionShape(heads, 1024, 1024, 64, 64, "bf16"), H200).num_stages == stages


def test_where_attention_masks_its_keys():
    """As measured: in one loop by a branch; throughout, where one block holds all keys."""
    long = choose_attention(AttentionShape(128, 4096, 4096, 64, 64, "bf16", causal=True), H200, tma=True)
    assert (long.block_m, long.block_n, long.num_stages, long.masks) == (64, 128, 2, "branch")
    short = choose_attention(AttentionShape(128, 1024, 1024, 64, 64, "bf16", causal=True), H200, tma=True)
    assert (short.block_n, short.num_stages, short.masks) == (64, 3, "branch")
    tokens = AttentionShape(96, 197, 197, 64, 64, "bf16")
    one = choose_attention(tokens, H200, tma=True)
    assert (one.block_n, one.num_stages, one.masks) == (256, 1, "all")
    assert choose_attention(tokens, H200).block_n == 128
    assert choose_attention(AttentionShape(128, 4096, 4096, 64, 64, "bf16"), H200, tma=True).masks == "behind"


@pytest.mark.parametrize("size", [(32768, 3072, 768), (8192, 8192, 4096), (4096, 4096, 4096)])
def test_persistent_products_leave_memory_to_the_epilogue(size):
    s = choose_product(linear(*size), H200, descriptors=True)
    assert (s.kernel, s.persistent, s.num_stages) == ("gpu.gemm.tma", True, 3)


def test_batches_of_short_sums_keep_their_stages():
    """A persistent program goes on with the next tile: 512 x 512 x 64 is 1.5 times as fast with three stages."""
    shape = ProductShape(384, 512, 512, 64, (64, 1), (1, 64), "bf16")
    s = choose_product(shape, H200, descriptors=True)
    assert s.kernel == "gpu.gemm.tma" and s.persistent and s.num_stages >= 3


@pytest.mark.parametrize(
    ("size", "parts"),
    [((64, 64, 16384), 32), ((128, 256, 8192), 8), ((512, 512, 8192), 4), ((256, 1024, 4096), 1), ((1024,) * 3, 1)],
)
def test_parts_of_sums_as_measured(size, parts):
    assert split_parts(linear(*size), H200) == parts


@pytest.mark.parametrize(
    ("size", "tile"),
    [
        ((401408, 64, 256), (128, 128, 4, 2)),
        ((401408, 256, 128), (128, 128, 4, 3)),
        ((401408, 256, 64), (128, 64, 4, 2)),
        ((401408, 64, 64), (128, 64, 4, 2)),
        ((25088, 1024, 256), (128, 128, 4, 3)),
        ((6272, 2048, 512), (128, 128, 4, 3)),
        ((49, 2048, 512), (16, 16, 4, 8)),  # fewer programs than multiprocessors: nothing to share
    ],
)
def test_convolutions_leave_room_for_neighbours(size, tile):
    rows, channels, out = size
    s = choose_conv(ConvShape(rows, 1, channels, out, 1, "bf16"), H200)
    assert (s.block_m, s.block_n, s.num_warps, s.num_stages) == tile


def test_three_programs_of_two_stages_where_they_are_all_there_are():
    """392 tiles on 132 multiprocessors; with more of them, or operands through pointers, two programs share one."""
    assert choose_conv(ConvShape(25088, 1, 1024, 256, 1, "bf16"), H200, through_maps=True).num_stages == 2
    assert choose_conv(ConvShape(100352, 1, 512, 256, 1, "bf16"), H200, through_maps=True).num_stages == 3
    assert choose_conv(ConvShape(25088, 1, 1024, 256, 1, "bf16"), H200).num_stages == 3


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        (ConvShape(802816, 1, 3, 32, 9, "bf16"), (128, 32)),
        (ConvShape(802816, 1, 32, 32, 9, "bf16"), (128, 32)),
        (ConvShape(50176, 1, 144, 32, 1, "bf16"), (64, 32)),  # one tap: no addresses to share
        (ConvShape(12544, 1, 32, 32, 9, "bf16"), (64, 32)),  # few programs
    ],
)
def test_windows_with_few_outputs(shape, tile):
    s = choose_conv(shape, H200)
    assert (s.kernel, s.block_m, s.block_n) == ("gpu.conv.implicit", *tile)


@pytest.mark.parametrize(
    ("rows", "channels", "tile"),
    [
        (802816, 96, (64, 64)),
        (3136, 960, (64, 64)),
        (196, 384, (16, 64)),
        (12544, 32, (32, 32)),
        (None, 96, (32, 64)),
    ],
)
def test_windows_of_single_channels(rows, channels, tile):
    s = choose_conv(ConvShape(rows, channels, 1, 1, 9, "bf16"), H200)
    assert (s.kernel, s.block_m, s.block_n) == ("gpu.conv.depthwise", *tile)


@given(
    st.one_of(st.none(), st.integers(1, 1 << 20)),
    st.integers(1, 16),
    st.integers(2, 3000),
    st.integers(1, 3000),
    st.integers(1, 49),
    st.sampled_from(["f32", "tf32", "bf16", "f16", "f64"]),
    st.sampled_from(["sm_80", "sm_89", "sm_90", "sm_100", "gfx942"]),
)
@settings(max_examples=100)
def test_every_convolution_fits_the_machine(rows, groups, channels, out, taps, dtype, arch):
    s = choose_conv(ConvShape(rows, groups, channels, out, taps, dtype), machine(arch), groups == taps == 1)
    size = {"f64": 8, "f32": 4, "tf32": 4}.get(dtype, 2)
    assert s.num_stages * (s.block_m + s.block_n) * s.block_k * size <= machine(arch).shared_bytes
    assert s.block_m * s.block_n <= 128 * 128 and s.num_stages >= 1


@pytest.mark.parametrize(
    ("shape", "arch", "kernel"),
    [
        (ConvShape(25088, 1, 256, 1024, 1, "bf16"), "sm_90", "gpu.conv.tma"),
        (ConvShape(25088, 1, 256, 1024, 1, "bf16"), "sm_80", "gpu.conv.implicit"),  # no tensor maps
        (ConvShape(25088, 1, 252, 1024, 1, "bf16"), "sm_90", "gpu.conv.implicit"),  # rows start anywhere
        (ConvShape(None, 1, 256, 1024, 1, "bf16"), "sm_90", "gpu.conv.tma"),
        (ConvShape(25088, 1, 256, 1024, 1, "f32"), "sm_90", "gpu.conv.implicit"),  # no tensor cores
        (ConvShape(49, 1, 256, 64, 1, "bf16"), "sm_90", "gpu.conv.implicit"),  # small tiles gain nothing
    ],
)
def test_one_tap_through_tensor_maps(shape, arch, kernel):
    assert choose_conv(shape, machine(arch), through_maps=True).kernel == kernel
    assert choose_conv(shape, machine(arch)).kernel == "gpu.conv.implicit"


@pytest.mark.parametrize(
    ("arch", "same_as"), [("sm_90a", "sm_90"), ("sm_86", "sm_80"), ("sm_75", "sm_80"), ("gfx90a", "gfx942")]
)
def test_other_architectures_are_as_the_nearest_older_one(arch, same_as):
    assert machine(arch) == machine(same_as)


@pytest.mark.parametrize("arch", ["hopper", "sm90", "sm_", ""])
def test_what_names_no_architecture_is_refused(arch):
    with pytest.raises(KilnError, match="unknown GPU architecture .* expected one like 'sm_90'"):
        machine(arch)
