# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reductions over sizes known at run time only: in parts, in chains, and in rows that fit into a program or do not."""

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F

from kiln.lowering import paths

TARGETS = ("cpu", "tt-cpu")
Shape = tuple[int, ...]


def errors(
    function: Callable[[torch.Tensor], torch.Tensor], shapes: Sequence[Shape], dims: Sequence[int], target: str
) -> list[float]:
    """Largest relative errors, one for each shape of the input, by a graph made for the first, with `dims` dynamic."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="kiln", fullgraph=True, options={"target": target, "cache": False})
    found: list[float] = []
    for i, shape in enumerate(shapes):
        x = torch.randn(shape) + 1
        if i == 0:
            for dim in dims:
                torch._dynamo.mark_dynamic(x, dim)
        with torch.compiler.set_stance("default" if i == 0 else "fail_on_recompile"):
            result = compiled(x).double()
        expected = function(x.double()).double()
        assert result.shape == expected.shape
        found.append(float((result - expected).abs().max() / expected.abs().max().clamp(min=1e-30)))
    return found


CASES = {
    "all": (lambda x: (x * x).sum(), [(70_000,), (3,), (33_793,), (200_001,)], [0], "of any length"),
    "rows of all": (lambda x: (x * 2).mean(), [(3000, 50), (2, 50), (2999, 50)], [0], "of any length"),
    "several dims": (lambda x: x.mean(), [(300, 500), (2, 7), (299, 501)], [0, 1], "several of any length"),
    "dims apart": (lambda x: x.sum((0, 2)), [(64, 3, 1000), (2, 3, 17), (67, 3, 999)], [0, 2], "several of any length"),
    "long rows": (lambda x: x.sum(1), [(3, 300_000), (3, 2), (3, 100_001)], [1], "of any length"),
    "of any number of rows": (lambda x: x.sum(1), [(3, 300_000), (5, 300_000)], [0], "rows"),
    "largest": (lambda x: x.amax(), [(300, 500), (2, 7), (299, 501)], [0, 1], "several of any length"),
    "product": (lambda x: x.sign().prod(), [(70_000,), (2,), (33_793,)], [0], "of any length"),
    "pairs": (lambda x: (x[:, None] * x).sum(), [(300,), (2,), (301,)], [0], "several of any length"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_long_sums_are_split(case: str, target: str) -> None:
    function, shapes, dims, path = CASES[case]
    before = paths.taken()
    assert max(errors(function, shapes, dims, target)) < 1e-6
    if target != "cpu" or path == "rows":
        name = f"{'cpu' if target == 'cpu' else 'gpu'} split-reductions: {path}"
        assert paths.taken().get(name, 0) > before.get(name, 0)


def test_columns_are_split_for_a_gpu() -> None:
    before = paths.taken().get("gpu split-reductions: several of any length", 0)
    shapes = [(32, 300, 96), (2, 5, 96), (33, 301, 96)]
    assert max(errors(lambda x: x.sum((0, 1)), shapes, [0, 1], "tt-cpu")) < 1e-6
    assert paths.taken()["gpu split-reductions: several of any length"] > before


@pytest.mark.parametrize("target", TARGETS)
def test_positions_of_extrema_are_whole(target: str) -> None:
    assert errors(lambda x: x.argmax(), [(70_000,), (3,), (33_793,)], [0], target) == [0, 0, 0]


def test_a_long_sum_of_equal_signs_does_not_drift() -> None:
    """Added up in order, the variance of 60,000 rows was 1e-5 off."""
    before = paths.taken().get("gpu reduction: chains of blocks", 0)
    # Known sizes have kernels of their own; the few rows of the first call leave all rows to one program.
    assert max(errors(lambda x: x.var(0), [(40, 8), (60_000, 8), (20_000, 8)], [0], "tt-cpu")) < 1e-6
    assert paths.taken()["gpu reduction: chains of blocks"] > before


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.softmax(x, -1),
        lambda x: F.layer_norm(x, (x.shape[-1],)),
        lambda x: F.softmax(x.masked_fill(x > 1, -1e9), -1) * 2,
        lambda x: (x - x.mean(-1, True)) / x.std(-1, keepdim=True),
        lambda x: F.softmax(x.flatten(), 0),
    ],
)
def test_rows_that_fit_into_a_program_or_do_not(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    before = paths.taken().get("gpu rows: whole rows where they fit", 0)
    shapes = [(8, 100), (3, 7), (5, 128), (5, 129), (2, 3000)]
    assert max(errors(function, shapes, [0, 1], "tt-cpu")) < 1e-6
    assert paths.taken()["gpu rows: whole rows where they fit"] > before
