# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Training of convolutional networks on a GPU: what is kept for the gradient has its channels last, where that pays."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kiln
from kiln.frontend import aot, compile
from kiln.frontend.report import CompileReport, collect
from kiln.frontend.saved_channels_last import keep_channels_last

Kept = list[torch.fx.Node]


class Net(nn.Module):
    """What a ResNet is made of: a first convolution of an image, pooling, and a block with a residual."""

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.left, self.left_norm = nn.Conv2d(8, 8, 3, 1, 1, groups=groups, bias=False), nn.BatchNorm2d(8)
        self.right = nn.Conv2d(8, 8, 1)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, 2, 1)
        x = F.relu(self.left_norm(self.left(x)) + self.right(x))
        return self.last(x.mean((2, 3)))


class Image(nn.Module):
    """A convolution of an image that comes in, and is given back, planar."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.conv(x))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Arguments of the backward graphs that were compiled, images alone; networks' weights are the same ones always."""
    torch.manual_seed(1)
    found: Kept = []

    def keep(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, count: int) -> int:
        number = keep_channels_last(forward, backward, count)
        arguments = backward.graph.find_nodes(op="placeholder")
        found.extend(n for n in arguments if getattr(n.meta["val"], "ndim", 0) == 4)
        return number

    monkeypatch.setattr(aot, "keep_channels_last", keep)
    return found


def gradients(model: nn.Module, run: Callable[..., object], x: torch.Tensor) -> dict[str, torch.Tensor]:
    result = run(x)
    assert isinstance(result, torch.Tensor)
    (result * torch.linspace(-1, 1, result.numel()).view(result.shape).to(result)).sum().backward()
    return {name: p.grad for name, p in [*model.named_parameters(), ("input", x)] if p.grad is not None}


def check(model: nn.Module, x: torch.Tensor, target: str = "tt-cpu", **options: bool) -> list[CompileReport]:
    """Gradients as near float64's as eager's are, with eager's strides."""

    def fresh(dtype: torch.dtype) -> tuple[nn.Module, torch.Tensor]:
        return copy.deepcopy(model).to(dtype), x.detach().clone().to(dtype).requires_grad_()

    exact_model, exact_x = fresh(torch.float64)
    exact = gradients(exact_model, exact_model, exact_x)
    eager_model, eager_x = fresh(x.dtype)
    eager = gradients(eager_model, eager_model, eager_x)
    torch._dynamo.reset()
    own_model, own_x = fresh(x.dtype)
    compiled = torch.compile(own_model, backend=kiln.backend, options={"target": target, **options})
    with collect() as reports:
        own = gradients(own_model, compiled, own_x)
    for name, right in exact.items():
        error: torch.Tensor = (own[name].double() - right).norm()
        floor: torch.Tensor = 4 * torch.finfo(x.dtype).eps * right.norm() + 1e-3
        assert error <= 2 * (eager[name].double() - right).norm() + floor, name
        assert own[name].stride() == eager[name].stride(), name
    return reports


def is_channels_last(node: torch.fx.Node) -> bool:
    return node.meta["val"].is_contiguous(memory_format=torch.channels_last)


def images(size: int = 24, channels: int = 3) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(2, channels, size, size)


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_saved(kept: Kept, dtype: torch.dtype, groups: int) -> None:
    forward, backward = check(Net(groups), images().to(dtype), fallback=False)
    given = [n for n in kept if n.meta["val"].shape[1] != 3 and n.meta["val"].shape[2] > 3]
    assert len(given) == 5  # not the input of the pooling: its gradient reads sizes alone
    assert all(is_channels_last(n) for n in given)
    # No kernel reorders what convolutions make for each other: copied is what the caller has, or gets, planar.
    assert not [k for k in forward.kernels if k.name.startswith("copy")]
    copied = {"image": 1, "its gradient": 1, "weights": 2 if groups < 8 else 1}
    assert sum(k.launches for k in backward.kernels if k.name.startswith("copy")) == sum(copied.values())


@pytest.mark.parametrize("case", ["f32", "cpu"])
def test_what_stays_planar(kept: Kept, case: str) -> None:
    dtype = torch.float32 if case == "f32" else torch.bfloat16
    check(Net(), images().to(dtype), "cpu" if case == "cpu" else "tt-cpu")
    assert not any(is_channels_last(n) and n.meta["val"].shape[1] > 1 and n.meta["val"].shape[2] > 3 for n in kept)
    assert case == "cpu" or kept


def test_what_the_caller_has_planar_costs(kept: Kept) -> None:
    check(Image(), images(16, 8).to(torch.bfloat16), fallback=False)
    large = [n for n in kept if n.meta["val"].shape[2] == 16]
    assert large
    assert not any(is_channels_last(n) for n in large)


def test_a_batch_of_any_size(kept: Kept) -> None:
    x = images().to(torch.bfloat16)
    torch._dynamo.mark_dynamic(x, 0)
    model = Net().to(torch.bfloat16)
    compiled = torch.compile(model, backend=kiln.backend, options={"target": "tt-cpu", "fallback": False})
    gradients(model, compiled, x)
    assert any(is_channels_last(n) and n.meta["val"].shape[1] == 8 for n in kept)


def test_a_forward_graph_that_runs_with_aten(monkeypatch: pytest.MonkeyPatch) -> None:
    native = compile._compile_native

    def fail(gm: torch.fx.GraphModule, options: object, report: CompileReport) -> object:
        if report.graph == "forward":
            raise compile.ImportUnsupported("a test")
        return native(gm, options, report)

    monkeypatch.setattr(compile, "_compile_native", fail)
    reports = check(Net(), images().to(torch.bfloat16))
    assert [r.executor for r in reports] == ["aten", "kiln"]
