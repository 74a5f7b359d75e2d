# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions of bf16 by pairs of channels: against float64, alone and in compiled models; what is left to oneDNN."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))

from conv_support import conv_kernel, conv_problem
from matmul_support import Machine
from test_conv import CASES, LAST

from kiln.lowering.cpu import isa

pytestmark = pytest.mark.skipif(
    not isa.host().has("avx512bf16") or isa.host().has("amx-bf16"), reason="a CPU without the instruction, or with AMX"
)


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm().clamp_min(1e-30))


@pytest.mark.parametrize(
    ("case", "planar"), [(c, False) for c in CASES] + [(c, True) for c in CASES if c[-1] == 1], ids=str
)
def test_cases(case, planar: bool) -> None:
    torch.manual_seed(0)
    size, (o, *window), stride, padding, dilation, groups = case
    x = torch.randn(size).bfloat16().contiguous(memory_format=LAST)
    weight, bias = torch.randn(o, size[1] // groups, *window).bfloat16(), torch.randn(o)
    exact = F.conv2d(x.double(), weight.double(), bias.double(), stride, padding, dilation, groups).relu()
    out = torch.full(exact.shape, torch.nan, dtype=torch.bfloat16)
    out = out if planar else out.contiguous(memory_format=LAST)
    problem = conv_problem(x, weight, out, stride, padding, dilation, groups)
    call, schedule = conv_kernel(x, weight, bias, out, problem, Machine(64, 32), 2)
    call()
    even = size[1] // groups % 2 == 0 and x.stride(1) == 1
    assert (schedule.kernel == "cpu.conv.vnni_bf16") == even
    if exact.numel():
        assert relative(out, exact) <= 1.02 * max(relative(exact.bfloat16(), exact), 1e-3)


@pytest.mark.parametrize("channels", [1, 3, 6])
@pytest.mark.parametrize("window", [(2, 2), (3, 4), (16, 16), (1, 6)], ids=str)
@pytest.mark.parametrize("stride", [1, (2, 3), 16], ids=str)
def test_pairs_of_columns(channels: int, window: tuple[int, int], stride: int | tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, channels, 33, 50).bfloat16()
    weight, bias = torch.randn(37, channels, *window).bfloat16(), torch.randn(37)
    exact = F.conv2d(x.double(), weight.double(), bias.double(), stride).relu()
    pairs = (stride, stride) if isinstance(stride, int) else stride
    for format_ in (LAST, torch.contiguous_format):
        out = torch.full(exact.shape, torch.nan, dtype=torch.bfloat16).contiguous(memory_format=format_)
        problem = conv_problem(x, weight, out, pairs, (0, 0), (1, 1), 1)
        call, schedule = conv_kernel(x, weight, bias, out, problem, Machine(64, 32), 2)
        call()
        assert schedule.kernel == "cpu.conv.vnni_bf16_columns"
        assert relative(out, exact) <= 1.02 * max(relative(exact.bfloat16(), exact), 1e-3)


class Patches(nn.Module):
    """Patches of an image, as of a vision transformer, and a window that overlaps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 40, 8, stride=8), nn.Conv2d(3, 24, (3, 4), stride=(2, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.first(x).flatten(2).transpose(1, 2), F.gelu(self.second(x))


@pytest.mark.parametrize("freezing", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_patches(freezing: bool, dynamic: bool) -> None:
    torch.manual_seed(0)
    model, exact = Patches().bfloat16(), Patches().double()
    exact.load_state_dict({k: v.double() for k, v in model.state_dict().items()})
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="kiln", dynamic=dynamic, options={"freezing": freezing})
    for batch, height, width in ((2, 16, 31), (3, 25, 40)) if dynamic else ((2, 16, 31),):
        x = torch.randn(batch, 3, height, width).bfloat16()
        with torch.no_grad():
            for found, eager, wanted in zip(compiled(x), model(x), exact(x.double()), strict=True):
                assert relative(found, wanted) <= 1.1 * relative(eager, wanted)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 20, 3, stride=2, padding=1), nn.BatchNorm2d(20)
        self.middle = nn.Conv2d(20, 36, 3, padding=1)
        self.last = nn.Conv2d(36, 20, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.first(x)))
        return (F.silu(self.last(F.relu(self.middle(y)))) + y).mean((2, 3))


@pytest.mark.parametrize("freezing", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_models(freezing: bool, dynamic: bool) -> None:
    torch.manual_seed(0)
    model = Net().eval().bfloat16()
    exact = Net().eval().double()
    exact.load_state_dict({k: v.double() if v.is_floating_point() else v for k, v in model.state_dict().items()})
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="kiln", dynamic=dynamic, options={"freezing": freezing})
    for batch, size in ((2, 21), (3, 34)) if dynamic else ((2, 21),):
        x = torch.randn(batch, 3, size, size).bfloat16()
        with torch.no_grad():
            found, eager, wanted = compiled(x), model(x), exact(x.double())
        assert relative(found, wanted) <= 1.1 * relative(eager, wanted)


class Two(nn.Module):
    """Two convolutions that read one image, of which the second is behind a sum with the image."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(12, 12, 3, padding=1, padding_mode="reflect")
        self.second = nn.Conv2d(12, 18, 3, padding=2, dilation=2, groups=2)
        self.third = nn.Conv2d(12, 7, 1, stride=2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.relu(self.first(x)) + x
        return y, self.second(y), self.third(x)


@pytest.mark.parametrize("freezing", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_planar_images(freezing: bool, dynamic: bool) -> None:
    """Images are turned, also strided ones; results lie as eager's."""
    model = Two().eval().bfloat16()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="kiln", dynamic=dynamic, options={"freezing": freezing})
    wide = torch.randn(3, 30, 13, 17).bfloat16()
    given = [wide[:, 3:27:2]]
    if dynamic:
        given += [wide[:, :12].contiguous(memory_format=LAST), torch.ones(2, 12, 7, 9).bfloat16(), wide[:0, :12]]
    with torch.no_grad():
        for x in given:
            found, eager = compiled(x), model(x)
            exact = Two().double()
            exact.load_state_dict({k: v.double() for k, v in model.state_dict().items()})
            for mine, theirs, wanted in zip(found, eager, exact(x.double()), strict=True):
                assert mine.stride() == theirs.stride() and mine.shape == theirs.shape
                if mine.numel():
                    assert relative(mine, wanted) <= 1.1 * relative(theirs, wanted)
        model.first.weight.mul_(2)
        if not freezing:
            x = given[0]
            assert relative(compiled(x)[0], model(x)[0].double()) < 1e-2


def test_transposed_and_over_one_and_three_dims() -> None:
    layers = [
        (nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1), (2, 8, 7, 9)),
        (nn.ConvTranspose2d(12, 10, 2, stride=2, groups=2), (1, 12, 5, 5)),
        (nn.Conv1d(10, 8, 5, padding=2), (2, 10, 33)),
        (nn.Conv3d(6, 8, 3, padding=1), (1, 6, 5, 7, 6)),
    ]
    with torch.no_grad():
        for layer, sizes in layers:
            layer, x = layer.bfloat16(), torch.randn(sizes).bfloat16()
            torch._dynamo.reset()
            found, eager = torch.compile(layer, backend="kiln")(x), layer(x)
            wanted = layer.double()(x.double())
            assert found.stride() == eager.stride()
            assert relative(found, wanted) <= 1.1 * relative(eager, wanted)


def test_gradients_of_a_planar_image() -> None:
    layer, x = nn.Conv2d(8, 6, 3).bfloat16(), torch.randn(2, 8, 9, 9).bfloat16().requires_grad_()
    torch._dynamo.reset()
    torch.compile(layer, backend="kiln")(x).square().sum().backward()
    found = [x.grad, *(p.grad for p in layer.parameters())]
    exact = nn.Conv2d(8, 6, 3).double()
    exact.load_state_dict({k: v.double() for k, v in layer.state_dict().items()})
    wide = x.detach().double().requires_grad_()
    exact(wide).square().sum().backward()
    for mine, wanted in zip(found, [wide.grad, *(p.grad for p in exact.parameters())], strict=True):
        assert mine is not None and wanted is not None and relative(mine, wanted) < 1e-2


class Groups(nn.Module):
    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.silu(self.norm(self.first(x))))


@pytest.mark.parametrize(("channels", "groups", "size"), [(24, 4, (2, 13, 11)), (32, 8, (1, 64, 61))])
def test_group_norm_between(channels: int, groups: int, size: tuple[int, int, int]) -> None:
    """In one kernel, and, of a large image, in several that give each other the channels as neighbours."""
    model, exact = Groups(channels, groups).bfloat16(), Groups(channels, groups).double()
    exact.load_state_dict({k: v.double() for k, v in model.state_dict().items()})
    x = torch.randn(size[0], channels, *size[1:]).bfloat16()
    torch._dynamo.reset()
    with torch.no_grad():
        found, eager, wanted = torch.compile(model, backend="kiln")(x), model(x), exact(x.double())
    assert found.stride() == eager.stride()
    assert relative(found, wanted) <= 1.1 * relative(eager, wanted)
