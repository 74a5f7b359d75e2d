# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The torch.compile code samples of "PyTorch 2.x Compilation Pipeline: From FX to Hardware", run with ``backend="kiln"``.

Samples for a GPU run on the CPU, with smaller sizes where theirs would take seconds; a comment says so. Samples that
use CUDA kernels or Inductor's internals are left out.
"""

import copy
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from sample_support import same
from torch import fx

import kiln  # noqa: F401 - makes backend="kiln" known in a checkout that is not installed

pytestmark = pytest.mark.filterwarnings("error:kiln.*:RuntimeWarning")

MODES = [None, "default", "reduce-overhead", "max-autotune"]


class SimpleModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        x = torch.relu(x)
        return x * 2


def replace_relu_with_gelu(model: fx.GraphModule) -> fx.GraphModule:
    for node in model.graph.nodes:
        if node.op == "call_function" and node.target == torch.relu:
            node.target = F.gelu
    model.recompile()
    return model


def test_fx_transformation_then_compile() -> None:
    transformed = replace_relu_with_gelu(fx.symbolic_trace(SimpleModel()))
    x = torch.randn(3, 10)
    with torch.no_grad():
        same(torch.compile(transformed, backend="kiln")(x), transformed(x))


def test_simple_function() -> None:
    def simple_function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.matmul(y) + x.sum(dim=1, keepdim=True)

    x, y = torch.randn(100, 100), torch.randn(100, 100)  # 1000 x 1000 on a GPU there
    same(torch.compile(simple_function, backend="kiln")(x, y), simple_function(x, y))


@pytest.mark.parametrize("mode", MODES)
def test_compilation_modes(mode: str | None) -> None:
    model = nn.Linear(100, 10)
    compiled = torch.compile(model, mode=mode, backend="kiln")
    x = torch.randn(50, 100)
    with torch.no_grad():
        for _ in range(3):
            same(compiled(x), model(x))


def test_cpu_intensive_function() -> None:
    def cpu_intensive_function(x: torch.Tensor) -> torch.Tensor:
        x = torch.sin(x)
        x = torch.cos(x)
        x = torch.exp(x)
        return x.sum()

    x = torch.randn(1000, 1000)  # 10000 x 10000 there
    same(torch.compile(cpu_intensive_function, backend="kiln")(x), cpu_intensive_function(x))


def test_custom_backend_around_kiln() -> None:
    sizes = []

    def custom_backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        sizes.append(len(gm.graph.nodes))
        return kiln.backend(gm, example_inputs)

    model = SimpleModel()
    x = torch.randn(2, 10)
    same(torch.compile(model, backend=custom_backend)(x), model(x))
    assert len(sizes) == 1


class ResNetBlock(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return torch.relu(out)


@pytest.mark.parametrize(("channels", "stride"), [((16, 16), 1), ((16, 32), 2)])
def test_resnet_block(channels: tuple[int, int], stride: int) -> None:
    model = ResNetBlock(*channels, stride).eval()
    compiled = torch.compile(model, mode="max-autotune", backend="kiln")
    x = torch.randn(4, channels[0], 14, 14)  # 32 x 64 x 56 x 56 on a GPU there
    with torch.no_grad():
        start = time.perf_counter()
        for _ in range(3):
            same(compiled(x), model(x))
        assert time.perf_counter() - start < 120


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_k = d_model // num_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        batch_size = query.size(0)
        q = self.W_q(query).view(batch_size, -1, self.num_heads, self.d_k).transpose(1, 2)
        k = self.W_k(key).view(batch_size, -1, self.num_heads, self.d_k).transpose(1, 2)
        v = self.W_v(value).view(batch_size, -1, self.num_heads, self.d_k).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        attention_weights = F.softmax(scores, dim=-1)
        attention_output = torch.matmul(attention_weights, v)
        attention_output = attention_output.transpose(1, 2).contiguous().view(batch_size, -1, self.d_model)
        return self.W_o(attention_output)


@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention(masked: bool) -> None:
    attention = MultiHeadAttention(64, 8)
    compiled = torch.compile(attention, mode="max-autotune", backend="kiln")
    x = torch.randn(2, 48, 64)  # 32 x 1024 x 512 on a GPU there
    mask = torch.ones(48, 48).tril() if masked else None
    with torch.no_grad():
        same(compiled(x, x, x, mask), attention(x, x, x, mask))


def test_convolution_batch_norm_and_relu_are_one_kernel() -> None:
    """The document's example of fusion."""
    model = nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU()).eval()
    x = torch.randn(2, 8, 14, 14)
    with torch.no_grad():
        (graph,) = kiln.explain(model, x).graphs
        assert [kernel.kind for kernel in graph.kernels] == ["conv"]
        same(torch.compile(model, backend="kiln")(x), model(x))


def test_options_in_place_of_inductors_configuration() -> None:
    """`freezing` and `max_autotune`; fusion of epilogues and pattern matching are always on."""
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU()).eval()
    options = {"freezing": True, "mode": "max-autotune", "tune_seconds": 0.05}
    x = torch.randn(8, 16)
    with torch.no_grad():
        same(torch.compile(model, backend="kiln", options=options)(x), model(x))


def test_custom_fusion_pattern() -> None:
    """The sample's addition and ReLU are fused without a pattern; one from outside rewrites them all the same."""

    def fuse_add_relu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        add_result = torch.add(x, y)
        return torch.relu(add_result)

    def replacement(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.maximum(x, -y) + y

    x, y = torch.randn(8, 16), torch.randn(8, 16)
    (graph,) = kiln.explain(fuse_add_relu, x, y).graphs
    assert [kernel.kind for kernel in graph.kernels] == ["pointwise"]
    with kiln.patterns.scope():
        kiln.patterns.register("add-relu", fuse_add_relu, replacement, (torch.empty(2, 3), torch.empty(2, 3)))
        compiled = torch.compile(fuse_add_relu, backend="kiln")
        same(compiled(x, y), fuse_add_relu(x, y))
        (graph,) = kiln.explain(fuse_add_relu, x, y).graphs
    assert any("maximum" in decision.op for decision in graph.decisions)


def test_memory_efficient_function() -> None:
    def memory_efficient_function(x: torch.Tensor) -> torch.Tensor:
        x = x.add_(1.0)  # in-place addition
        return x.mul_(2.0)  # in-place multiplication

    x, y = torch.zeros(10), torch.zeros(10)
    result = torch.compile(memory_efficient_function, backend="kiln")(x)
    memory_efficient_function(y)
    assert result is x
    same(x, y)


def test_dynamic_shapes() -> None:
    compiled = torch.compile(lambda x: x.sum(dim=-1, keepdim=True), backend="kiln", dynamic=True)
    for shape in [(100, 50), (200, 30), (150, 80)]:
        x = torch.randn(*shape)
        result = compiled(x)
        assert result.shape == (shape[0], 1)
        same(result, x.sum(dim=-1, keepdim=True))


def test_low_overhead_function() -> None:
    compiled = torch.compile(lambda x: x.relu().sum(), mode="reduce-overhead", backend="kiln")
    x = torch.randn(64, 64)
    same(compiled(x), x.relu().sum())


def test_debug_function(tmp_path: Path) -> None:
    """`debug_dir` in place of Inductor's `config.debug`: every stage of the compilation."""
    options = {"debug_dir": str(tmp_path)}
    compiled = torch.compile(lambda x: torch.sin(x).sum(), backend="kiln", options=options)
    x = torch.randn(1000)
    same(compiled(x), torch.sin(x).sum())
    endings = {file.name.split(".", 1)[1] for file in tmp_path.rglob("*.mlir") if "." in file.name}
    assert {"graph.mlir", "kiln.mlir", "fused.mlir", "sched.mlir"} <= endings


def test_profile_compilation() -> None:
    model = torch.nn.Linear(100, 100)
    compiled = torch.compile(model, backend="kiln")
    x = torch.randn(10, 100)
    compiled(x)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True) as prof:
        for _ in range(3):
            compiled(x)
    assert prof.key_averages().table(row_limit=10)


def test_inspectable_function(tmp_path: Path) -> None:
    def inspectable_function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, y) + torch.sin(x)

    x, y = torch.randn(64, 64), torch.randn(64, 64)
    options = {"mode": "max-autotune", "tune_seconds": 0.05, "debug_dir": str(tmp_path), "cache": False}
    same(torch.compile(inspectable_function, backend="kiln", options=options)(x, y), inspectable_function(x, y))
    generated = "".join(file.read_text() for file in tmp_path.rglob("*.llvm.mlir"))
    assert "llvm.func" in generated and "vector<" in generated


def prepare_model_for_compilation(model: nn.Module) -> nn.Module:
    model.eval()
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            module.eval()
    return model


def test_prepared_model_with_warmup() -> None:
    model = prepare_model_for_compilation(nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU()))
    compiled = torch.compile(model, mode="max-autotune", backend="kiln")
    x = torch.randn(8, 16)
    for _ in range(10):
        with torch.no_grad():
            result = compiled(x)
    with torch.no_grad():
        same(result, model(x))


def test_memory_efficient_training_step() -> None:
    """The whole step is compiled, as there: model, loss, backward and optimizer."""

    def memory_efficient_training_step(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        x: torch.Tensor,
        y: torch.Tensor,
        loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> float:
        with torch.autocast("cpu"):
            output = model(x)
            loss = loss_fn(output, y)
        optimizer.zero_grad(set_to_none=True)  # more memory efficient
        loss.backward()
        optimizer.step()
        return loss.item()

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    eager = copy.deepcopy(model)
    compiled = torch.compile(memory_efficient_training_step, backend="kiln")
    x, y, loss_fn = torch.randn(32, 8), torch.randint(0, 4, (32,)), nn.CrossEntropyLoss()
    ours, theirs = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, eager))
    losses = [compiled(model, ours, x, y, loss_fn) for _ in range(8)]
    expected = [memory_efficient_training_step(eager, theirs, x, y, loss_fn) for _ in range(8)]
    assert losses[-1] < losses[0]
    torch.testing.assert_close(losses, expected, rtol=2e-2, atol=2e-2)  # products in bf16
