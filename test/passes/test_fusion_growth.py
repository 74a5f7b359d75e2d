# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How the work of fusion grows with identical layers, counted; and that a compiled graph leaves no context behind."""

import gc
from collections import Counter

import pytest
import torch
from torch_mlir import ir

import kiln
from kiln.dialects import create_context, parse
from kiln.passes import run_pipeline
from kiln.passes.fusion.graph import FusionGraph
from kiln.passes.fusion.groups import Grouping

_SAME = "affine_map<(d0, d1) -> (d0, d1)>"
_ROWS = "affine_map<(d0, d1) -> (d0)>"
_PARALLEL = '"parallel", "parallel"'


def _layers(count: int) -> str:
    """`count` layers of x + softmax-like rows of x @ w: each stores its product and its result."""
    lines = []
    for i in range(count):
        lines.append(f"""
  %p{i} = "kiln.matmul"(%x{i}, %w) {{transpose_lhs = false, transpose_rhs = false}}
      : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %s{i} = linalg.generic {{indexing_maps = [{_SAME}, {_ROWS}], iterator_types = ["parallel", "reduction"]}}
      ins(%p{i} : tensor<8x16xf32>) outs(%zero : tensor<8xf32>) {{
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      linalg.yield %c : f32
  }} -> tensor<8xf32>
  %x{i + 1} = linalg.generic {{indexing_maps = [{_SAME}, {_SAME}, {_ROWS}, {_SAME}], iterator_types = [{_PARALLEL}]}}
      ins(%x{i}, %p{i}, %s{i} : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8xf32>) outs(%e : tensor<8x16xf32>) {{
    ^bb0(%a: f32, %b: f32, %c: f32, %d: f32):
      %q = arith.mulf %b, %c : f32
      %r = arith.addf %a, %q : f32
      linalg.yield %r : f32
  }} -> tensor<8x16xf32>""")
    return f"""
func.func @main(%x0: tensor<8x16xf32>, %w: tensor<16x16xf32>) -> tensor<8x16xf32> {{
  %e = "kiln.empty"() {{shape = affine_map<() -> (8, 16)>}} : () -> tensor<8x16xf32>
  %zero = arith.constant dense<0.0> : tensor<8xf32>{"".join(lines)}
  return %x{count} : tensor<8x16xf32>
}}"""


def _visits(count: int, patch: pytest.MonkeyPatch) -> Counter[str]:
    """What fusing `count` layers looks at."""
    seen: Counter[str] = Counter()

    def counted(scope: pytest.MonkeyPatch, owner: type, name: str) -> None:
        original = getattr(owner, name)

        def method(self: object, *arguments: object) -> object:
            seen[name] += 1
            return original(self, *arguments)

        scope.setattr(owner, name, method)

    with patch.context() as scope:
        for name in ("_space", "_is_free", "top"):
            counted(scope, FusionGraph, name)
        counted(scope, Grouping, "_behind")
        with create_context():
            run_pipeline(parse(_layers(count)), "fuse")
    return seen


def test_visits_grow_with_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = _visits(8, monkeypatch), _visits(32, monkeypatch)
    assert set(few) == {"_space", "_is_free", "top", "_behind"}
    for name, visits in few.items():
        assert many[name] <= 4.5 * visits, name


def test_no_context_outlives_compilation() -> None:
    """Without a collection of garbage: a cycle that refers to one expression would keep the whole module."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ w, -1).flatten() + x.mean(-1, keepdim=True).expand_as(x).reshape(-1)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=kiln.backend, options={"fallback": False})
    x, w = torch.randn(6, 6), torch.randn(6, 6)
    gc.collect()
    before = ir.Context._get_live_count()
    gc.disable()
    try:
        compiled(x, w)
        assert ir.Context._get_live_count() == before
    finally:
        gc.enable()
