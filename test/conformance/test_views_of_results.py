# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Values of which a graph returns or reads parts, other shapes and other orders beside the whole.

A view of the first rows has the index of a view of all; a result may be asked for in two orders of its dims.
"""

from collections.abc import Callable

import pytest
import torch

from benchmarks.fuzz.execute import Setting, run
from benchmarks.fuzz.program import Input, Program

TARGETS = ("cpu", "tt-cpu")


def _program(shapes: list[tuple[int, ...]], *lines: str, results: list[int]) -> Program:
    return Program([Input(s, torch.float32, 10 * i, "plain") for i, s in enumerate(shapes)], list(lines), results)


_TURNED = [(24, 16), (24, 32)]
_BATCHES = [(6, 12, 8), (6, 12, 16)]
_TOKENS = [(4, 4, 24), (24, 32)]
SPLITS = {
    "first rows of a product": _program(_TURNED, "v0.t() @ v1", "v2[:8].reshape(2, 4, 32) + 1", results=[2, 3]),
    "first rows of its activation": _program(
        _TURNED, "v0.t() @ v1", "F.relu(v2)", "v3[:8].reshape(2, 4, 32).sum(0)", results=[3, 4]
    ),
    "first of a batch": _program(
        _BATCHES, "torch.bmm(v0.transpose(1, 2), v1)", "v2[:4].reshape(2, 2, 8, 16) + 1", results=[2, 3]
    ),
    "tokens in two dims": _program(
        [(3, 16, 4, 4), (16, 4)], "F.linear(v0, v1)", "v2.reshape(3, 16, 2, 2, 16)", "v3 + v3", results=[4]
    ),
    "one matrix and one for each": _program(
        [(4, 12, 6, 2)], "v0 @ torch.tanh(v0).transpose(-1, -2)", "v0 @ v0.mean(1, keepdim=True).transpose(-1, -2)",
        "v1 + v2", results=[3],
    ),
    "one for many experts": _program(
        [*_TOKENS, (40, 16, 32)], "v0.view(16, 24) @ v1", "v3.view(4, 4, 32) + 1",
        "v3 * v2", "v5.view(10, 4, 16, 32).sum(2)", results=[4, 5, 6],
    ),
    "one for few experts": _program(
        [*_TOKENS, (6, 16, 32)], "v0.view(16, 24) @ v1", "v3 * v2", "v4.view(2, 3, 16, 32).sum(2)", results=[4, 5]
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SPLITS)
def test_rows_of_products_taken_apart(name: str, target: str) -> None:
    assert run(SPLITS[name], Setting("static", {"target": target}))


@pytest.mark.parametrize("target", TARGETS)
def test_a_mean_below_padding_as_wide_as_its_rows(target: str) -> None:
    program = _program([(4, 6, 2)], "v0.mean(2, keepdim=True)", "F.pad(v1, (0, 1))", results=[2])
    assert run(program, Setting("static", {"target": target}))


@pytest.mark.parametrize("target", TARGETS)
def test_an_expanded_copy(target: str) -> None:
    program = _program([(8,)], "v0.clone()", "v1[:3].expand(12, 3)", results=[2])
    assert run(program, Setting("static", {"target": target}))


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.to(memory_format=torch.channels_last)


def _turned(x: torch.Tensor) -> torch.Tensor:
    return x.mT.contiguous().mT


ORDERS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "a part, and channels last": lambda x: (x[:, 0], _channels_last(x)),
    "all, turned, and a part": lambda x: (_turned(x), x[0], x[:, 0]),
    "flat, channels last, and a view": lambda x: (x.flatten(), _channels_last(x), x.view(4, 30)),
    "a sum of another dim": lambda x: (x.sum(1)[:, 0], _turned(x.sum(1)), x.sum(1)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ORDERS)
def test_one_value_in_two_orders(name: str, target: str) -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ORDERS[name](x * 2)

    torch._dynamo.reset()
    compiled = torch.compile(model, backend="kiln", options={"target": target, "fallback": False})
    x = torch.randn(4, 2, 3, 5)
    for found, expected in zip(compiled(x), model(x), strict=True):
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()


def test_gradients_in_two_orders() -> None:
    program = Program(
        [
            Input((1, 1, 2), torch.bfloat16, 25),
            Input((2,), torch.bfloat16, 103),
            Input((2, 1, 2), torch.bfloat16, 104, layout="transposed"),
        ],
        [
            "torch.sigmoid(F.conv1d(v0, v2, v1, padding='same', dilation=2))",
            "torch.cat(torch.split(v3, 1, 0)[::-1], 0)",
            "F.adaptive_max_pool1d(v4, 3)",
        ],
        [5],
    )
    assert run(program, Setting("training", {"target": "cpu"}, training=True))
