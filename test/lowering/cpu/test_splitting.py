# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reshapes behind permutations: loops over the operand's own dims instead of quotients and remainders of the result's."""

from typing import Any

import pytest
import torch

from kiln.lowering import paths

SIZES = ((60, 4, 100, 5), (3, 2, 37, 3), (2, 5, 16, 16), (4, 1, 7, 2), (2, 3, 64, 20), (1, 6, 130, 1))
FUNCTIONS: dict[str, Any] = {
    "dims in front": lambda x: x.permute(3, 1, 0, 2).reshape(x.shape[3] * x.shape[1], -1),
    "one dim": lambda x: x.permute(0, 1, 3, 2).reshape(-1) * 2,
    "all turned": lambda x: torch.exp(x.permute(3, 2, 1, 0).reshape(-1, x.shape[0])),
    "with another": lambda x: x.transpose(1, 2).reshape(x.shape[0], -1) + x.reshape(x.shape[0], -1),
    "two results": lambda x: (x.permute(2, 0, 3, 1).flatten(), x.permute(2, 0, 3, 1).flatten() + 1),
    "rolled": lambda x: torch.roll(x.permute(1, 3, 2, 0).reshape(-1), 3),
}


def results(values: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return values if isinstance(values, tuple) else (values,)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_numbers(name: str, dtype: torch.dtype) -> None:
    function = FUNCTIONS[name]
    if not dtype.is_floating_point and name == "all turned":
        return
    for size in SIZES:
        torch._dynamo.reset()
        x = torch.randint(-50, 50, size).to(dtype) if dtype == torch.int8 else torch.randn(size).to(dtype)
        found = torch.compile(function, backend="kiln", options={"fallback": False})(x)
        for mine, right in zip(results(found), results(function(x)), strict=True):
            torch.testing.assert_close(mine, right)
            assert mine.stride() == right.stride()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_whatever_the_threads(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = torch.randn(60, 4, 200 + threads, 5)
        paths.reset()
        found = torch.compile(FUNCTIONS["dims in front"], backend="kiln", options={"fallback": False})(x)
        assert paths.taken()["cpu loops: turns written out"]
        assert torch.equal(found, FUNCTIONS["dims in front"](x))
    finally:
        torch.set_num_threads(before)


def test_a_flat_transposition_goes_by_tiles() -> None:
    x = torch.randn(3, 100, 140)
    paths.reset()
    found = torch.compile(lambda x: x.permute(0, 2, 1).reshape(-1), backend="kiln", options={"fallback": False})(x)
    assert paths.taken()["cpu loops: transposed tiles"]
    assert torch.equal(found, x.permute(0, 2, 1).reshape(-1))


def test_sizes_known_at_run_time() -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 1).reshape(-1, 12)

    compiled = torch.compile(rows, backend="kiln", options={"fallback": False})
    for count in (2, 5, 9):
        x = torch.randn(count, 12, 40)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        assert torch.equal(compiled(x), rows(x))
