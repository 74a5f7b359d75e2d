# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Writes with indices as kernels: of a CPU, and those of a GPU as loops on the CPU, against eager in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kiln.frontend.report import collect

r = torch.randn


def _at(high: int, *shape: int, low: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape)


def _embedding_gradient(gradient: torch.Tensor, index: torch.Tensor, padding: int) -> torch.Tensor:
    return torch.ops.aten.embedding_dense_backward(gradient, index, 50, padding, False)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "scatter_add to zeros": (
        lambda x, i, y: torch.zeros_like(x).scatter_add(1, i, y * 2),
        lambda: (r(8, 10), _at(10, 8, 7), r(8, 7)),
    ),
    "scatter_add": (lambda x, i, y: x.scatter_add(1, i, y * 2), lambda: (r(8, 10), _at(10, 8, 70), r(8, 70))),
    "what is added to is read again": (
        lambda x, i, y: (x.scatter_add(1, i, y), x + 1),
        lambda: (r(8, 10), _at(10, 8, 7), r(8, 7)),
    ),
    "computed, and read behind": (
        lambda x, i, y: (x * 2).scatter_add(0, i, y * 2).relu() + 1,
        lambda: (r(8, 10), _at(8, 6, 7), r(9, 9)),
    ),
    "two of one tensor": (
        lambda x, i, y: ((x * 2).scatter_add(0, i, y), (x * 2).scatter_add(0, i, y * 3)),
        lambda: (r(8, 10), _at(8, 6, 7), r(9, 9)),
    ),
    "one value to one place": (
        lambda x, j, y: (x * 2).index_put((j,), y, accumulate=True),
        lambda: (r(1, 1), _at(1, 30, low=-1), r(1)),
    ),
    "rows": (lambda x, j, y: x.index_put((j,), y, accumulate=True), lambda: (r(8, 10), _at(8, 30, low=-8), r(30, 10))),
    "two indices": (
        lambda x, j, k, y: x.index_put((j, k), y, accumulate=True),
        lambda: (r(8, 10, 5), _at(8, 30, 1, low=-8), _at(10, 4), r(30, 4, 5)),
    ),
    "indices apart": (
        lambda x, j, k, y: torch.ops.aten.index_put(x, [j, None, k], y, True),
        lambda: (r(8, 10, 5), _at(8, 30, 1, low=-8), _at(5, 4), r(30, 4, 10)),
    ),
    "values that broadcast": (
        lambda x, j, y: torch.ops.aten.index_put(x, [None, j], y, True),
        lambda: (r(8, 10, 5), _at(10, 3, low=-10), r(8, 3, 1)),
    ),
    "index_add": (lambda x, j, y: x.index_add(1, j, y, alpha=2), lambda: (r(8, 10), _at(10, 30), r(8, 30))),
    "indices of 32 bits": (lambda x, j, y: x.index_add(0, j.int(), y), lambda: (r(8, 10), _at(8, 30), r(30, 10))),
    "no indices": (lambda x, j, y: x.index_add(0, j, y), lambda: (r(8, 10), _at(8, 0), r(0, 10))),
    "index_copy": (lambda x, j, y: x.index_copy(0, j, y), lambda: (r(8, 10), torch.randperm(8)[:5], r(5, 10))),
    "a number in slices": (
        lambda x, j: x.index_fill(1, j, 1.5) * 2,
        lambda: (r(8, 10, 3), _at(10, 4, low=-10)),
    ),
    "a number": (lambda x, i: x.scatter(1, i, 1.5), lambda: (r(8, 10), _at(10, 8, 7))),
    "a transposed tensor": (lambda x, i, y: x.t().scatter_add(1, i, y), lambda: (r(10, 8), _at(10, 8, 7), r(8, 7))),
    "strided values": (
        lambda x, i, y: x.scatter_add(1, i.t(), y[::2].t()),
        lambda: (r(8, 10), _at(10, 7, 8), r(14, 8)),
    ),
    "values that die": (
        lambda x, i, y: torch.zeros_like(x).scatter_add(1, i, torch.sin(x).cumsum(1) * y).relu(),
        lambda: (r(8, 10), _at(10, 8, 10), r(8, 10)),
    ),
    "slices in front": (
        lambda x, i, y: x.scatter_add(2, i, y.sin()),
        lambda: (r(20, 3, 11), _at(11, 17, 2, 33), r(17, 2, 33)),
    ),
    "blocks of rows": (
        lambda x, j, y: torch.zeros_like(x).index_add(0, j, y.exp()) + x,
        lambda: (r(40, 4, 17), _at(40, 100), r(100, 4, 17)),
    ),
    "columns": (lambda x, j, y: x.index_add(1, j, y.t()), lambda: (r(33, 10), _at(10, 70), r(70, 33))),
    "single elements": (lambda x, j, y: x.index_add(0, j, y.cos()), lambda: (r(50), _at(50, 1000), r(1000))),
    "the last of several": (
        lambda x, j, y: x.index_put((j,), y.sin()),
        lambda: (r(50), torch.arange(1000) % 7, r(7).repeat(143)[:1000]),
    ),
    "largest": (lambda x, i, y: x.scatter_reduce(1, i, y, "amax"), lambda: (r(8, 10), _at(10, 8, 70), r(8, 70))),
    "smallest": (lambda x, i, y: x.scatter_reduce(1, i, y, "amin"), lambda: (r(8, 10), _at(10, 8, 70), r(8, 70))),
    "embedding gradient": (lambda g, i: _embedding_gradient(g, i, -1) * 2, lambda: (r(4, 30, 16), _at(50, 4, 30))),
    "embedding gradient, padding": (lambda g, i: _embedding_gradient(g, i, 3), lambda: (r(4, 30, 16), _at(5, 4, 30))),
}


@pytest.fixture(params=["cpu", "tt-cpu"], autouse=True)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the kernels of a test are for."""
    monkeypatch.setenv("KILN_TARGET", request.param)
    return request.param


def _run(fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...], dynamic: bool = False) -> tuple[Any, Any]:
    """What Kiln computes, without a call of ATen, and eager in float64."""
    torch._dynamo.reset()
    options = {"fallback": False, "cache": False}
    expected = fn(*[x.double() if x.is_floating_point() else x.clone() for x in inputs])
    with collect() as reports:
        found = torch.compile(fn, backend="kiln", dynamic=dynamic, options=options)(*inputs)
    assert not [call.op for report in reports for call in report.aten_calls]
    return ((found,), (expected,)) if isinstance(found, torch.Tensor) else (found, expected)


def _check(fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...], tolerance: float, dynamic: bool = False) -> None:
    for f, e in zip(*_run(fn, inputs, dynamic), strict=True):
        assert f.shape == e.shape
        if f.is_floating_point():
            assert (f.double() - e.double()).norm() <= tolerance * e.double().norm()
        else:
            assert torch.equal(f, e)


@pytest.mark.parametrize("name", CASES)
def test_float32(name: str) -> None:
    fn, inputs = CASES[name]
    _check(fn, inputs(), 1e-6)


@pytest.mark.parametrize("name", ["scatter_add", "embedding gradient, padding", "smallest", "a number"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 1e-2), (torch.float16, 2e-3), (torch.float64, 1e-14)]
)
def test_other_floats(name: str, dtype: torch.dtype, tolerance: float) -> None:
    fn, inputs = CASES[name]
    _check(fn, tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs()), tolerance)


def test_many_small_sums_of_16_bits_do_not_stop_growing() -> None:
    """Added in bf16 one by one, 4000 ones are 256."""
    fn, y = CASES["rows"][0], torch.ones(4000, 3, dtype=torch.bfloat16)
    (found,), _ = _run(fn, (torch.zeros(2, 3, dtype=torch.bfloat16), torch.zeros(4000, dtype=torch.int64), y))
    assert found[0, 0].item() == 4000


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", ["scatter_add", "largest", "smallest"])
def test_integers(name: str, dtype: torch.dtype) -> None:
    x, y = torch.randint(-9, 9, (8, 10), dtype=dtype), torch.randint(-9, 9, (8, 70), dtype=dtype)
    _check(CASES[name][0], (x, _at(10, 8, 70), y), 0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float16])
def test_plain_writes_of_any_type(dtype: torch.dtype) -> None:
    x, y = (torch.randint(0, 2, shape).to(dtype) for shape in ((8, 10), (8, 7)))
    _check(lambda x, i, y: x.scatter(1, i, y), (x, torch.argsort(r(8, 10), 1)[:, :7].contiguous(), y), 0)


@pytest.mark.parametrize(
    "name",
    ["scatter_add", "two indices", "embedding gradient", "largest", "index_add", "blocks of rows", "slices in front"],
)
def test_dynamic_sizes(name: str) -> None:
    fn, inputs = CASES[name]
    _check(fn, inputs(), 1e-6, dynamic=True)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extremes_of_any_bits(reduce: str, dtype: torch.dtype) -> None:
    """Both zeros, infinities, NaNs of either sign, in memory or written: as eager's."""
    nan = float("nan")
    odd = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), nan, -nan, 1e-42, -1e-42], dtype=dtype)
    x, y = (p.reshape(-1) for p in torch.meshgrid(odd, odd, indexing="ij"))
    fn = lambda x, i, y: x.scatter_reduce(0, i, y, reduce)
    (found,), (expected,) = _run(fn, (x, torch.arange(100), y))
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(7.0), expected.to(dtype).nan_to_num(7.0))


def test_an_argument_that_is_mutated() -> None:
    x, j, y = r(8, 10), _at(8, 30), r(30, 10)
    mine, theirs = x.clone(), x.double()
    _run(lambda x, j, y: x.index_add_(0, j, y), (mine, j, y))
    theirs.index_add_(0, j, y.double())
    assert (mine - theirs).norm() < 1e-6 * theirs.norm()


def _calls(fn: Callable[..., Any], *inputs: torch.Tensor) -> list[tuple[str, str]]:
    torch._dynamo.reset()
    with collect() as reports:
        found = torch.compile(fn, backend="kiln", options={"fallback": False, "cache": False})(*inputs)
    assert torch.allclose(found.double(), fn(*inputs).double(), rtol=1e-2)
    return [(call.op, call.reason) for report in reports for call in report.aten_calls]


def test_deterministic_algorithms_are_calls_and_the_setting_is_watched(target: str) -> None:
    """A CPU's kernels add in one order."""
    fn = CASES["scatter_add"][0]
    x, i, y = CASES["scatter_add"][1]()
    assert not _calls(fn, x, i, y)
    torch.use_deterministic_algorithms(True)
    try:
        calls = _calls(fn, x, i, y)
    finally:
        torch.use_deterministic_algorithms(False)
    reasons = ["torch.use_deterministic_algorithms: atomics add in any order"] if target == "tt-cpu" else []
    assert [reason for _, reason in calls] == reasons


@pytest.mark.parametrize("target", ["cpu"], indirect=True)
@pytest.mark.parametrize(
    ("name", "dim"),
    [
        ("blocks of rows", 0),
        ("single elements", 0),
        ("slices in front", -1),
        ("largest", -1),
        ("the last of several", 0),
    ],
)
def test_results_do_not_depend_on_threads(name: str, dim: int) -> None:
    """Bit for bit. There is work for all threads: what is written is repeated along a dim that indices run along."""
    fn, inputs = CASES[name]
    x, *written = inputs()
    given = (x, *(torch.cat([v] * 30, dim) for v in written))
    before, found = torch.get_num_threads(), list[torch.Tensor]()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(torch.compile(fn, backend="kiln", options={"fallback": False, "cache": False})(*given))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("target", ["cpu"], indirect=True)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
def test_sums_of_short_integers(dtype: torch.dtype) -> None:
    x, y = torch.randint(-9, 9, (8, 10), dtype=dtype), torch.randint(-9, 9, (8, 70), dtype=dtype)
    _check(CASES["scatter_add"][0], (x, _at(10, 8, 70), y), 0)


@pytest.mark.parametrize("target", ["cpu"], indirect=True)
def test_an_index_out_of_range_is_an_error() -> None:
    x, j, y = r(8, 10), _at(8, 30), r(30, 10)
    compiled = torch.compile(lambda x, j, y: x.index_add(0, j, y), backend="kiln", options={"cache": False})
    compiled(x, j, y)
    j[7] = 8
    with pytest.raises(IndexError):
        compiled(x, j, y)
