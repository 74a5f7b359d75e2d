# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""An index out of range is an error that names the op, and the compiled function works afterwards."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

ROWS = 9

CASES: dict[str, tuple[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "embedding": ("aten.embedding", lambda t, i: F.embedding(i, t) * 2, (ROWS, -1)),
    "index": ("aten.index.Tensor", lambda t, i: t[i] + 1, (ROWS, -ROWS - 1)),
    "computed index": ("aten.index.Tensor", lambda t, i: t[i - ROWS], (2 * ROWS, -1)),
    "gather": ("aten.gather", lambda t, i: t.gather(0, i[:, :3] - 5 + 5).exp(), (ROWS, -1)),
    "index_select": ("aten.index_select", lambda t, i: t.index_select(0, i.flatten()), (ROWS,)),
    "under a reduction": ("aten.index.Tensor", lambda t, i: t[i].softmax(-1), (ROWS,)),
    "under a product": ("aten.embedding", lambda t, i: F.embedding(i, t) @ t.mT, (ROWS,)),
    "under a pad": ("aten.index.Tensor", lambda t, i: F.pad(t[i - 5 + 5, 0], (2, 3)), (ROWS,)),
}


def compiled(function: Callable[..., torch.Tensor], **kwargs: Any) -> Callable[..., torch.Tensor]:
    torch._dynamo.reset()
    return torch.compile(function, backend="kiln", fullgraph=True, options={"fallback": False}, **kwargs)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_error(name: str, dynamic: bool) -> None:
    op, function, wrong = CASES[name]
    run = compiled(function, dynamic=dynamic)
    generator = torch.Generator().manual_seed(0)
    table, index = torch.randn(ROWS, 33, generator=generator), torch.randint(0, ROWS, (5, 7), generator=generator)
    torch.testing.assert_close(run(table, index), function(table, index))
    for value in wrong:
        bad = index.clone()
        bad[0, 2] = value
        with pytest.raises((IndexError, RuntimeError)):
            function(table, bad)
        with pytest.raises(IndexError, match=op):
            run(table, bad)
        torch.testing.assert_close(run(table, index), function(table, index))


def test_threads() -> None:
    """The wrong index may be any thread's."""
    run = compiled(lambda t, i: t[i] * 2)
    table, index = torch.randn(ROWS, 33), torch.randint(0, ROWS, (20000,))
    for position in (0, 9999, 19999):
        bad = index.clone()
        bad[position] = ROWS
        with pytest.raises(IndexError):
            run(table, bad)
    assert torch.equal(run(table, index), table[index] * 2)


def test_unsafe_index() -> None:
    """Interpolation computes indices that it clamps itself."""
    x = torch.randn(2, 3, 5, 5)
    run = compiled(lambda x: F.interpolate(x, size=(7, 11), mode="bilinear"))
    torch.testing.assert_close(run(x), F.interpolate(x, size=(7, 11), mode="bilinear"))


def test_negative_zero() -> None:
    """relu keeps the sign of a zero, as eager's does."""
    x = torch.tensor([-0.0, 0.0, float("nan"), -1.0, 1.0] * 7)
    for function in (torch.relu, lambda x: x.clamp(min=0), F.relu6):
        ours, eager = compiled(function)(x), function(x)
        torch.testing.assert_close(ours, eager, equal_nan=True)
        assert torch.equal(ours.signbit(), eager.signbit())
