# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the reduction of a module does to the bodies of fusions, and to the memory that they write."""

import pytest
from torch_mlir import ir

from kiln.dialects import create_context, parse, to_text
from kiln.passes.numerics.sample import random_samples
from kiln.passes.numerics.signature import entry_function, signature_of
from kiln.tools.debugging import breakage, editing, fusions
from kiln.tools.debugging.attempts import Finding, Task
from kiln.tools.debugging.op_edits import _as_operand
from kiln.tools.debugging.reduction import reduce_module


def _text(*, dynamic: bool) -> str:
    """Three loops in a fusion, of 8 elements or of as many as a symbol says."""
    tensor = "tensor<?xf32>" if dynamic else "tensor<8xf32>"
    described = f"{tensor} {{kiln.shape = #size}}" if dynamic else tensor
    symbol = ', %size: index {kiln.symbol = "s0"}' if dynamic else ""
    outer, inner, index = (", %size", ", %k: index", ", index") if dynamic else ("", "", "")
    empty, given = ('"kiln.empty"(%k)', "index") if dynamic else ('"kiln.empty"()', "")
    names, shapes = ('["s0"]', ", shapes = [#size, #size]") if dynamic else ("[]", "")
    return f"""
#id = affine_map<(d0) -> (d0)>
#size = affine_map<(){"[s0]" if dynamic else ""} -> ({"s0" if dynamic else 8})>
func.func @main(%x: {described}, %y: {described}{symbol}) -> ({tensor}, {tensor}) attributes {{kiln.symbols = {names}}} {{
  %r:2 = "kiln.fusion"(%x, %y{outer}) ({{
  ^bb0(%a: {tensor}, %b: {tensor}{inner}):
    %e = {empty} {{shape = #size}} : ({given}) -> {tensor}
    %0 = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel"]}}
      ins(%a : {tensor}) outs(%e : {tensor}) {{
    ^bb0(%p: f32, %o: f32):
      %n = arith.negf %p : f32
      %s = math.exp %n : f32
      linalg.yield %s : f32
    }} -> {tensor}
    %1 = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}}
      ins(%0, %b : {tensor}, {tensor}) outs(%e : {tensor}) {{
    ^bb0(%p: f32, %q: f32, %o: f32):
      %d = arith.divf %p, %q : f32
      linalg.yield %d : f32
    }} -> {tensor}
    %2 = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}}
      ins(%1, %0 : {tensor}, {tensor}) outs(%e : {tensor}) {{
    ^bb0(%p: f32, %q: f32, %o: f32):
      %m = math.sin %p : f32
      linalg.yield %m : f32
    }} -> {tensor}
    "kiln.yield"(%2, %0) : ({tensor}, {tensor}) -> ()
  }}) {{kind = "pointwise", name = "k"{shapes}}} : ({tensor}, {tensor}{index}) -> ({tensor}, {tensor})
  return %r#0, %r#1 : {tensor}, {tensor}
}}
"""


def _fusion(module: ir.Module) -> ir.Operation:
    return next(op for op in editing.computing_ops(entry_function(module)) if fusions.is_fusion(op))


@pytest.mark.parametrize("dynamic", [False, True])
def test_values_of_a_body_become_arguments(dynamic: bool) -> None:
    with create_context(), ir.Location.unknown():
        module = parse(_text(dynamic=dynamic))
        function = entry_function(module)
        division = next(op for op in fusions.body_of(_fusion(module)) if "arith.divf" in str(op))
        assert editing.cut(function, [division])
        assert module.operation.verify()
        text = to_text(module)
        assert "arith.divf" not in text and "math.sin" in text and "math.exp" in text
        # The divisor is read no more, and the quotient takes its place among the operands.
        operands = [v for v in _fusion(module).operands if editing.is_tensor(v)]
        assert len(operands) == 2 and all(isinstance(v, ir.BlockArgument) for v in operands)
        assert [a.symbol for a in signature_of(function).arguments] == ["", *["s0"] * dynamic, ""]
        assert dynamic == ("shapes" in _fusion(module).attributes)
        assert all(size is not None for a in signature_of(function).tensors for size in a.shape)


@pytest.mark.parametrize("dynamic", [False, True])
def test_values_of_a_body_become_results(dynamic: bool) -> None:
    with create_context(), ir.Location.unknown():
        module = parse(_text(dynamic=dynamic))
        function = entry_function(module)
        division = next(op for op in fusions.body_of(_fusion(module)) if "arith.divf" in str(op))
        editing.return_values(function, [division.results[0]])
        assert module.operation.verify()
        text = to_text(module)
        assert "math.sin" not in text and "arith.divf" in text
        assert len(_fusion(module).results) == 1


def test_a_body_is_reduced_to_what_is_wrong() -> None:
    def is_broken(text: str) -> bool:
        return "kiln.fusion" in text and "arith.divf" in text

    with create_context():
        reduced = parse(reduce_module(_text(dynamic=False), is_broken))
        assert editing.size_of(reduced) == 3  # the fusion, its loops, the division
        assert len(_fusion(reduced).results) == 1


def test_the_kind_follows_the_ops() -> None:
    text = """
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %r = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4x4xf32>):
    %0 = "kiln.matmul"(%a, %a) {transpose_lhs = false, transpose_rhs = false} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %e = "kiln.empty"() {shape = affine_map<() -> (4, 4)>} : () -> tensor<4x4xf32>
    %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
        iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
    ^bb0(%p: f32, %o: f32):
      %n = arith.negf %p : f32
      linalg.yield %n : f32
    } -> tensor<4x4xf32>
    "kiln.yield"(%1) : (tensor<4x4xf32>) -> ()
  }) {kind = "matmul", name = "k"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %r : tensor<4x4xf32>
}
"""
    with create_context(), ir.Location.unknown():
        module = parse(text)
        product = fusions.body_of(_fusion(module))[0]
        assert editing.cut(entry_function(module), [product])
        assert ir.StringAttr(_fusion(module).attributes["kind"]).value == "pointwise"


def test_memory_that_nothing_wrote_is_no_result() -> None:
    text = """
func.func @main(%x: tensor<4xf32>) -> tensor<2x4xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (2, 4)>} : () -> tensor<2x4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%p: f32, %o: f32):
    linalg.yield %p : f32
  } -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
"""
    with create_context(), ir.Location.unknown():
        module = parse(text)
        loops = next(op for op in editing.computing_ops(entry_function(module)) if op.name == "linalg.generic")
        assert not any(_as_operand(module, loops, choice) for choice in range(4))


@pytest.mark.parametrize(("type_", "lowest"), [("!torch.vtensor<[64],si64>", -4), ("tensor<64xi64>", 0)])
def test_indices_of_the_torch_dialect_count_from_the_end(type_: str, lowest: int) -> None:
    with create_context():
        module = parse(f"func.func @main(%x: {type_}) -> {type_} {{ return %x : {type_} }}")
        draws = list(random_samples(signature_of(entry_function(module)), ("normal",)))
        assert int(draws[0][0].tensors[0].min()) == lowest
        assert int(draws[-1][0].tensors[0].min()) == 0


def test_pieces_may_take_little_longer_than_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def attempt(task: Task, text: str) -> Finding:
        limits.append(task.timeout)
        return Finding("numbers", 0, "a-pass")

    monkeypatch.setattr(breakage, "attempt", attempt)
    is_broken = breakage.why_broken(Task(list, timeout=60.0), "whole")
    assert is_broken is not None and is_broken("piece")
    assert limits[0] == 60.0 and limits[1] < 10.0


def test_an_interruption_ends_with_the_smallest_module_so_far() -> None:
    text = _text(dynamic=False)
    asked: list[str] = []

    def broken(candidate: str) -> bool:
        asked.append(candidate)
        if len(asked) > 2:
            raise KeyboardInterrupt
        return True

    assert reduce_module(text, broken) == asked[1]
    assert len(asked[1]) < len(asked[0])
