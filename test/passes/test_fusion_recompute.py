# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Values that several kernels compute for themselves: copies that can be undone, results and gradients that are right."""

import pytest
import torch
from torch import nn

import kiln
from kiln.dialects import create_context, parse, to_text
from kiln.passes.fusion.graph import FusionGraph
from kiln.passes.fusion.groups import Grouping
from kiln.passes.fusion.recompute import Repeated, copy_for_readers
from kiln.passes.fusion.walk import walk

TEXT = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
func.func @main(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<6x4xf32>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (4, 6)>} : () -> tensor<4x6xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (6, 4)>} : () -> tensor<6x4xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%i: f32, %o: f32):
    %r = arith.negf %i : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%i: f32, %o: f32):
    %r = math.exp %i : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %v = "kiln.view"(%a) {map = #turned, shape = affine_map<() -> (6, 4)>} : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<6x4xf32>) outs(%f : tensor<6x4xf32>) {
  ^bb0(%i: f32, %o: f32):
    %r = math.sin %i : f32
    linalg.yield %r : f32
  } -> tensor<6x4xf32>
  return %b, %c : tensor<4x6xf32>, tensor<6x4xf32>
}
"""


def test_copies_are_undone():
    """Also through views; behind it the function is what it was, and the grouping made before is valid."""
    with create_context():
        module = parse(TEXT)
        function = module.body.operations[0]
        grouping = Grouping(FusionGraph(function))
        walk(grouping)
        before, groups = to_text(module), len(grouping.groups())
        first, _, turned = grouping.graph.compute
        copies = copy_for_readers([Repeated([first], [[turned]], "")])
        assert to_text(module).count("arith.negf") == 2
        assert to_text(module).count('"kiln.view"') == 2
        assert module.operation.verify()
        copies.undo()
        assert to_text(module) == before
        assert len(grouping.groups()) == groups


def dequantised(q, scale, x):
    weight = (q.to(x.dtype) - 3) * scale[:, None]
    return weight.sum(0), (weight * x).amax(1), weight.square().mean(1)


def masked(x, y):
    mask = (x > 0) & (y < 0.5)
    kept = torch.where(mask, x, 0.0)
    return kept.sum(0), torch.softmax(torch.where(mask, y, -1e4), -1), kept.cumsum(1)


def halves(x, y):
    wide = x.to(torch.float32) * 2
    return wide.sum(0), torch.softmax(wide, -1), (wide.t() + y).amax(0)


@pytest.mark.parametrize("shape", [(5, 7), (1, 1), (33, 130), (300, 257)])
@pytest.mark.parametrize("call", [dequantised, masked, halves])
def test_results(call, shape):
    if call is dequantised:
        inputs = torch.randint(-128, 127, shape, dtype=torch.int8), torch.rand(shape[0]), torch.randn(shape)
    elif call is masked:
        inputs = torch.randn(shape), torch.randn(shape)
    else:
        inputs = torch.randn(shape).bfloat16(), torch.randn(shape[::-1])
    torch._dynamo.reset()
    results = torch.compile(call, backend=kiln.backend, options={"fallback": False})(*inputs)
    exact = call(*(x.double() if x.dtype == torch.float32 else x for x in inputs))
    for result, right in zip(results, exact, strict=True):
        assert (result.double() - right).norm() <= 1e-6 * right.norm().clamp(min=1e-30)


def test_gradients_of_norms():
    """A batch norm's backward by running statistics: each kernel has the `rsqrt` of its own."""

    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
                nn.init.uniform_(module.running_var, 0.5, 2.0)
        return model

    x = torch.randn(2, 3, 11, 9)
    model, exact = make(), make().double()
    torch._dynamo.reset()
    torch.compile(model, backend=kiln.backend, options={"fallback": False})(x).square().mean().backward()
    exact(x.double()).square().mean().backward()
    for mine, right in zip(model.parameters(), exact.parameters(), strict=True):
        assert (mine.grad.double() - right.grad).norm() <= 1e-5 * right.grad.norm()
