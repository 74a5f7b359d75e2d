# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How the work of fusion, and of what follows it, grows with the graph, counted; and that a compiled graph leaves no context behind."""

import gc
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch_mlir import ir

import kiln
from kiln.dialects import create_context, parse
from kiln.lowering.cpu import isa
from kiln.passes import run_pipeline
from kiln.passes.fusion.graph import FusionGraph
from kiln.passes.fusion.groups import Grouping

_SAME = "affine_map<(d0, d1) -> (d0, d1)>"
_ROWS = "affine_map<(d0, d1) -> (d0)>"
_PARALLEL = '"parallel", "parallel"'
_VECTOR = "affine_map<(d0) -> (d0)>"
_FOUR = "affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>"
_STATE = "tensor<2x4x8x8xf32>"


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


def _generic(result: str, operands: list[str], body: str) -> str:
    """A pointwise op on tensors of one shape; `body` computes %r from %a, and from %b if there are two operands."""
    names = ", ".join(f"%{'ab'[i]}: f32" for i in range(len(operands)))
    types = ", ".join([_STATE] * len(operands))
    maps = ", ".join([_FOUR] * (len(operands) + 1))
    return f"""
  {result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{_PARALLEL}, {_PARALLEL}]}}
      ins({", ".join(operands)} : {types}) outs(%e : {_STATE}) {{
    ^bb0({names}, %o: f32):
      {body}
      linalg.yield %r : f32
  }} -> {_STATE}"""


def _recurrence(count: int) -> str:
    """`count` steps of a state that each step reads twice and returns, as an unrolled recurrence does in training."""
    lines = []
    for i in range(count):
        lines.append(f"""
  %k{i} = "kiln.view"(%k) {{map = affine_map<(d0, d1, d2, d3) -> ({i}, d0, d1, d2, d3)>,
      shape = affine_map<() -> (2, 4, 8, 8)>}} : (tensor<{count}x2x4x8x8xf32>) -> {_STATE}""")
        lines.append(_generic(f"%d{i}", [f"%s{i}"], "%r = math.exp %a : f32"))
        lines.append(_generic(f"%n{i}", [f"%d{i}", f"%k{i}"], "%r = arith.mulf %a, %b : f32"))
        lines.append(_generic(f"%s{i + 1}", [f"%n{i}", f"%s{i}"], "%r = arith.addf %a, %b : f32"))
    results = ", ".join(f"%s{i + 1}" for i in range(count))
    types = ", ".join([_STATE] * count)
    return f"""
func.func @main(%s: {_STATE}, %k: tensor<{count}x2x4x8x8xf32>) -> ({types}) {{
  %e = "kiln.empty"() {{shape = affine_map<() -> (2, 4, 8, 8)>}} : () -> {_STATE}
{_generic("%s0", ["%s"], "%r = math.exp %a : f32")}{"".join(lines)}
  return {results} : {types}
}}"""


def _updates(count: int) -> str:
    """`count` updates of small tensors of different sizes, as of an optimiser: nothing leads from one to another."""
    arguments, lines = [], []
    for i in range(count):
        type_ = f"tensor<{i + 3}xf32>"
        arguments += [f"%p{i}: {type_}", f"%g{i}: {type_}"]
        lines.append(f"""
  %e{i} = "kiln.empty"() {{shape = affine_map<() -> ({i + 3})>}} : () -> {type_}
  %n{i} = linalg.generic {{indexing_maps = [{_VECTOR}, {_VECTOR}, {_VECTOR}], iterator_types = ["parallel"]}}
      ins(%p{i}, %g{i} : {type_}, {type_}) outs(%e{i} : {type_}) {{
    ^bb0(%a: f32, %b: f32, %o: f32):
      %r = arith.subf %a, %b : f32
      linalg.yield %r : f32
  }} -> {type_}""")
    types = ", ".join(f"tensor<{i + 3}xf32>" for i in range(count))
    results = ", ".join(f"%n{i}" for i in range(count))
    return f"func.func @main({', '.join(arguments)}) -> ({types}) {{{''.join(lines)}\n  return {results} : {types}\n}}"


def _kernels(count: int) -> str:
    """Two kernels with `count` results: those of the first die in the second, whose state reads itself twice a step."""
    first = "".join(
        _generic(f"%v{i}", ["%y"], f"%c = arith.constant {i}.0 : f32\n      %r = arith.addf %a, %c : f32")
        for i in range(count)
    )
    steps = "".join(
        _generic(f"%d{i}", [f"%s{i}", f"%k{i}"], "%r = arith.mulf %a, %b : f32")
        + _generic(f"%s{i + 1}", [f"%d{i}", f"%s{i}"], "%r = arith.addf %a, %b : f32")
        for i in range(count)
    )
    types = ", ".join([_STATE] * count)
    empty = f'%e = "kiln.empty"() {{shape = affine_map<() -> (2, 4, 8, 8)>}} : () -> {_STATE}'
    yields = ", ".join(f"%v{i}" for i in range(count)), ", ".join(f"%s{i + 1}" for i in range(count))
    operands = ", ".join(f"%0#{i}" for i in range(count))
    arguments = ", ".join(f"%k{i}: {_STATE}" for i in range(count))
    return f"""
func.func @main(%x: {_STATE}) -> ({types}) {{
  %0:{count} = "kiln.fusion"(%x) ({{
  ^bb0(%y: {_STATE}):
    {empty}{first}
    "kiln.yield"({yields[0]}) : ({types}) -> ()
  }}) {{kind = "pointwise", name = "first"}} : ({_STATE}) -> ({types})
  %1:{count} = "kiln.fusion"(%x, {operands}) ({{
  ^bb0(%s0: {_STATE}, {arguments}):
    {empty}{steps}
    "kiln.yield"({yields[1]}) : ({types}) -> ()
  }}) {{kind = "pointwise", name = "second"}} : ({_STATE}, {types}) -> ({types})
  return {", ".join(f"%1#{i}" for i in range(count))} : {types}
}}"""


def _filter(count: int) -> str:
    """`count` steps of a recurrent filter, y = exp(y) + x, and all y as the columns of one tensor."""
    column, row = "tensor<4xf32>", "tensor<4x1xf32>"
    lines = [
        f"""
  %x{i} = "kiln.view"(%x) {{map = affine_map<(d0) -> (d0, {i})>, shape = affine_map<() -> (4)>}}
      : (tensor<4x{count}xf32>) -> {column}
  %y{i + 1} = linalg.generic {{indexing_maps = [{_VECTOR}, {_VECTOR}, {_VECTOR}], iterator_types = ["parallel"]}}
      ins(%y{i}, %x{i} : {column}, {column}) outs(%e : {column}) {{
    ^bb0(%a: f32, %b: f32, %o: f32):
      %c = math.exp %a : f32
      %r = arith.addf %c, %b : f32
      linalg.yield %r : f32
  }} -> {column}
  %z{i} = "kiln.view"(%y{i + 1}) {{map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (4, 1)>}}
      : ({column}) -> {row}"""
        for i in range(count)
    ]
    return f"""
func.func @main(%y0: {column}, %x: tensor<4x{count}xf32>) -> tensor<4x{count}xf32> {{
  %e = "kiln.empty"() {{shape = affine_map<() -> (4)>}} : () -> {column}{"".join(lines)}
  %0 = "kiln.cat"({", ".join(f"%z{i}" for i in range(count))}) {{dim = 1 : i64, shape = affine_map<() -> (4, {count})>}}
      : ({", ".join([row] * count)}) -> tensor<4x{count}xf32>
  return %0 : tensor<4x{count}xf32>
}}"""


def _counter(count: Iterator[int]) -> Callable[..., Any]:
    """A trace function that takes the next number at each line."""

    def trace(frame: object, event: str, argument: object) -> Callable[..., Any]:
        next(count)
        return trace

    return trace


def _lines(text: str, passes: Sequence[str]) -> dict[str, int]:
    """Lines of Python that each pass runs, each turn of a loop included: its work, on any machine the same."""
    found: dict[str, int] = {}
    with create_context(), isa.compiling_for(isa.named("x86-64-v3")):
        module = parse(text)
        for name in passes:
            count = itertools.count()
            before = sys.gettrace()
            sys.settrace(_counter(count))
            try:
                run_pipeline(module, name)
            finally:
                sys.settrace(before)
            found[name] = next(count)
    return found


@pytest.mark.parametrize(
    ("program", "few", "many", "passes"),
    [
        (_recurrence, 16, 64, ["fuse"]),
        (_updates, 48, 192, ["fuse"]),
        (_kernels, 4, 16, ["assign-layouts", "reuse-buffers"]),
        (_filter, 48, 192, ["fuse", "assign-layouts", "schedule-cpu", "outline-kernels"]),
        (_filter, 192, 384, ["fuse", "assign-layouts", "schedule-cpu", "outline-kernels", "emit-kernels"]),
    ],
)
def test_work_grows_with_the_graph(program: Callable[[int], str], few: int, many: int, passes: list[str]) -> None:
    _lines(program(few), passes)  # modules are imported at first use
    before, after = _lines(program(few), passes), _lines(program(many), passes)
    growth = {name: after[name] / before[name] / (many / few) for name in passes}
    assert max(growth.values()) <= 1.5, growth


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
