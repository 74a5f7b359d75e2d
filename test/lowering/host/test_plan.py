# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The planner on hand-written modules, with a kernel compiler of its own (conftest.py)."""

from dataclasses import dataclass

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kiln.dialects import kiln
from kiln.passes.assign_layouts import AssignLayouts
from kiln.runtime.executor import Executor
from kiln.runtime.memory import aligned
from kiln.runtime.plan import Launch, Plan

S = "affine_map<()[s0] -> ({})>"


def fusion(result, operands, body, shape="affine_map<() -> (4, 6)>", type_="tensor<4x6xf32>", name="f", sym=""):
    """Text of a pointwise fusion on tensors of one type: `body` defines %r from %i0, %i1, ..."""
    n = len(operands)
    rank = type_.count("x")
    identity = f"affine_map<({', '.join(f'd{i}' for i in range(rank))}) -> ({', '.join(f'd{i}' for i in range(rank))})>"
    args = ", ".join(f"%a{i}: {type_}" for i in range(n)) + (", %sym: index" if sym else "")
    types = ", ".join([type_] * n)
    element = type_.split("x")[-1][:-1]
    ins = ", ".join(f"%i{i}: {element}" for i in range(n))
    values = ", ".join(f"%a{i}" for i in range(n))
    outer = ", ".join([*operands, *([sym] if sym else [])])
    outer_types = types + (", index" if sym else "")
    empty = f'"kiln.empty"({"%sym" if sym else ""}) {{shape = {shape}}} : ({"index" if sym else ""}) -> {type_}'
    shapes = f", shapes = [{', '.join([shape] * n)}]" if sym else ""
    return f"""
  {result} = "kiln.fusion"({outer}) ({{
  ^bb0({args}):
    %e = {empty}
    %g = linalg.generic {{indexing_maps = [{", ".join([identity] * (n + 1))}],
        iterator_types = [{", ".join(['"parallel"'] * rank)}]}} ins({values} : {types}) outs(%e : {type_}) {{
    ^bb0({ins}, %o: {element}):
      {body}
      linalg.yield %r : {element}
    }} -> {type_}
    "kiln.yield"(%g) : ({type_}) -> ()
  }}) {{kind = "pointwise", name = "{name}"{shapes}}} : ({outer_types}) -> {type_}"""


ADD = "%r = arith.addf %i0, %i1 : f32"
MUL = "%r = arith.mulf %i0, %i1 : f32"
ATEN = 'args = "[{\\22operand\\22: 0}]", kwargs = "{}", pure = true'


def plan_of(text, toy_compiler, **options) -> Plan:
    module = kiln.parse(text)
    AssignLayouts().run(module)
    module.operation.verify()
    plan = toy_compiler.plan(module, **options)
    kiln.parse(plan.text).operation.verify()
    return Plan.from_bytes(plan.to_bytes())


def test_chain_shares_workspace(context, toy_compiler):
    text = "func.func @main(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) -> tensor<4x6xf32> {"
    previous = "%x"
    for i in range(6):
        text += fusion(f"%v{i}", [previous, "%y"], ADD if i % 2 else MUL)
        previous = f"%v{i}"
    text += f"\n  return {previous} : tensor<4x6xf32>\n}}"
    plan = plan_of(text, toy_compiler)
    assert len(plan.steps) == 6 and len(plan.kernels) == 2
    assert set(plan.offsets.values()) == {0, 128}
    x = [torch.randn(4, 6) for _ in range(2)]
    expected = x[0]
    for i in range(6):
        expected = expected + x[1] if i % 2 else expected * x[1]
    assert torch.equal(Executor(plan)(x)[0], expected)


def test_dynamic_views_and_aten(context, toy_compiler):
    shape = S.format("s0, 6")
    strides = S.format("6, 1")
    text = f"""
func.func @main(%x: tensor<?x6xf32> {{kiln.shape = {shape}, kiln.strides = {strides}}}, %n: index {{kiln.symbol = "s3"}})
    -> (tensor<6x?xf32> {{kiln.strides = affine_map<()[s0] -> (1, 6)>}}, tensor<?x6xf32>, index)
    attributes {{kiln.symbols = ["s3"]}} {{
  {fusion("%0", ["%x", "%x"], MUL, shape, "tensor<?x6xf32>", sym="%n")}
  %1 = "kiln.aten"(%0, %n) {{op = "aten.sin.default", {ATEN}, shapes = [{shape}], strides = [unit]}}
    : (tensor<?x6xf32>, index) -> tensor<?x6xf32>
  {fusion("%2", ["%1", "%x"], ADD, shape, "tensor<?x6xf32>", sym="%n")}
  {fusion("%3", ["%2", "%0"], ADD, shape, "tensor<?x6xf32>", sym="%n")}
  %t = "kiln.view"(%2, %n) {{map = affine_map<(d0, d1)[s0] -> (d1, d0)>, shape = {S.format("6, s0")}}}
    : (tensor<?x6xf32>, index) -> tensor<6x?xf32>
  return %t, %3, %n : tensor<6x?xf32>, tensor<?x6xf32>, index
}}"""
    plan = plan_of(text, toy_compiler)
    assert plan.offsets == {} and plan.num_inputs == 2
    executor = Executor(plan)
    for n in (3, 8, 1, 0):
        x = torch.randn(n, 6)
        transposed, total, size = executor([x, n])
        sine = torch.sin(x * x) + x
        assert torch.equal(transposed, sine.t()) and transposed.stride() == (1, 6)
        assert torch.equal(total, sine + x * x) and size == n


def test_dynamic_workspace(context, toy_compiler):
    shape, strides = S.format("s0, 6"), S.format("6, 1")
    arguments = (
        f'%x: tensor<?x6xf32> {{kiln.shape = {shape}, kiln.strides = {strides}}}, %n: index {{kiln.symbol = "s3"}}'
    )
    text = f'func.func @main({arguments}) -> tensor<?x6xf32> attributes {{kiln.symbols = ["s3"]}} {{'
    previous = "%x"
    for i in range(4):
        text += fusion(f"%v{i}", [previous, "%x"], ADD, shape, "tensor<?x6xf32>", sym="%n")
        previous = f"%v{i}"
    plan = plan_of(text + f"\n  return {previous} : tensor<?x6xf32>\n}}", toy_compiler)
    assert plan.offsets is None and len(plan.kernels) == 1
    executor = Executor(plan)
    for n in (2, 50, 3):
        x = torch.randn(n, 6)
        expected = x
        for _ in range(4):
            expected = expected + x
        assert torch.equal(executor([x, n])[0], expected)
    assert executor.workspace_bytes() == 2 * aligned(50 * 6 * 4)


@dataclass
class Source:
    kind: str
    name: str = ""
    index: int = -1
    dim: int = -1
    expr: str | None = None


def test_input_sources(context, toy_compiler):
    """Graph inputs that are no arguments, a symbol read off a size, a derived one and a constant."""
    shape, strides = S.format("s0, 6"), S.format("6, 1")
    tensor = f"tensor<?x6xf32> {{kiln.shape = {shape}, kiln.strides = {strides}}}"
    text = f"""
func.func @main(%x: {tensor}, %n: index {{kiln.symbol = "s3"}}, %m: index {{kiln.symbol = "Max(2, s3)"}},
    %w: tensor<4xf32> {{kiln.constant = "w"}}) -> (tensor<?x6xf32>, index, tensor<2xf32>)
    attributes {{kiln.symbols = ["s3", "Max(2, s3)"]}} {{
  {fusion("%0", ["%x", "%x"], ADD, shape, "tensor<?x6xf32>", sym="%n")}
  %v = "kiln.view"(%w) {{map = affine_map<(d0) -> (d0 + 1)>, shape = affine_map<() -> (2)>}} : (tensor<4xf32>) -> tensor<2xf32>
  return %0, %m, %v : tensor<?x6xf32>, index, tensor<2xf32>
}}"""
    sources = [
        Source("tensor", index=2),
        Source("size", index=2, dim=0),
        Source("derived", expr="Max(2, s3)"),
        Source("constant", "w"),
    ]
    plan = plan_of(text, toy_compiler, inputs=sources, num_inputs=4)
    assert plan.num_inputs == 4
    w = torch.randn(4)
    x = torch.randn(1, 6)
    total, size, part = Executor(plan, {"w": w})([None, "ignored", x, None])
    assert torch.equal(total, x + x) and size == 2 and part.data_ptr() == w[1:].data_ptr()


def test_unbacked_symbols(context, toy_compiler):
    text = f"""
func.func @main(%x: tensor<4x6xf32>) -> (tensor<?x2xi64>, tensor<?x2xi64>) {{
  %0:2 = "kiln.aten"(%x) {{op = "aten.nonzero.default", {ATEN}, shapes = [{S.format("s0, 2")}, unit],
    strides = [affine_map<()[s0] -> (1, s0)>, unit], unbacked = [array<i64: 0, 0>], unbacked_names = ["u0"]}}
    : (tensor<4x6xf32>) -> (tensor<?x2xi64>, index)
  {fusion("%1", ["%0#0", "%0#0"], "%r = arith.addi %i0, %i1 : i64", S.format("s0, 2"), "tensor<?x2xi64>", sym="%0#1")}
  {fusion("%2", ["%1", "%0#0"], "%r = arith.addi %i0, %i1 : i64", S.format("s0, 2"), "tensor<?x2xi64>", sym="%0#1")}
  return %0#0, %2 : tensor<?x2xi64>, tensor<?x2xi64>
}}"""
    executor = Executor(plan_of(text, toy_compiler))
    for x in (torch.eye(4, 6), torch.zeros(4, 6), torch.ones(4, 6)):
        where, triple = executor([x])
        assert torch.equal(where, x.nonzero()) and torch.equal(triple, 3 * x.nonzero())
        assert where.stride() == x.nonzero().stride()


def test_unsigned_results_and_dense_constants(context, toy_compiler):
    text = f"""
func.func @main(%x: tensor<2x2xi8>) -> (tensor<2x2xi8> {{kiln.dtype = "uint8"}}, tensor<2xf32>, tensor<3xbf16>) {{
  %c = arith.constant dense<[1.5, -2.0]> : tensor<2xf32>
  %d = arith.constant dense<2.5> : tensor<3xbf16>
  {fusion("%0", ["%x", "%x"], "%r = arith.addi %i0, %i1 : i8", "affine_map<() -> (2, 2)>", "tensor<2x2xi8>")}
  return %0, %c, %d : tensor<2x2xi8>, tensor<2xf32>, tensor<3xbf16>
}}"""
    x = torch.tensor([[1, 200], [3, 4]], dtype=torch.uint8)
    doubled, constant, half = Executor(plan_of(text, toy_compiler))([x])
    assert doubled.dtype == torch.uint8 and torch.equal(doubled, x + x)
    assert constant.tolist() == [1.5, -2.0]
    assert half.dtype == torch.bfloat16 and half.tolist() == [2.5] * 3


def test_same_value_twice_and_inputs(context, toy_compiler):
    text = f"""
func.func @main(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {{
  {fusion("%0", ["%x", "%x"], ADD)}
  return %0, %x, %0 : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}}"""
    x = torch.randn(4, 6)
    first, second, third = Executor(plan_of(text, toy_compiler))([x])
    assert first is third and second is x


def test_empty_graph(context, toy_compiler):
    plan = plan_of("func.func @main(%x: tensor<4xf32>) { return }", toy_compiler)
    assert plan.launcher == b"" and Executor(plan)([torch.randn(4)]) == []


graphs = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.booleans()), min_size=1, max_size=14)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graphs)
def test_random_graphs(context, toy_compiler, graph):
    """Values are right, and no two workspace buffers alive at one step overlap."""
    values = ["%x", "%y"]
    text = ""
    for i, (a, b, product) in enumerate(graph):
        text += fusion(f"%v{i}", [values[a % len(values)], values[b % len(values)]], MUL if product else ADD)
        values.append(f"%v{i}")
    returned = values[-1] + ", " + values[len(values) // 2]
    text = ("func.func @main(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {"
            f"{text}\n  return {returned} : tensor<4x6xf32>, tensor<4x6xf32>\n}}")  # fmt: skip
    plan = plan_of(text, toy_compiler)
    x = [torch.rand(4, 6), torch.rand(4, 6)]
    known = list(x)
    for a, b, product in graph:
        left, right = known[a % len(known)], known[b % len(known)]
        known.append(left * right if product else left + right)
    out = Executor(plan)(x)
    assert torch.equal(out[0], known[-1]) and torch.equal(out[1], known[len(known) // 2])
    for i, step in enumerate(plan.steps):
        assert isinstance(step, Launch)
        alive = [b for b, d in enumerate(plan.buffers) if d.kind == "workspace" and d.first <= i <= d.last]
        spans = sorted((plan.offsets[b], plan.offsets[b] + plan.buffers[b].bytes) for b in alive)
        assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
