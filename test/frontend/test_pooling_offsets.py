# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of max poolings from offsets in the window."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

import kiln
from kiln.frontend import aot
from kiln.frontend.recomputed import round_recomputed
from kiln.lowering import paths


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """What backward graphs get from their forward graphs."""
    found: list[Node] = []

    def keep(forward: GraphModule, backward: GraphModule) -> None:
        found.extend(backward.graph.find_nodes(op="placeholder"))
        round_recomputed(forward, backward)

    monkeypatch.setattr(aot, "round_recomputed", keep)
    return found


def gradient(run: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    found = run(x)
    y = found[0] if isinstance(found, tuple) else found
    (result,) = torch.autograd.grad(y, x, torch.linspace(1, -1, y.numel()).view(y.shape).to(x.dtype))
    rest = found[1:] if isinstance(found, tuple) else ()
    return y.detach(), result, *rest


def compiled(function: Any, target: str, dynamic: bool = False) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend=kiln.backend, options={"fallback": False, "target": target}, dynamic=dynamic)


def check(function: Any, x: torch.Tensor, target: str, dynamic: bool = False) -> None:
    for ours, theirs in zip(gradient(compiled(function, target, dynamic), x), gradient(function, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, equal_nan=True)
        assert ours.stride() == theirs.stride()


def types(saved: list[Node]) -> list[torch.dtype]:
    return [n.meta["val"].dtype for n in saved if isinstance(n.meta["val"], torch.Tensor)]


WINDOWS = [
    (F.max_pool2d, (2, 3, 9, 11), {"kernel_size": 3, "stride": 2, "padding": 1}),
    (F.max_pool2d, (3, 9, 11), {"kernel_size": 2}),
    (F.max_pool2d, (2, 3, 9, 11), {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0), "dilation": (2, 3)}),
    (F.max_pool2d, (2, 3, 10, 3), {"kernel_size": (1, 8), "padding": (0, 4)}),
    (F.max_pool2d, (2, 3, 10, 7), {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    (F.max_pool3d, (2, 2, 5, 6, 7), {"kernel_size": (2, 3, 2), "stride": (1, 2, 2), "padding": (1, 1, 0)}),
    (F.max_pool1d, (2, 3, 20), {"kernel_size": 4, "stride": 3, "padding": 2}),
]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize(("pool", "shape", "window"), WINDOWS)
def test_gradients(
    saved: list[Node], pool: Any, shape: tuple[int, ...], window: dict[str, Any], target: str, dynamic: bool
) -> None:
    """Offsets are kept and no positions, whatever the window."""
    torch.manual_seed(0)
    x = torch.randint(-4, 4, shape).float()  # maxima that several elements share
    x.view(-1)[5::17] = float("nan")
    x.view(-1)[:3] = -float("inf")
    check(lambda x: pool(x * 2, **window), x, target, dynamic)
    assert torch.int8 in types(saved) and torch.int64 not in types(saved)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_positions_that_are_asked_for(target: str) -> None:
    torch.manual_seed(0)
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), torch.randn(2, 3, 9, 11), target)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_channels_last(saved: list[Node], target: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 9, 11).to(memory_format=torch.channels_last)
    check(lambda x: F.max_pool2d(x.relu(), 3, 2, 1), x, target)
    assert torch.int8 in types(saved)


def test_windows_too_large_for_offsets(saved: list[Node]) -> None:
    check(lambda x: F.max_pool2d(x, 12), torch.randn(1, 2, 24, 24), "cpu")
    assert torch.int64 in types(saved)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_one_window_for_an_image_of_dynamic_size(target: str) -> None:
    """The window fixes the size of the result at 1 while the graph is traced: it is no symbol any more."""
    x = torch.randn(5, 5, 3, 3)
    check(lambda x: F.max_pool2d(x, 3, 1, 0), x, target, dynamic=True)
    check(lambda x: F.max_pool2d(x, 3), torch.randn(2, 3, 3, 3), target, dynamic=True)


IN_WINDOWS = [
    ((2, 3, 12, 10), {"kernel_size": 5, "stride": 1, "padding": 2}),
    ((2, 3, 12, 10), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    ((1, 4, 7, 6), {"kernel_size": (2, 3), "stride": (2, 1), "padding": (1, 1), "ceil_mode": True}),
    ((4, 9, 8), {"kernel_size": 2}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("shape", "window"), IN_WINDOWS)
def test_positions_on_a_gpu(shape: tuple[int, ...], window: dict[str, Any], dtype: torch.dtype) -> None:
    """Maxima are where PyTorch finds them: never in the border, the first of equal ones and the last NaN."""

    def pool(x: torch.Tensor) -> Any:
        return F.max_pool2d(x + 1, **window, return_indices=True)

    kernel = compiled(pool, "tt-cpu")
    for number in ("-inf", "nan", "equal", "random"):
        torch.manual_seed(0)
        x = torch.randint(-3, 3, shape).to(dtype)
        if number != "random":
            x[torch.rand(shape) < 0.7] = {"-inf": -torch.inf, "nan": torch.nan, "equal": 1.0}[number]
        if number == "-inf":
            x[..., :4, :4] = -torch.inf
        for ours, theirs in zip(kernel(x), pool(x), strict=True):
            torch.testing.assert_close(
                ours, theirs, rtol=0, atol=0, equal_nan=True, msg=lambda m, n=number: f"{n}: {m}"
            )


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_no_call_of_a_pooling_on_a_gpu(saved: list[Node], memory_format: torch.memory_format) -> None:
    """One kernel makes the result and the offsets that are saved; nothing of it is computed again."""
    x = torch.randn(2, 4, 9, 11).to(memory_format=memory_format)
    kept = marks("gpu pooling-offsets", "found with the maxima")
    check(lambda x: F.max_pool2d(x.relu(), 3, 2, 1), x, "tt-cpu")
    assert marks("gpu pooling-offsets", "found with the maxima") == kept + 1
    assert torch.int8 in types(saved)


@pytest.mark.parametrize("window", [1, 2])
def test_a_pooling_is_no_view_of_its_image(window: int) -> None:
    """Also where each window has one element, hence the same value."""
    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    y = torch.compile(lambda x: F.max_pool2d(x, window, 1), backend="kiln", options={"target": "tt-cpu"})(x)
    assert y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    with torch.no_grad():
        y.zero_()
    assert x.ne(0).all()


def marks(group: str, path: str) -> int:
    return paths.taken().get(f"{group}: {path}", 0)
