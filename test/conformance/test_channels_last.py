# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutional networks, whose tensors lie channels-last inside: results and strides are eager's all the same."""

import copy
import tempfile
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kiln
from kiln.runtime import executor

OPTIONS = {"fallback": False}


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def conv(inputs, outputs, kernel=3, **options):
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, **options)


class Net(nn.Module):
    """Convolutions around `body`, so that channels-last pays."""

    def __init__(self, body, channels, last=None):
        super().__init__()
        self.first, self.second = conv(3, 8), conv(8, 8)
        self.body, self.third = body, conv(channels, 7)
        self.fourth, self.last = conv(7, 6, 1), last or (lambda x: x)

    def forward(self, x):
        x = F.relu(self.second(F.relu(self.first(x))))
        return self.last(self.fourth(self.third(self.body(x))))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = conv(8, 5), conv(8, 9, 1)

    def forward(self, x):
        return torch.cat([self.left(x), F.pad(self.right(x), (1, 1, 0, 2))[:, :, : x.shape[2], 1:-1], x[:, 2:4]], 1)


class Shuffle(nn.Module):
    def forward(self, x):
        return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


class Excite(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv(8, 2, 1), nn.ReLU(), conv(2, 8, 1), nn.Sigmoid())

    def forward(self, x):
        return x * self.scale(x)


class Permuted(nn.Module):
    """Linear layers over the channels, with a norm and a residual, as ConvNeXt has them."""

    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(24, 8)
        self.depthwise, self.scale = conv(8, 8, groups=8), nn.Parameter(torch.randn(8))

    def forward(self, x):
        inner = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.narrow(F.gelu(self.wide(inner)))).permute(0, 3, 1, 2)


class Mixed(nn.Module):
    """A call between convolutions that is no convolution."""

    def forward(self, x):
        return F.interpolate(x, scale_factor=2, mode="bicubic") + x.repeat_interleave(2, 2).repeat_interleave(2, 3)


NETS = {
    "max_pool": lambda: Net(nn.MaxPool2d(3, 2, 1), 8),
    "avg_pool": lambda: Net(nn.AvgPool2d(2, ceil_mode=True), 8),
    "pool_indices": lambda: Net(lambda x: F.max_pool2d(x, 2, return_indices=True)[1].to(x.dtype) * 0.1, 8),
    "dilated_indices": lambda: Net(lambda x: F.max_pool2d(x, 3, 2, 1, 2, False, True)[1].to(x.dtype) * 0.1, 8),
    "batch_norm": lambda: Net(nn.Sequential(nn.BatchNorm2d(8), nn.Hardswish()), 8),
    "group_norm": lambda: Net(nn.GroupNorm(2, 8), 8),
    "softmax": lambda: Net(nn.Softmax(1), 8),
    "depthwise": lambda: Net(conv(8, 8, groups=8), 8),
    "grouped": lambda: Net(conv(8, 12, groups=4), 12),
    "few_per_group": lambda: Net(conv(8, 4, groups=2), 4),
    "transposed": lambda: Net(nn.ConvTranspose2d(8, 5, 3, 2), 5),
    "upsample": lambda: Net(nn.Upsample(scale_factor=2), 8),
    "branches": lambda: Net(Branches(), 16),
    "shuffle": lambda: Net(Shuffle(), 8),
    "excite": lambda: Net(Excite(), 8),
    "permuted": lambda: Net(nn.Sequential(Permuted(), Permuted()), 8),
    "mixed": lambda: Net(Mixed(), 8),
    "flatten": lambda: Net(nn.Identity(), 8, nn.Flatten()),
    "tokens": lambda: Net(nn.Identity(), 8, lambda x: x.flatten(2).transpose(1, 2).softmax(-1)),
    "mean": lambda: Net(nn.Identity(), 8, lambda x: x.mean((2, 3))),
    "layer_norm": lambda: Net(lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2), 8),
    "both": lambda: Net(nn.Identity(), 8, lambda x: (x, x.flatten(1), x[:, 1])),
}


def check(model, *inputs, tolerance=1e-6, **options):
    expected = model(*inputs)
    exact = copy.deepcopy(model).double()(*(i.double() for i in inputs))
    result = torch.compile(model, backend="kiln", options=OPTIONS, **options)(*inputs)
    for ours, theirs, true in zip(
        *(r if isinstance(r, tuple) else (r,) for r in (result, expected, exact)), strict=True
    ):
        assert ours.stride() == theirs.stride()
        assert ours.dtype == theirs.dtype
        assert float((ours.double() - true).norm()) <= tolerance * float(true.norm())


@pytest.mark.parametrize("name", NETS)
def test_results_and_strides(name):
    check(NETS[name]().eval(), torch.randn(2, 3, 10, 12))


@pytest.mark.parametrize("name", ["max_pool", "grouped", "transposed", "branches", "both"])
def test_a_model_in_channels_last_format(name):
    model = NETS[name]().eval().to(memory_format=torch.channels_last)
    check(model, torch.randn(2, 3, 9, 12).to(memory_format=torch.channels_last))
    check(model, torch.randn(2, 3, 9, 12))


@pytest.mark.parametrize("name", ["max_pool", "depthwise", "few_per_group", "flatten"])
def test_bfloat16(name):
    check(NETS[name]().eval().bfloat16(), torch.randn(2, 3, 10, 12).bfloat16(), tolerance=3e-2)


@pytest.mark.parametrize("name", ["avg_pool", "excite", "few_per_group", "tokens"])
def test_dynamic_sizes(name):
    model = NETS[name]().eval()
    run = torch.compile(model, backend="kiln", options=OPTIONS, dynamic=True)
    for shape in ((2, 3, 10, 12), (3, 3, 7, 9), (1, 3, 8, 8)):
        x = torch.randn(shape)
        expected = model(x)
        result = run(x)
        assert result.stride() == expected.stride()
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 3, 1, 9), (1, 3, 7, 1), (2, 3, 1, 1), (0, 3, 6, 6)])
def test_sizes_of_one_and_none(shape):
    check(Net(nn.Identity(), 8).eval(), torch.randn(shape))


def test_convolutions_over_one_and_three_dims():
    line = nn.Sequential(nn.Conv1d(3, 8, 3), nn.ReLU(), nn.Conv1d(8, 8, 3), nn.BatchNorm1d(8), nn.Conv1d(8, 4, 1))
    check(line.eval(), torch.randn(2, 3, 19))
    volume = nn.Sequential(nn.Conv3d(2, 4, 2), nn.ReLU(), nn.Conv3d(4, 4, 2), nn.Conv3d(4, 3, 1))
    check(volume.eval(), torch.randn(1, 2, 5, 6, 7))


def test_training():
    with torch.enable_grad():
        model = nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU(), conv(6, 6), nn.MaxPool2d(2), conv(6, 4))
        x = torch.randn(2, 3, 8, 8)
        gradients = []
        for run in (copy.deepcopy(model), torch.compile(copy.deepcopy(model), backend="kiln", options=OPTIONS)):
            run(x).square().sum().backward()
            gradients.append([p.grad for p in run.parameters()])
        for ours, theirs in zip(*reversed(gradients), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


# Nets of which an op is a call.
@pytest.mark.parametrize("name", ["dilated_indices"])
def test_calls_return_the_strides_that_the_plan_expects(name, monkeypatch):
    """A result in another order would be copied at every call."""
    copies = []
    as_planned = executor._as_planned

    def counting(tensor, strides, dtype):
        result = as_planned(tensor, strides, dtype)
        copies.append(result is not tensor)
        return result

    monkeypatch.setattr(executor, "_as_planned", counting)
    model = NETS[name]().eval()
    explanation = kiln.explain(model, torch.randn(2, 3, 10, 12), options=OPTIONS)
    assert explanation.aten_calls
    assert not any(copies)


def test_linear_layers_over_channels_are_products_of_all_pixels():
    """A permuted image is row-major, so that no product has a batch of columns, or gathers its operand's rows."""
    schedules = scheduled(NETS["permuted"]().eval(), torch.randn(2, 3, 10, 12))
    assert len(schedules) == 4
    assert not any("pack_lhs = true" in schedule for schedule in schedules)


def scheduled(model, x):
    """The text of the schedules of the products of a model's only graph."""
    with tempfile.TemporaryDirectory() as folder:
        torch.compile(model, backend="kiln", options=OPTIONS | {"debug_dir": folder})(x)
        (file,) = Path(folder).rglob("*.sched.mlir")
        return [line for line in file.read_text().splitlines() if 'kind = "matmul"' in line]


@torch.enable_grad()
def test_a_view_of_a_gradient_that_lies_as_its_copied_image_does():
    """The linear layer's gradient is a product of a reshape, which no strides describe of a channels-last gradient."""

    def run(x, weight, kernel):
        return F.conv2d(F.linear(x, weight), kernel)

    x, weight = torch.randn(4, 24, 6, 15), torch.randn(16, 15, requires_grad=True)
    kernel = torch.randn(8, 24, 1, 1).to(memory_format=torch.channels_last).requires_grad_()
    compiled = torch.compile(run, backend="kiln", options=OPTIONS)
    found = torch.autograd.grad(compiled(x, weight, kernel).square().sum(), (weight, kernel))
    wide = [t.detach().double().requires_grad_() for t in (weight, kernel)]
    exact = torch.autograd.grad(run(x.double(), *wide).square().sum(), wide)
    for mine, right in zip(found, exact, strict=True):
        assert (mine - right).abs().max() < 1e-5 * right.abs().max()
    assert found[1].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [9, 17])
def test_columns_behind_whole_vectors_of_an_enlarged_image(width, dtype):
    """Two pixels are left over; LLVM's SLP vectoriser took one row for both rows that they come from."""
    x = torch.randn(1, 3, 8, width, dtype=dtype).to(memory_format=torch.channels_last)

    def enlarged(x):
        return F.interpolate(torch.sigmoid(x), scale_factor=2, mode="bilinear")

    actual = torch.compile(enlarged, backend="kiln", options=OPTIONS)(x)
    assert actual.stride() == enlarged(x).stride()
    torch.testing.assert_close(actual.double(), enlarged(x.double()), rtol=torch.finfo(dtype).eps, atol=0)
