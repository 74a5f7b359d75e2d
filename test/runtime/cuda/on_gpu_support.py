# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the tests on a GPU share: compiling without the fallback, and errors against float64."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import kiln


def compiled(function: Callable[..., Any], mode: str | None = None, **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    if mode is not None:
        return torch.compile(function, backend=kiln.backend, fullgraph=True, mode=mode)
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options={"fallback": False, **options})


def wide(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    assert found.is_cuda
    assert found.shape == exact.shape
    return ((found.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-30)).item()


def check(function: Callable[..., Any], *inputs: Any, limit: float = 1e-5, calls: int = 2) -> None:
    """The compiled function is as exact as eager, at each of several calls."""
    run = compiled(function)
    exact_function = copy.deepcopy(function).double() if isinstance(function, nn.Module) else function
    with torch.no_grad():
        exact = exact_function(*map(wide, inputs))
        for _ in range(calls):
            found = run(*inputs)
            pairs = zip(found, exact, strict=True) if isinstance(found, tuple) else [(found, exact)]
            for value, reference in pairs:
                assert error(value, reference) < limit


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def check_in_streams(model: Callable[..., Any], exact: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> None:
    """Calls without waiting, in several streams, and recorded in one: all are right."""
    for mode in (None, "reduce-overhead"):
        with torch.no_grad():
            run = compiled(model, mode=mode)
            streams = [torch.cuda.Stream() for _ in range(4)]
            torch.cuda.synchronize()
            found = []
            for i, x in enumerate([*inputs] * 3):
                with torch.cuda.stream(streams[i % 4] if mode is None else torch.cuda.current_stream()):
                    found.append(run(x).clone())
            torch.cuda.synchronize()
        for x, value in zip([*inputs] * 3, found, strict=True):
            assert error(value, exact(x)) < 1e-2
