# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What merging and dropping ops may not change: random numbers, effects, writes to arguments, distinct results."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

Tensor = torch.Tensor


@torch.library.custom_op("kiln_test::bump", mutates_args=("x",))
def bump(x: Tensor) -> None:
    """Adds one in place."""
    x.add_(1)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model: Callable[..., object]) -> Callable[..., object]:
    return torch.compile(model, backend="kiln", options={"fallback": False})


@pytest.mark.parametrize(
    "model",
    [
        lambda x: torch.rand_like(x) - torch.rand_like(x),
        lambda x: F.dropout(x, 0.5) + F.dropout(x, 0.5),
        lambda x: torch.bernoulli(x.sigmoid()) + 2 * torch.bernoulli(x.sigmoid()),
    ],
    ids=["rand", "dropout", "bernoulli"],
)
def test_each_draw_is_one_of_its_own(model: Callable[[Tensor], Tensor]) -> None:
    """With the same seed eager's numbers, and the generator where eager leaves it."""
    x = torch.randn(64)
    torch.manual_seed(3)
    expected, after = model(x), torch.rand(2)
    torch.manual_seed(3)
    actual = compiled(model)(x)
    torch.testing.assert_close(actual, expected)
    assert torch.equal(torch.rand(2), after)


def test_a_write_between_two_equal_reads() -> None:
    def model(x: Tensor) -> Tensor:
        before = torch.sin(x)
        x.add_(1)
        middle = torch.sin(x)
        bump(x)
        return before + 2 * middle + 4 * torch.sin(x)

    x, y = torch.randn(8), torch.empty(8)
    y.copy_(x)
    torch.testing.assert_close(compiled(model)(x), model(y))
    torch.testing.assert_close(x, y)


def test_equal_results_are_distinct_memory() -> None:
    first, second, third = compiled(lambda x: (x + 1, x + 1, (x + 1).view(2, 2)))(torch.zeros(4))
    first.fill_(7)
    assert second.tolist() == [1.0] * 4
    second.fill_(8)
    assert third.tolist() == [[1.0, 1.0], [1.0, 1.0]]
