# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions through the whole compiler: fused epilogues, memory formats, dynamic sizes, packed weights."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_mlir import ir

import kiln
from kiln.dialects import affine, create_context
from kiln.dialects import kiln as dialect
from kiln.lowering.cpu.tile.conv import packed_weight_layout, plan_conv
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts

sys.path.insert(0, str(Path(__file__).parent))

from kernel_harness import find_fusion, run_fusion

LAST, PLAIN = torch.channels_last, torch.contiguous_format


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    return float((result.double() - exact).norm() / exact.norm().clamp_min(1e-300))


def check(module: nn.Module, *inputs: tuple[torch.Tensor, ...], dynamic: bool = False) -> list:
    """Right against float64, with eager's strides, for each tuple of inputs; the report's graphs."""
    module = module.eval()
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(module, backend=kiln.backend, fullgraph=True, dynamic=dynamic)
        for given in inputs:
            eager, result = module(*given), compiled(*given)
            exact = module.double()(*(x.double() for x in given))
            module.float()
            assert result.stride() == eager.stride()
            assert relative_error(result, exact) <= 1.5 * relative_error(eager, exact) + 1.2e-7
        return kiln.explain(module, *inputs[0]).graphs


class Basic(nn.Module):
    """A basic block of a residual network, with statistics that matter."""

    def __init__(self, channels: int, stride: int = 1):
        super().__init__()
        out = channels * stride
        self.first, self.second = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.Conv2d(out, out, 3, 1, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(out) for _ in range(3))
        self.shortcut = nn.Conv2d(channels, out, 1, stride, bias=False) if stride > 1 else None
        for norm in self.norms:
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        short = x if self.shortcut is None else self.norms[2](self.shortcut(x))
        return F.relu(self.norms[1](self.second(y)) + short)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("layout", [PLAIN, LAST], ids=["planar", "channels_last"])
def test_basic_block(layout: torch.memory_format, stride: int) -> None:
    torch.manual_seed(0)
    module = Basic(19, stride).to(memory_format=layout)
    x = torch.randn(2, 19, 14, 13).contiguous(memory_format=layout)
    (graph,) = check(module, (x,))
    assert len(graph.kernels) == (2 if stride == 1 else 3)
    assert all(k.kind == "conv" for k in graph.kernels)


@pytest.mark.parametrize("layout", [PLAIN, LAST], ids=["planar", "channels_last"])
@pytest.mark.parametrize(
    "function", [F.relu6, F.hardswish, F.silu, F.gelu, torch.sigmoid, lambda x: x], ids=lambda f: f.__name__
)
def test_activations(function, layout: torch.memory_format) -> None:
    torch.manual_seed(0)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(6, 21, 3, padding=1)

        def forward(self, x):
            return function(self.conv(x))

    x = torch.randn(2, 6, 9, 17).contiguous(memory_format=layout)
    check(Layer().to(memory_format=layout), (x,))


@pytest.mark.parametrize("layout", [PLAIN, LAST], ids=["planar", "channels_last"])
def test_inverted_residual(layout: torch.memory_format) -> None:
    torch.manual_seed(0)

    class Inverted(nn.Module):
        def __init__(self):
            super().__init__()
            self.expand, self.project = nn.Conv2d(12, 72, 1), nn.Conv2d(72, 12, 1)
            self.depthwise = nn.Conv2d(72, 72, 3, padding=1, groups=72)

        def forward(self, x):
            return x + self.project(F.relu6(self.depthwise(F.relu6(self.expand(x)))))

    x = torch.randn(2, 12, 10, 11).contiguous(memory_format=layout)
    check(Inverted().to(memory_format=layout), (x,))


def test_squeeze_and_excitation() -> None:
    """Convolutions of one pixel, whose result scales an image."""
    torch.manual_seed(0)

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = nn.Conv2d(40, 10, 1), nn.Conv2d(10, 40, 1)

        def forward(self, x):
            return x * F.hardsigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))

    for images in (1, 3):
        check(Gate(), (torch.randn(images, 40, 7, 9),))


def test_one_dimension() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv1d(5, 18, 3, stride=2, padding=1), nn.ReLU(), nn.Conv1d(18, 7, 1))
    (graph,) = check(module, (torch.randn(2, 5, 31),))
    assert [k.kind for k in graph.kernels] == ["conv", "conv"]


@pytest.mark.parametrize("layout", [PLAIN, LAST], ids=["planar", "channels_last"])
def test_dynamic_sizes(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 17, 3, 2, 1), nn.ReLU(), nn.Conv2d(17, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=2)
    )
    sizes = [(2, 21, 30), (3, 40, 9), (5, 12, 12)]
    inputs = [(torch.randn(n, 3, h, w).contiguous(memory_format=layout),) for n, h, w in sizes]
    check(module.to(memory_format=layout), *inputs, dynamic=True)


def test_strided_input_and_residual() -> None:
    """Operands that are slices and transposes are read where they are."""
    torch.manual_seed(0)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(8, 16, 3, padding=1)

        def forward(self, x, y):
            return self.conv(x[:, 1:9, :, ::2]) + y.transpose(2, 3)

    check(Layer(), (torch.randn(2, 11, 9, 20), torch.randn(2, 16, 10, 9)))


def test_result_of_convolution_is_needed_as_well() -> None:
    torch.manual_seed(0)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(8, 16, 3, padding=1)

        def forward(self, x):
            y = self.conv(x)
            return torch.cat([y, F.relu(y)], 1)

    check(Layer(), (torch.randn(2, 8, 9, 10),))


def test_weights_and_images_of_one_and_zero() -> None:
    for value in (0.0, 1.0):
        module = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        nn.init.constant_(module.weight, value)
        with torch.no_grad():
            x = torch.full((1, 4, 5, 5), value)
            torch.testing.assert_close(torch.compile(module, backend=kiln.backend)(x), module(x), rtol=0, atol=0)


_FUSION = """
func.func @main(%x: tensor<2x{x}x9x10xf32>, %w: tensor<{o}x{c}x3x3xf32>) -> tensor<2x{o}x9x10xf32> {{
  %0 = "kiln.fusion"(%x, %w) ({{
  ^bb0(%a: tensor<2x{x}x9x10xf32>, %b: tensor<{o}x{c}x3x3xf32>):
    %c = "kiln.conv"(%a, %b) {{stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
      groups = {groups}, transposed = false, output_padding = array<i64: 0, 0>}}
      : (tensor<2x{x}x9x10xf32>, tensor<{o}x{c}x3x3xf32>) -> tensor<2x{o}x9x10xf32>
    "kiln.yield"(%c) : (tensor<2x{o}x9x10xf32>) -> ()
  }}) {{kind = "conv", name = "c" {layouts}}} : (tensor<2x{x}x9x10xf32>, tensor<{o}x{c}x3x3xf32>) -> tensor<2x{o}x9x10xf32>
  return %0 : tensor<2x{o}x9x10xf32>
}}
"""


@pytest.mark.parametrize("channels,outputs,groups", [(5, 40, 1), (3, 20, 2), (1, 1, 21), (4, 8, 1)])
def test_packed_weight(channels: int, outputs: int, groups: int) -> None:
    """A weight that lies in memory as the kernel wants it is read in place: the same result, without scratch for it."""
    torch.manual_seed(0)
    sizes = {"x": channels * groups, "o": outputs * groups, "c": channels, "groups": groups}
    x, weight = torch.randn(2, channels * groups, 9, 10), torch.randn(outputs * groups, channels, 3, 3)
    with create_context(), ir.Location.unknown():
        module = dialect.parse(_FUSION.format(**sizes, layouts=""))
        fusion = find_fusion(module)
        body = FusionBody(fusion)
        layouts = fusion_layouts(fusion, body)
        layout, elements = packed_weight_layout(body, layouts, plan_conv(body, layouts))
        layouts[1] = layout
        text = f", layouts = [{', '.join(str(ir.AffineMapAttr.get(m)) for m in layouts)}]"
        packed = torch.zeros(elements)
        for index in torch.cartesian_prod(*(torch.arange(n) for n in weight.shape)).tolist():
            packed[affine.evaluate(layout.results[0], index)] = weight[tuple(index)]
    out = torch.full((2, outputs * groups, 9, 10), torch.nan)
    run_fusion(_FUSION.format(**sizes, layouts=text), [x, packed], [out], threads=2)
    exact = F.conv2d(x.double(), weight.double(), padding=1, groups=groups)
    assert relative_error(out, exact) < 5e-7
