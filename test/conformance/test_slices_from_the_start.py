# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Values that are returned, and of which another op reads the first rows or columns.

A slice from the start is read at the same index as the whole: loops over the slice do not write the whole.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmarks.fuzz.execute import Setting, run
from benchmarks.fuzz.program import Input, Program


def _program(shapes: list[tuple[int, ...]], *lines: str, results: list[int]) -> Program:
    return Program([Input(s, torch.float32, 10 * i, "plain") for i, s in enumerate(shapes)], list(lines), results)


_MATRICES = [(64, 48), (48, 64), (64, 128)]
_IMAGES = [(2, 8, 16, 16), (8, 8, 3, 3)]
PROGRAMS = {
    "columns beside a product": _program(_MATRICES, "v2 * 2", "v0 @ v1 + v3[:, :64]", results=[3, 4]),
    "rows beside rows of a product": _program(_MATRICES, "v2 * 2", "(v0 @ v1)[:32] + v3[:32, :64]", results=[3, 4]),
    "rows of a product": _program(_MATRICES, "v0 @ v1", "F.relu(v3[:32])", results=[4]),
    "rows of a returned product": _program(_MATRICES, "v0 @ v1", "F.relu(v3[:32])", results=[3, 4]),
    "one row of a product": _program(_MATRICES, "v0 @ v1", "F.relu(v3[:1])", results=[3, 4]),
    "columns of a product": _program(_MATRICES, "v0 @ v1", "F.relu(v3[:, :32])", results=[3, 4]),
    "batches of a product": _program(
        [(4, 16, 24), (4, 24, 32)], "v0 @ v1", "F.relu(v2[:2])", "v2[:, :8] * 2", results=[2, 3, 4]
    ),
    "rows of a softmax": _program(_MATRICES, "v2 * 2", "torch.softmax(v3[:40, :64], 1)", results=[3, 4]),
    "rows of sums": _program(_MATRICES, "v2.sum(1, keepdim=True)", "v3[:32] + 1", results=[3, 4]),
    "beside a sum": _program(_MATRICES, "v2.exp()", "v3[:40].sum(0)", results=[3, 4]),
    "images of a convolution": _program(
        _IMAGES, "F.conv2d(v0, v1, padding=1)", "F.relu(v2[:1])", "F.relu(v2[:, :4])", results=[2, 3, 4]
    ),
    "channels beside a convolution": _program(
        _IMAGES, "v0.view(1, 16, 16, 16) * 2", "F.conv2d(v0[:1], v1, padding=1) + v2[:, :8]", results=[2, 3]
    ),
    "positions beside attention": _program(
        [(2, 4, 32, 16), (2, 4, 64, 16)],
        "v1 * 2", "F.scaled_dot_product_attention(v0, v0, v0) + v2[:, :, :32]", results=[2, 3],
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_slice_from_the_start(name: str, target: str) -> None:
    assert run(PROGRAMS[name], Setting("static", {"target": target}))


def test_gradients_of_a_concatenation_beside_a_product() -> None:
    def model(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> Any:
        return F.linear(x, w), torch.cat([w, v], -1) * 2

    _compare_gradients(model, torch.randn(128, 64), torch.randn(48, 64), torch.randn(48, 64))


def _compare_gradients(model: Callable[..., Any], *tensors: torch.Tensor) -> None:
    given = [t.requires_grad_() for t in tensors]

    def gradients(function: Callable[..., Any]) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(sum(result.square().sum() for result in function(*given)), given)

    for target in ("cpu", "tt-cpu"):
        compiled = torch.compile(model, backend="kiln", options={"target": target, "fallback": False})
        torch.testing.assert_close(gradients(compiled), gradients(model))
        torch._dynamo.reset()
