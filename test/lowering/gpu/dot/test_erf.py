# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The short error function of 16-bit epilogues: how far it is off, and where it is taken."""

import torch
from fusion_support import emit_fusion, run_fusion

from kiln.dialects import kiln

ERF = """
func.func @main(%x: tensor<4096x{t}>) -> tensor<4096x{t}> {{
  %0 = "kiln.fusion"(%x) ({{
  ^bb0(%x_: tensor<4096x{t}>):
    %e = "kiln.empty"() {{shape = affine_map<() -> (4096)>}} : () -> tensor<4096x{t}>
    %1 = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]}} ins(%x_ : tensor<4096x{t}>) outs(%e : tensor<4096x{t}>) {{
    ^bb0(%in: {t}, %out: {t}):
      %one = arith.constant {constant} : f32
      {widen}
      %8 = math.erf %7 : f32
      %9 = arith.addf %8, %one : f32
      {narrow}
      linalg.yield %10 : {t}
    }} -> tensor<4096x{t}>
    "kiln.yield"(%1) : (tensor<4096x{t}>) -> ()
  }}) {{kind = "pointwise", name = "erf"}} : (tensor<4096x{t}>) -> tensor<4096x{t}>
  return %0 : tensor<4096x{t}>
}}
"""


def text(element, constant="1.0"):
    if element == "f32":
        widen, narrow = "%7 = arith.mulf %in, %one : f32", "%10 = arith.mulf %9, %one : f32"
    else:
        widen, narrow = f"%7 = arith.extf %in : {element} to f32", f"%10 = arith.truncf %9 : f32 to {element}"
    return ERF.format(t=element, constant=constant, widen=widen, narrow=narrow)


def test_sixteen_bits_are_as_good_as_with_the_library():
    x = torch.linspace(-5, 5, 4096).to(torch.float16)
    out = torch.empty_like(x)
    run_fusion(text("f16"), [x], [out])
    exact = torch.erf(x.double()) + 1
    assert (out.double() - exact).abs().max() <= (exact.to(torch.float16).double() - exact).abs().max() + 2e-7


def test_only_where_its_error_is_lost():
    assert "math.erf" not in kiln.to_text(emit_fusion(text("bf16")))
    assert "math.erf" in kiln.to_text(emit_fusion(text("f32")))
    assert "math.erf" in kiln.to_text(emit_fusion(text("bf16", constant="2.0")))
