# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Short formulas of erf, tanh and exp: taken where their error is lost in what is stored, and nowhere else."""

import pytest
import torch
import torch.nn.functional as F
from torch_mlir import ir

from kiln.dialects import create_context, parse, rounding
from kiln.dialects.walk import ops_inside
from kiln.lowering.tile.short_formulas import CPU_FORMULAS, GPU_FORMULAS, is_short_enough

BODY = """
func.func @main(%x: tensor<64x{t}>, %y: tensor<64xf32>) -> tensor<64x{t}> {{
  %0 = "kiln.fusion"(%x, %y) ({{
  ^bb0(%a: tensor<64x{t}>, %b: tensor<64xf32>):
    %e = "kiln.empty"() {{shape = affine_map<() -> (64)>}} : () -> tensor<64xf32>
    %f = "kiln.empty"() {{shape = affine_map<() -> (64)>}} : () -> tensor<64x{t}>
    %1 = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]}} ins(%a : tensor<64x{t}>) outs(%e : tensor<64xf32>) {{
    ^bb0(%in: {t}, %out: f32):
      %zero = arith.constant 0.0 : f32
      %half = arith.constant 0.5 : f32
      %one = arith.constant 1.0 : f32
      %three = arith.constant 3.0 : f32
      %million = arith.constant 1.0e6 : f32
      {widen}
      %r = math.{function} %v : f32
      {first}
      linalg.yield %s : f32
    }} -> tensor<64xf32>
    %2 = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>,
        affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}} ins(%1, %b : tensor<64xf32>, tensor<64xf32>)
        outs(%f : tensor<64x{t}>) {{
    ^bb0(%s: f32, %w: f32, %out: {t}):
      %zero = arith.constant 0.0 : f32
      %half = arith.constant 0.5 : f32
      %one = arith.constant 1.0 : f32
      %three = arith.constant 3.0 : f32
      %million = arith.constant 1.0e6 : f32
      {second}
      {narrow}
      linalg.yield %q : {t}
    }} -> tensor<64x{t}>
    "kiln.yield"(%2) : (tensor<64x{t}>) -> ()
  }}) {{kind = "pointwise", name = "f"}} : (tensor<64x{t}>, tensor<64xf32>) -> tensor<64x{t}>
  return %0 : tensor<64x{t}>
}}
"""
ADD = "%s = arith.addf %r, %one : f32"


def chosen(function, first, second, t="bf16", formulas=GPU_FORMULAS, exact=False):
    same = t == "f32"
    widen = "%v = arith.mulf %in, %one : f32" if same else f"%v = arith.extf %in : {t} to f32"
    narrow = "%q = arith.mulf %p, %one : f32" if same else f"%q = arith.truncf %p : f32 to {t}"
    with create_context():
        module = parse(BODY.format(t=t, function=function, first=first, second=second, widen=widen, narrow=narrow))
        op = next(op for op in ops_inside(module.operation) if op.name == f"math.{function}")
        if exact:
            op.attributes[rounding.EXACT] = ir.UnitAttr.get()
        return is_short_enough(op, formulas)


@pytest.mark.parametrize("formulas", [CPU_FORMULAS, GPU_FORMULAS], ids=["cpu", "gpu"])
@pytest.mark.parametrize("function", ["erf", "tanh"])
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (ADD, "%p = arith.mulf %s, %w : f32", True),
        ("%s = arith.subf %one, %r : f32", "%p = arith.mulf %s, %half : f32", True),
        ("%s = arith.subf %r, %three : f32", "%p = arith.negf %s : f32", True),
        (ADD, "%p = arith.addf %s, %three : f32", True),
        (ADD, "%p = arith.divf %s, %three : f32", True),
        (ADD, "%p = arith.maximumf %s, %w : f32", True),
        ("%s = arith.addf %r, %half : f32", "%p = arith.mulf %s, %w : f32", False),
        ("%s = arith.mulf %r, %half : f32", "%p = arith.addf %s, %one : f32", False),
        (ADD, "%p = arith.subf %s, %one : f32", False),
        (ADD, "%p = arith.addf %s, %w : f32", False),
        (ADD, "%p = arith.mulf %s, %million : f32", False),
        (ADD, "%p = arith.divf %w, %s : f32", False),
        (ADD, "%p = arith.divf %s, %w : f32", False),
        (ADD, "%p = math.log %s : f32", False),
        (ADD, "%c = arith.cmpf ogt, %s, %half : f32\n %p = arith.select %c, %s, %w : f32", False),
        (ADD, "%n = arith.negf %s : f32\n %p = arith.addf %n, %three : f32", False),
    ],
)
def test_what_the_analysis_shows(function, first, second, expected, formulas):
    assert chosen(function, first, second, "bf16", formulas) == expected
    assert chosen(function, first, second, "f16", formulas) == expected
    assert not chosen(function, first, second, "f32", formulas)


def test_what_decides_is_exact():
    assert chosen("erf", ADD, "%p = arith.mulf %s, %w : f32")
    assert not chosen("erf", ADD, "%p = arith.mulf %s, %w : f32", exact=True)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("%p = arith.divf %w, %s : f32", True),
        ("%d = arith.divf %one, %s : f32\n %p = arith.mulf %d, %w : f32", True),
        ("%p = arith.mulf %s, %one : f32", False),  # infinite from 2^127 on, not from 2^128
        ("%p = arith.addf %s, %zero : f32", False),
        ("%p = math.log %s : f32", False),
        ("%d = arith.divf %one, %s : f32\n %p = arith.subf %one, %d : f32", False),
    ],
)
def test_an_exponential_is_a_divisor(second, expected):
    assert chosen("exp", ADD, second, "bf16", CPU_FORMULAS) == expected
    assert not chosen("exp", ADD, second, "bf16", GPU_FORMULAS)  # one instruction there anyway


# ----------------------------------------------------------------------------------- all numbers of 16 bits, both targets


def _cancelling(x):
    return (1 + torch.tanh(x)) - 1


def _erf_cancelling(x):
    return torch.erf(x) + 1 - 1


def _large(x):
    return F.gelu(x) * 1e6


def _logarithm(x):
    return torch.log(1 + torch.erf(x.abs() - 0.9))


def _softplus(x):
    return torch.log(1 + torch.exp(x))


def _exponential(x):
    return 1 + torch.exp(x)


def _quotient(x):
    return 1 / (1.25 + torch.tanh(x))


def _gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def _gated(x):
    return F.gelu(x) * torch.sigmoid(x) * x


def _residual(x):
    return F.gelu(x) - x


# Program: how many roundings of f32 (2^-24) of how large numbers its exact formulas may be off by, given x.
EXACT = {
    _cancelling: lambda x: 4 + 0 * x,
    _erf_cancelling: lambda x: 4 + 0 * x,
    _large: lambda x: 4e6 * x.abs(),
    _logarithm: lambda x: 20 + 0 * x,
    _quotient: lambda x: 60 + 0 * x,
    _exponential: lambda x: (4 + 2 * x.abs()) * (1 + x.exp()),
    _residual: lambda x: 4 * x.abs(),
}
# And where short formulas are right: the absolute error that the analysis allows, as a multiple of |x|.
SHORT = {F.gelu: 0.5, _gelu_tanh: 0.5, F.silu: 0.0, torch.sigmoid: 0.0, _gated: 0.5}


def errors(function, dtype, target):
    """Inputs, error beyond half a unit of the last place in 16 bits, and that unit, for finite results."""
    numbers = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    numbers = numbers[numbers.isfinite()]
    torch._dynamo.reset()
    found = torch.compile(function, backend="kiln", options={"fallback": False, "target": target})(numbers).double()
    x = numbers.double()
    exact = function(x)
    info = torch.finfo(dtype)
    last = info.eps * torch.exp2(torch.floor(torch.log2(exact.abs().clamp(min=info.tiny))))
    in_range = exact.abs() < info.max * (1 - info.eps)
    # Cubes of larger numbers are none in f32.
    assert (found[in_range].isfinite() | (x[in_range].abs() > 1e30)).all()
    keep = in_range & (x.abs() < 1e30)
    return x[keep], ((found - exact).abs() - 0.5001 * last)[keep], last[keep]


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", EXACT, ids=lambda f: f.__name__)
def test_exact_where_an_error_would_show(function, dtype, target):
    x, error, _ = errors(function, dtype, target)
    assert (error <= EXACT[function](x) * 2.0**-24).all()


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", SHORT, ids=lambda f: f.__name__)
def test_short_where_it_does_not(function, dtype, target):
    x, error, last = errors(function, dtype, target)
    # What 1 + exp(-x) divides is 0 from where f32 has no such number.
    assert (error <= last / 8 + (SHORT[function] * 8e-7 + 2.0**-127) * x.abs() + 2.0**-126).all()
