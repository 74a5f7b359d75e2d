# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Inputs that nothing else refers to are freed behind their last use, while the graph runs."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from kiln.frontend.compile import compile_graph
from kiln.frontend.options import Options

_alive: list[bool] = []
_given: list[weakref.ref[torch.Tensor]] = []


@torch.library.custom_op("kiln_owned_inputs::look", mutates_args=())
def look(x: torch.Tensor) -> torch.Tensor:
    """A copy; notes which inputs of the graph are alive."""
    _alive[:] = [reference() is not None for reference in _given]
    return x.clone()


@look.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def compiled(function: Callable[..., Any], count: int, target: str) -> Callable[[list[Any]], list[Any]]:
    with FakeTensorMode():
        graph = make_fx(function)(*(torch.empty(8, 5) for _ in range(count)))
    return compile_graph(graph, Options(fallback=False, target=target), "inference")


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_inputs_are_freed_behind_the_last_step_that_reads_them(target: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[Any, ...]:
        return look(x.relu() * y) + y, z, 3

    run = compiled(function, 3, target)
    for _ in range(2):  # the second time sizes are known
        inputs = [torch.randn(8, 5) for _ in range(3)]
        x, y, z = (t.clone() for t in inputs)
        _given[:] = [weakref.ref(t) for t in inputs]
        found = run(inputs)
        assert _alive == [False, True, True] and inputs == []
        assert [reference() is None for reference in _given] == [True, True, False]
        assert found[1] is _given[2]() and found[2] == 3
        torch.testing.assert_close(found[0], x.relu() * y + y)
        torch.testing.assert_close(found[1], z)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_inputs_that_are_written_to_stay(target: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = look(x * y)
        x.copy_(made.sin())
        return made

    run = compiled(function, 2, target)
    x, y = torch.randn(8, 5), torch.randn(8, 5)
    before = x.clone()
    _given[:] = [weakref.ref(x), weakref.ref(y)]
    inputs = [x, y.clone()]
    (made,) = run(inputs)
    torch.testing.assert_close(made, before * y)
    torch.testing.assert_close(x, made.sin())
