# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A scatter's result came back with the shape of another tensor: the copy of its base took the memory of what the base
was a view of, which the scatter's result, a tensor of its own, then was."""

import pytest
import torch


def heads(x, w, at):
    y = torch.softmax(x @ w, -1).transpose(1, 2).flatten(2)
    return torch.scatter(y, 1, at, 2.0)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_shape_of_the_result(target):
    x, w, at = torch.randn(1, 2, 8, 24), torch.randn(24, 24), torch.randint(0, 8, (1, 8, 48))
    found = torch.compile(heads, backend="kiln", options={"fallback": False, "target": target})(x, w, at)
    torch.testing.assert_close(found, heads(x, w, at))
