# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolution kernels against float64: windows, strides, padding, groups, layouts, tails, threads, dynamic sizes."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from conv_support import ReluEpilogue, conv_kernel, conv_problem, image_problem
from matmul_support import Kernel, Machine

from kiln.dialects.schedules import from_plain, to_plain
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.conv import ConvBuffers, ConvProblem, choose_conv_schedule, conv_scratch_bytes, emit_conv
from kiln.lowering.cpu.conv.kernel import RowKernel
from kiln.lowering.cpu.conv.window import Span, find_phases, tile_runs

AVX2, AVX512 = Machine(), Machine(64, 32)
LAST = torch.channels_last


def layout(t: torch.Tensor, name: str) -> torch.Tensor:
    """`t` as NCHW ("c"), channels-last ("l"), or in the middle of a larger tensor ("s")."""
    if name == "s":
        n, c, h, w = t.shape
        wide = torch.full((n, c + 3, h, 2 * w), torch.nan)
        wide[:, 1 : c + 1, :, ::2] = t
        return wide[:, 1 : c + 1, :, ::2]
    return t.contiguous(memory_format=LAST if name == "l" else torch.contiguous_format)


def check(out: torch.Tensor, x, weight, bias, *args) -> None:
    """Relative error in norm against float64 at most 1.5 times PyTorch's own, up to a rounding of the result."""
    exact = F.conv2d(x.double(), weight.double(), bias.double(), *args).relu()
    eager = F.conv2d(x, weight, bias, *args).relu()
    norm = exact.norm().clamp_min(1e-30)
    error, own = ((y.double() - exact).norm() / norm for y in (out, eager))
    assert error <= 1.5 * own + 1.2e-7, f"error {error:.2e}, PyTorch's {own:.2e}"


def run(x, weight, bias, stride, padding, dilation, groups, machine=AVX512, threads=2, schedule=None) -> torch.Tensor:
    shape = F.conv2d(x, weight, bias, stride, padding, dilation, groups).shape
    out = torch.full(shape, torch.nan).contiguous(memory_format=LAST)
    problem = conv_problem(x, weight, out, stride, padding, dilation, groups)
    call, _ = conv_kernel(x, weight, bias, out, problem, machine, threads, schedule)
    call()
    return out


# (n, c, h, w), (o, kh, kw), stride, padding, dilation, groups
CASES = [
    ((2, 16, 9, 9), (32, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 3, 33, 35), (24, 7, 7), (2, 2), (3, 3), (1, 1), 1),
    ((1, 20, 9, 11), (37, 3, 3), (2, 1), (1, 2), (2, 1), 1),
    ((2, 20, 9, 11), (40, 3, 5), (1, 2), (1, 2), (1, 2), 4),
    ((2, 33, 7, 7), (50, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((2, 33, 7, 6), (50, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((2, 8, 5, 5), (8, 1, 1), (1, 1), (1, 1), (1, 1), 1),
    ((2, 33, 15, 14), (33, 3, 3), (1, 1), (1, 1), (1, 1), 33),
    ((1, 16, 15, 17), (16, 3, 3), (2, 2), (1, 1), (1, 1), 16),
    ((1, 5, 15, 17), (5, 5, 5), (1, 1), (2, 2), (2, 2), 5),
    ((1, 8, 3, 3), (16, 5, 5), (1, 1), (4, 4), (1, 1), 1),
    ((1, 8, 1, 1), (16, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((0, 8, 4, 4), (16, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 2, 4, 600), (16, 3, 3), (1, 1), (1, 1), (1, 1), 1),
]


@pytest.mark.parametrize("machine", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cases(case, machine: Machine) -> None:
    torch.manual_seed(0)
    size, (o, *window), stride, padding, dilation, groups = case
    x, weight = layout(torch.randn(size), "l"), torch.randn(o, size[1] // groups, *window)
    bias = torch.randn(o)
    out = run(x, weight, bias, stride, padding, dilation, groups, machine)
    check(out, x, weight, bias, stride, padding, dilation, groups)


@pytest.mark.parametrize("weights", "cls")
@pytest.mark.parametrize("images", "cls")
@pytest.mark.parametrize("groups", [1, 20])
def test_layouts(images: str, weights: str, groups: int) -> None:
    """Any strides of both operands; what lies between their elements is not read as one of them."""
    torch.manual_seed(0)
    x = layout(torch.randn(2, 20, 9, 10), images)
    weight = layout(torch.randn(20, 20 // groups, 3, 3), weights)
    bias = torch.randn(20)
    out = run(x, weight, bias, (1, 1), (1, 1), (1, 1), groups)
    check(out, x, weight, bias, (1, 1), (1, 1), (1, 1), groups)


@pytest.mark.parametrize("size", [(1, 1, 1), (2, 1, 1), (1, 3, 4), (2, 2, 3)], ids=str)
def test_few_pixels(size) -> None:
    """A 1x1 convolution of a handful of pixels is a product that reads the weight as it is stored."""
    torch.manual_seed(0)
    n, h, w = size
    x = torch.randn(n, h, w, 70).permute(0, 3, 1, 2)
    weight, bias = torch.randn(37, 70, 1, 1), torch.randn(37)
    out = torch.full((n, h, w, 37), torch.nan).permute(0, 3, 1, 2)
    call, schedule = conv_kernel(x, weight, bias, out, conv_problem(x, weight, out, (1, 1), (0, 0)), AVX512, 2)
    assert schedule.kernel == "cpu.conv.gemm"
    call()
    check(out, x, weight, bias, (1, 1), (0, 0), (1, 1), 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("groups", [1, 20])
def test_dtypes(dtype: torch.dtype, groups: int) -> None:
    """16-bit floats are summed in f32 and rounded once before the bias is added, once behind it."""
    torch.manual_seed(0)
    x, weight = layout(torch.randn(2, 20, 9, 10), "l").to(dtype), torch.randn(20, 20 // groups, 3, 3).to(dtype)
    bias = torch.randn(20).to(dtype)
    out = torch.full_like(x, torch.nan)
    problem = conv_problem(x, weight, out, (1, 1), (1, 1), groups=groups)
    conv_kernel(x, weight, bias, out, problem, AVX512, 2)[0]()
    exact = F.conv2d(x.double(), weight.double(), bias.double(), padding=1, groups=groups).relu()
    roundings = 4 if dtype == torch.float64 else 0.5  # of the sums; of the result alone
    assert (out.double() - exact).norm() / exact.norm() < roundings * torch.finfo(dtype).eps


@pytest.mark.parametrize("case", CASES, ids=str)
def test_planar_results(case) -> None:
    """Results with lanes along columns, of images of any layout."""
    torch.manual_seed(0)
    size, (o, *window), stride, padding, dilation, groups = case
    weight, bias = torch.randn(o, size[1] // groups, *window), torch.randn(o)
    for images in "cl" if groups == 1 else "c":
        x = layout(torch.randn(size), images)
        out = torch.full_like(F.conv2d(x, weight, None, stride, padding, dilation, groups), torch.nan)
        out = out.contiguous()
        problem = conv_problem(x, weight, out, stride, padding, dilation, groups)
        conv_kernel(x, weight, bias, out, problem, AVX512, 2)[0]()
        check(out, x, weight, bias, stride, padding, dilation, groups)


def test_long_sums_stay_accurate() -> None:
    """4608 products: pieces are summed from zero, so that the error is below that of one chain."""
    torch.manual_seed(0)
    x, weight, bias = layout(torch.rand(1, 512, 5, 5), "l"), torch.rand(16, 512, 3, 3), torch.zeros(16)
    problem = conv_problem(x, weight, layout(torch.empty(1, 16, 5, 5), "l"), (1, 1), (1, 1))
    schedule = choose_conv_schedule(problem, AVX512)
    exact = F.conv2d(x.double(), weight.double(), padding=1)
    errors = []
    for piece in (schedule.piece, 1 << 20):
        out = run(x, weight, bias, (1, 1), (1, 1), (1, 1), 1, schedule=replace(schedule, piece=piece))
        errors.append((out.double() - exact).norm() / exact.norm())
    assert errors[0] < 0.6 * errors[1]


def test_infinities_and_nans_stay_in_their_windows() -> None:
    """Neither padding of lanes nor of the image may meet another value: 0 * inf is NaN."""
    x, weight = torch.zeros(1, 20, 6, 6), torch.zeros(20, 20, 3, 3)
    x[0, 3, 0, 0], weight[7, 2, 1, 1] = torch.inf, torch.nan
    bias = torch.zeros(20)
    expected = F.conv2d(x, weight, bias, padding=1)
    out = run(layout(x, "l"), weight, bias, (1, 1), (1, 1), (1, 1), 1)
    # The epilogue's maximum with zero gives 0 for a NaN.
    torch.testing.assert_close(out, torch.where(expected > 0, expected, 0))
    assert not out.isnan().any()


def dynamic_kernel(weight_shape, stride, padding, dilation, groups, planar: bool) -> Kernel:
    """A kernel whose image sizes and strides are all known at run time only, but for the unit stride."""
    o, c, *window = weight_shape
    weight_strides = (c * window[0] * window[1], window[0] * window[1], window[1], 1)

    def problem(n, height, width, rows, columns, x_image, x_row, x_other) -> ConvProblem:
        x_strides = (x_image, x_other, x_row, 1) if planar else (x_image, 1, x_row, x_other)
        return image_problem(
            n, groups, c, o // groups, height, width, rows, columns, tuple(window), stride, padding, dilation,
            x_strides, weight_strides, planar=planar,
        )  # fmt: skip

    unknown = problem(*[None] * 8)
    schedule = choose_conv_schedule(unknown, AVX512)

    def emit(b, buffers, symbols, ctx):
        _, _, _, rows, columns, *_ = symbols
        plane = b.muli(rows, columns)
        strides = (plane, columns, 1) if planar else (1, b.muli(columns, o), o)
        epilogue = ReluEpilogue(buffers[3], (b.muli(plane, o), *strides), buffers[2])
        emit_conv(b, problem(*symbols), schedule, ConvBuffers(*buffers[:2]), epilogue, ctx)

    return Kernel(["f32"] * 4, 8, conv_scratch_bytes(unknown, schedule), emit, kind="conv")


@pytest.mark.parametrize("planar", [False, True], ids=["channels_last", "planar"])
@pytest.mark.parametrize(
    "weight_shape,stride,padding,dilation,groups",
    [
        ((20, 12, 3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((20, 12, 3, 3), (2, 2), (1, 1), (1, 1), 1),
        ((20, 12, 1, 1), (1, 1), (0, 0), (1, 1), 1),
        ((20, 12, 3, 5), (1, 2), (0, 3), (1, 2), 1),
        ((20, 1, 3, 3), (1, 1), (1, 1), (1, 1), 20),
        ((20, 1, 5, 5), (2, 2), (2, 2), (1, 1), 20),
    ],
    ids=str,
)
def test_dynamic_sizes(weight_shape, stride, padding, dilation, groups, planar: bool) -> None:
    torch.manual_seed(0)
    kernel = dynamic_kernel(weight_shape, stride, padding, dilation, groups, planar)
    o, c = weight_shape[:2]
    weight, bias = torch.randn(weight_shape), torch.randn(o)
    for n, h, w in ((1, 5, 9), (2, 9, 10), (1, 7, 40), (3, 12, 17), (1, 6, 100), (1, 5, 7), (1, 6, 14), (1, 4, 16)):
        x = layout(torch.randn(n, c * groups, h, w), "c" if planar else "l")
        shape = F.conv2d(x, weight, bias, stride, padding, dilation, groups).shape
        for threads in (1, 3):
            out = layout(torch.full(shape, torch.nan), "c" if planar else "l")
            sizes = (n, h, w, *shape[2:], *(x.stride(i) for i in ((0, 2, 1) if planar else (0, 2, 3))))
            kernel(x, weight, bias, out, symbols=sizes, threads=threads)
            check(out, x, weight, bias, stride, padding, dilation, groups)


@settings(max_examples=40, derandomize=True)
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 12), st.integers(1, 20)),
    st.sampled_from([1, 2, 16, 17, 40]),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from("cls"),
)
def test_any_convolution(size, outputs, window, stride, padding, dilation, groups, threads, images) -> None:
    n, c, h, w = size
    assume(all(d * (k - 1) < s + 2 * p for d, k, s, p in zip(dilation, window, (h, w), padding, strict=True)))
    torch.manual_seed(0)
    x = layout(torch.randn(n, c * groups, h, w), images)
    weight, bias = torch.randn(outputs * groups, c, *window), torch.randn(outputs * groups)
    out = run(x, weight, bias, stride, padding, dilation, groups, threads=threads)
    check(out, x, weight, bias, stride, padding, dilation, groups)


@settings(max_examples=200, derandomize=True)
@given(
    st.integers(1, 60), st.integers(1, 7), st.integers(1, 4), st.integers(0, 5), st.integers(1, 3), st.integers(1, 16)
)
def test_tiles_of_a_row(width: int, window: int, stride: int, padding: int, dilation: int, mr: int) -> None:
    """The tiles are all columns in order; a window column is left out exactly where it lies outside of the image."""
    columns = (width + 2 * padding - dilation * (window - 1) - 1) // stride + 1
    assume(columns > 0)
    problem = image_problem(
        1, 1, 1, 16, 1, width, 1, columns, (1, window), (1, stride), (0, padding), (1, dilation), (1,) * 4, (1,) * 4
    )
    (phase,) = find_phases(problem)
    runs = tile_runs(problem, phase, mr)
    assert runs is not None
    seen = []
    for run in runs:
        for start in range(run.first, run.last, mr):
            seen += range(start, start + run.count)
            for z, (low, high) in enumerate(run.valid):
                for r in range(run.count):
                    at = (start + r) * stride - padding + z * dilation
                    assert (low <= r < high) == (0 <= at < width)
    assert seen == list(range(columns))


class Recorded(Builder, RowKernel):
    """The tiles of a row, walked as where its size is not known."""

    def __init__(self, p: ConvProblem, mr: int) -> None:
        self._facts, self._loops = {}, {}
        self.b, self.p, self.mr = self, p, mr
        self.runs = [(phase, None) for phase in find_phases(p)]
        self.tiles: list[tuple[int, list[list[bool]]]] = []

    def for_(self, lower, upper, step, body) -> None:
        for i in range(lower, upper, step):
            body(i)

    def tile(self, count, meets, window, column, base) -> None:
        reached = [range(*meets)] if isinstance(meets, Span) else None
        columns = range(self.p.column.kernel)
        has = [[z in reached[0] if reached else r in range(*meets[z]) for z in columns] for r in range(count)]
        self.tiles.append((column, has))


@settings(max_examples=300, derandomize=True)
@given(
    st.integers(1, 60), st.integers(1, 7), st.integers(1, 4), st.integers(0, 5), st.integers(1, 3), st.integers(1, 9)
)
def test_tiles_of_a_row_of_unknown_size(
    width: int, window: int, stride: int, padding: int, dilation: int, mr: int
) -> None:
    """The tiles are all columns; a window column is left out exactly where it lies outside of the image."""
    columns = (width + 2 * padding - dilation * (window - 1) - 1) // stride + 1
    assume(columns > 0)
    problem = image_problem(
        1, 1, 1, 16, 1, width, 1, columns, (1, window), (1, stride), (0, padding), (1, dilation), (1,) * 4, (1,) * 4
    )
    kernel = Recorded(problem, mr)
    kernel.row(None, 0, columns)
    seen = set()
    for column, has in kernel.tiles:
        for r, row in enumerate(has):
            seen.add(column + r)
            at = [(column + r) * stride - padding + z * dilation for z in range(window)]
            assert row == [0 <= x < width for x in at]
    assert seen == set(range(columns))


@pytest.mark.parametrize("columns", [5, 7, 8, 14, 16, 28])
def test_rows_of_unknown_size_have_no_single_pixels(columns: int) -> None:
    """Windows of 3 with a padding of 1: rows of 5 and more are tiles, and few more pixels than there are."""
    problem = image_problem(1, 1, 1, 64, 1, columns, 1, columns, (1, 3), (1, 1), (0, 1), (1, 1), (1,) * 4, (1,) * 4)
    unknown = replace(problem, axes=(problem.row, replace(problem.column, size=None, results=None)))
    kernel = Recorded(problem, choose_conv_schedule(unknown, AVX512).mr)
    kernel.row(None, 0, columns)
    sizes = [len(has) for _, has in kernel.tiles]
    assert min(sizes) > 1
    assert sum(sizes) < 1.7 * columns


def test_schedules_are_values() -> None:
    """Equal problems have equal schedules, which come back from their text, checked."""
    for columns in (None, 7, 56, 1000):
        for window in ((1, 1), (3, 3)):
            problem = image_problem(
                None, 1, 64, 64, None, columns, None, columns, window, (1, 1), (0, 0), (1, 1),
                (None, 1, None, 64), (576, 9, 3, 1),
            )  # fmt: skip
            schedule = choose_conv_schedule(problem, AVX2)
            assert schedule == choose_conv_schedule(problem, AVX2) == from_plain(to_plain(schedule))
            assert schedule.mr * schedule.nv <= 12
