# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""ATen gives what is written into a slice of windows the windows' strides: elements share memory, and what is written to
one of them changes others. Kiln wrote each element by itself, in an order of its own."""

import pytest
import torch


def selected(windows):
    return torch.select_scatter(windows, windows.select(0, 0) * 2, 0, 2)


def sliced(windows):
    return torch.slice_scatter(windows, windows[:1] * 2, 0, 2, 3)


def every(windows):
    """All five windows, the first one last."""
    for i in reversed(range(5)):
        windows = torch.select_scatter(windows, windows.select(0, i) * (i + 2), 0, i)
    return windows


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [selected, sliced, every])
@pytest.mark.parametrize("step", [1, 2])
def test_windows(function, step, dynamic):
    x = torch.arange(4 * step + 2, dtype=torch.float32) + 1

    def model(x):
        return function(x.unfold(0, 2, step))

    found, expected = torch.compile(model, backend="kiln", dynamic=dynamic)(x), model(x)
    assert torch.equal(found, expected) and found.stride() == expected.stride()
