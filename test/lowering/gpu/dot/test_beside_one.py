# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The short erf and tanh of 16-bit epilogues: how far they are off, and where they are taken."""

import pytest
import torch
from fusion_support import run_fusion

TEXT = """
func.func @main(%x: tensor<4096x{t}>) -> tensor<4096x{t}> {{
  %0 = "kiln.fusion"(%x) ({{
  ^bb0(%x_: tensor<4096x{t}>):
    %e = "kiln.empty"() {{shape = affine_map<() -> (4096)>}} : () -> tensor<4096x{t}>
    %1 = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]}} ins(%x_ : tensor<4096x{t}>) outs(%e : tensor<4096x{t}>) {{
    ^bb0(%in: {t}, %out: {t}):
      %one = arith.constant {constant} : f32
      {widen}
      %8 = math.{name} %7 : f32
      %9 = arith.addf %8, %one : f32
      {narrow}
      linalg.yield %10 : {t}
    }} -> tensor<4096x{t}>
    "kiln.yield"(%1) : (tensor<4096x{t}>) -> ()
  }}) {{kind = "pointwise", name = "erf"}} : (tensor<4096x{t}>) -> tensor<4096x{t}>
  return %0 : tensor<4096x{t}>
}}
"""


def text(name, element, constant="1.0"):
    if element == "f32":
        widen, narrow = "%7 = arith.mulf %in, %one : f32", "%10 = arith.mulf %9, %one : f32"
    else:
        widen, narrow = f"%7 = arith.extf %in : {element} to f32", f"%10 = arith.truncf %9 : f32 to {element}"
    return TEXT.format(name=name, t=element, constant=constant, widen=widen, narrow=narrow)


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_sixteen_bits_are_as_good_as_with_the_library(name):
    x = torch.cat([torch.linspace(-12, 12, 4090), torch.tensor([0.0, -0.0, 60000, -60000, 6e-8, -6e-8])])
    x = x.to(torch.float16)
    out = torch.empty_like(x)
    run_fusion(text(name, "f16"), [x], [out])
    exact = getattr(torch, name)(x.double()) + 1
    assert (out.double() - exact).abs().max() <= (exact.to(torch.float16).double() - exact).abs().max() + 2e-7


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_what_is_no_number_stays_so(name):
    x = torch.full((4096,), float("nan"), dtype=torch.bfloat16)
    x[1::3], x[2::3] = float("inf"), float("-inf")
    out = torch.empty_like(x)
    run_fusion(text(name, "bf16"), [x], [out])
    assert out[0::3].isnan().all() and (out[1::3] == 2).all() and (out[2::3] == 0).all()
