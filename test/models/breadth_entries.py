# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Architectures and backends with planted failures, for the breadth run's own tests."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from benchmarks.gpu.breadth.entry import Built, Entry


def _plain(batch: int) -> Built:
    model = nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 40))
    return model, lambda generator: (torch.randn(batch, 16, generator=generator),)


class _Asking(nn.Module):
    """Computes something else where it is compiled."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() if torch.compiler.is_compiling() else x.cos()


def _asking(batch: int) -> Built:
    return _Asking(), lambda generator: (torch.randn(batch, 40, generator=generator),)


class _Drawing(nn.Module):
    """Draws numbers anew in each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


def _drawing(batch: int) -> Built:
    return _Drawing(), lambda generator: (torch.randn(batch, 40, generator=generator),)


def _failing(how: str) -> Callable[[int], Built]:
    def build(batch: int) -> Built:
        if how == "no model":
            raise ValueError("no such model")
        if how == "exit":
            os._exit(3)
        if how == "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        if how == "hang":
            time.sleep(600)
        return nn.Bilinear(2, 2, 2), lambda generator: (torch.zeros(1, 3),)  # eager raises

    return build


ENTRIES = [
    Entry("plain", "test", _plain, 8, True),
    Entry("asking", "test", _asking, 8, True),
    Entry("drawing", "test", _drawing, 8),
    *(Entry(how, "test", _failing(how), 8) for how in ("no model", "exit", "signal", "hang", "eager raises")),
]


def _changed(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def backend(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        def call(*inputs: Any) -> Any:
            (found,) = gm(*inputs)
            return (change(found),)

        return call

    return backend


def _element(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        changed = tensor.clone()
        changed.view(-1)[-1] += value
        return changed

    return change


scaled = _changed(lambda tensor: tensor * 1.05)
one_element = _changed(_element(5e-6))
one_nan = _changed(_element(float("nan")))
cut = _changed(lambda tensor: tensor[:, 1:])
half = _changed(lambda tensor: tensor.half())


def raising(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    raise RuntimeError("a backend that fails")


def writing(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """All four results are right; behind the last an element of an input is lost."""
    count = 0

    def call(*inputs: Any) -> Any:
        nonlocal count
        count += 1
        found = gm(*inputs)
        if count == 4:
            inputs[-1].detach().view(-1)[0] = 0.0
        return found

    return call


def stale(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """From the second call on the results of the first."""
    kept: list[Any] = []

    def call(*inputs: Any) -> Any:
        if not kept:
            kept.append(gm(*inputs))
        return kept[0]

    return call


def unsteady(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Each call is as far off as is allowed, in another direction."""
    count = 0

    def call(*inputs: Any) -> Any:
        nonlocal count
        count += 1
        (found,) = gm(*inputs)
        sign = torch.ones_like(found)
        sign.view(-1)[count % 2 :: 2] = -1
        return (found + 7e-7 * found.square().mean().sqrt() * sign,)

    return call
