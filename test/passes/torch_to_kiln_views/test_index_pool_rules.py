# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Numbers of indexing, pooling, upsampling and convolution rules against eager."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_mlir import ir
from views_harness import check, convert

from kiln.dialects.execute import run_reference

F = torch.nn.functional


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


TABLE, CUBE, IMAGE = noise(5, 4), noise(4, 5, 6), noise(2, 3, 7, 8)
I = torch.tensor([0, -1, 2])  # noqa: E741 - the usual name of an index
J = torch.tensor([[1], [-2]])
ROWS = torch.tensor([[0, 4, 2], [1, 1, 3]])

CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "embedding": (lambda w, i: F.embedding(i, w), (TABLE, ROWS)),
    "index_select": (lambda w, i: (w.index_select(0, i[0]), w.index_select(1, i[1])), (TABLE, ROWS)),
    "gather": (lambda w, i: w.gather(0, i), (TABLE, ROWS)),
    "index_one": (lambda x, i: (x[i], x[:, i], x[i.int()], x[i, None]), (CUBE, I)),
    "index_apart": (lambda x, i: x[i, :, i], (CUBE, I)),
    "index_broadcast": (lambda x, i, j: (x[i, j], x[:, i, j], x[j, :, i]), (CUBE, I, J)),
    "masked_index": (
        lambda x, i: torch.ops.aten._unsafe_masked_index(x, i > 0, [None, i + 1], 2.0),
        (TABLE, torch.tensor([[0, 5, 2, -3]])),
    ),
    "masked_write": (
        lambda x, i: (
            torch.index_put(x, (x > 0,), torch.tensor(2.0)),
            torch.index_put(x, (i[0] > 0,), x[:1] * 2),
            torch.index_put(x, (i[0] > 1,), x[0], accumulate=True),
            torch.ops.aten.index_put(x, [None, x[0] > 0], x[:, :1] * 3),
        ),
        (noise(3, 4), torch.tensor([[0, 5, 2], [1, 1, 1]])),
    ),
    "take": (lambda x, i: torch.take(x, i), (TABLE, I)),
    "max_pool2d": (lambda x: (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, 1, 0, 2)), (IMAGE,)),
    "max_pool_ceil": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), (IMAGE,)),
    "max_pool_1d_3d": (lambda x: (F.max_pool1d(x[0], 3, 2, 1), F.max_pool3d(x, 2)), (IMAGE,)),
    "avg_pool2d": (lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1)), (IMAGE,)),
    "avg_pool_ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (IMAGE,)),
    "avg_pool_no_pad": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), (IMAGE,)),
    "avg_pool_divisor": (lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5), (IMAGE,)),
    "adaptive_whole": (lambda x: F.adaptive_avg_pool2d(x, 1), (IMAGE,)),
    "nearest_whole_factor": (lambda x: F.interpolate(x, scale_factor=2), (IMAGE,)),
}

STATIC: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, 2, 1), (IMAGE, noise(4, 3, 3, 3), noise(4))),
    "adaptive_even": (lambda x: F.adaptive_avg_pool2d(x, (7, 4)), (IMAGE,)),
    "adaptive_uneven": (lambda x: (F.adaptive_avg_pool2d(x, (4, 3)), F.adaptive_max_pool2d(x, (4, 3))), (IMAGE,)),
    "nearest_odd": (lambda x: F.interpolate(x, size=(9, 5)), (IMAGE,)),
    "nearest_exact": (lambda x: F.interpolate(x, size=(4, 11), mode="nearest-exact"), (IMAGE,)),
    "pool_half": (lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1)), (IMAGE.half(),)),
    "conv_transposed": (lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1), (IMAGE, noise(3, 4, 3, 3))),
    "embedding_bag": (
        lambda w, i: (F.embedding_bag(i, w, mode="sum"), F.embedding_bag(i, w, mode="mean")),
        (TABLE, ROWS),
    ),
    "embedding_bag_of_one": (lambda w, i: F.embedding_bag(i[:, :1], w, mode="mean"), (TABLE, ROWS)),
    "conv_groups": (lambda x, w: F.conv2d(x, w, groups=3, dilation=2), (IMAGE, noise(6, 1, 2, 2))),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, dynamic: bool, context: ir.Context) -> None:
    fn, inputs = CASES[name]
    check(fn, inputs, context, dynamic, tolerance=3e-6)


@pytest.mark.parametrize("name", STATIC)
def test_static_values(name: str, context: ir.Context) -> None:
    fn, inputs = STATIC[name]
    check(fn, inputs, context, tolerance=3e-6)


def test_max_pool_propagates_nan(context: ir.Context) -> None:
    x = IMAGE.clone()
    x[0, 0, 0, 0] = float("nan")
    check(lambda x: F.max_pool2d(x, 2), (x,), context)


def test_an_index_out_of_range_reads_an_edge(context: ir.Context) -> None:
    imported, _ = convert(lambda w, i: F.embedding(i, w), (TABLE, ROWS), context)
    with context, ir.Location.unknown():
        rows = run_reference(imported.module, [TABLE.numpy(), torch.tensor([[9, -9, 1], [0, 0, 0]]).numpy()])[0]
    assert (rows[0, 0] == TABLE[4].numpy()).all()
    assert (rows[0, 1] == TABLE[0].numpy()).all()


WRITES: dict[str, Callable[..., Any]] = {
    "index_put": lambda x, i: x.index_put((i,), torch.zeros_like(x[0])),
    "scatter": lambda x, i: x.scatter(0, i[:, None].expand(3, 4) % 5, 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None].expand(3, 4) % 5, x[:3]),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_are_atens(name: str, context: ir.Context) -> None:
    _, decisions = convert(WRITES[name], (TABLE, I), context)
    assert [d.way for d in decisions if d.op.startswith(f"torch.aten.{name}")] == ["aten"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_positions_of_maxima(context: ir.Context, dynamic: bool) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = F.max_pool2d(x, 2, return_indices=True)
        second = F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True)
        return (*first, *second, *F.max_pool2d(x, 2, 1, 0, 2, return_indices=True))

    x = IMAGE.round()  # there are equals
    x[0, 0, :4, :4] = -torch.inf
    x[1, 1, 2, 3:5] = torch.nan
    check(run, (x,), context, dynamic)


def test_positions_in_dilated_windows_of_padded_images_are_atens(context: ir.Context) -> None:
    check(lambda x: F.max_pool2d(x, 3, 2, 1, 2, return_indices=True), (IMAGE,), context, way="aten")
