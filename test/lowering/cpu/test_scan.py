# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Running sums and products along the last dim, in vectors: against PyTorch in float64."""

import pytest
import torch

import kiln

FUNCTIONS = {
    "sum": lambda x: x.cumsum(-1),
    "product": lambda x: x.cumprod(-1),
    "computed": lambda x: (x * x + 1).cumsum(-1) * 2,
    "backwards": lambda x: x.flip(-1).cumsum(-1),
}
TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def check(run, function, x):
    found, expected = run(x), function(x)
    assert (found.dtype, found.shape, found.stride()) == (expected.dtype, expected.shape, expected.stride())
    if not x.dtype.is_floating_point:
        assert torch.equal(found, expected)
        return
    value, exact = found.double(), function(x.double())
    finite = value.isfinite() & exact.isfinite()
    scale = exact[finite].abs().max() if finite.any() else 1.0
    near = finite & ((value - exact).abs() <= TOLERANCE[x.dtype] * scale)
    assert (near | (value == exact) | (value.isnan() & exact.isnan())).all()


def random(shape, dtype):
    if dtype.is_floating_point:
        return (1 + 0.2 * torch.randn(shape)).to(dtype)
    return torch.randint(0, 3, shape).to(dtype)


@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("dtype", [*TOLERANCE, torch.int64, torch.int8], ids=str)
def test_rows_of_known_size(name, dtype):
    run = torch.compile(FUNCTIONS[name], backend="kiln", dynamic=False)
    for shape in ((3, 1), (3, 17), (2, 3, 64)):
        check(run, FUNCTIONS[name], random(shape, dtype))


def test_rows_whose_size_is_known_at_run_time():
    run = torch.compile(FUNCTIONS["sum"], backend="kiln", dynamic=True)
    for columns in (2, 3, 8, 15, 16, 17, 31, 33, 100, 1000):
        check(run, FUNCTIONS["sum"], random((5, columns), torch.float32))


def test_strides_and_special_values():
    function = FUNCTIONS["sum"]
    run = torch.compile(function, backend="kiln")
    check(run, function, torch.randn(40, 6).t())
    check(run, function, torch.randn(6, 80)[:, ::2])
    x = torch.randn(6, 40)
    x[1, 3], x[2, 20], x[2, 30], x[3] = float("nan"), float("inf"), -float("inf"), -0.0
    check(run, function, x)
    for shape in ((0, 5), (4, 0)):
        assert run(torch.zeros(shape)).shape == shape


def test_long_rows_keep_their_digits():
    """What is carried from vector to vector has more digits than the elements."""
    x = torch.rand(1, 1 << 18)
    found, exact = torch.compile(FUNCTIONS["sum"], backend="kiln")(x), x.double().cumsum(-1)
    assert float(((found.double() - exact).abs() / exact).max()) < 3e-7


def test_it_is_a_kernel():
    assert kiln.explain(FUNCTIONS["sum"], torch.randn(4, 40)).aten_calls == []


@pytest.mark.parametrize("dim", [0, 1])
def test_a_running_sum_of_equal_terms_stays_exact(dim: int) -> None:
    """Roundings of the same size and sign add up in f32, along memory as across it."""
    x = torch.full((5000, 24) if dim == 0 else (24, 5000), 1 / 3)
    found = torch.compile(lambda x: torch.cumsum(x, dim), backend="kiln", options={"fallback": False})(x)
    torch.testing.assert_close(found.double(), x.double().cumsum(dim), rtol=2.0**-22, atol=0)
