# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interpreter on torch tensors: scalar ops, index maps, reductions, parts, precision, errors.

`test_reference.py` runs the named ops through it, and `test/property/test_interpreter.py` random programs.
"""

from typing import Any

import numpy as np
import pytest
import torch

from kiln.dialects import create_context, parse
from kiln.dialects.execute import run_reference
from kiln.dialects.interpret import evaluate, generic
from kiln.errors import KilnError, UnsupportedError


def interpret(text: str, *inputs: torch.Tensor | int, **options: Any) -> list[Any]:
    return evaluate(parse(text, create_context()), inputs, **options)


def body_of(op: str, source: str, result: str) -> str:
    """A function that applies a scalar op, on operands %a and %b, element by element."""
    maps = ", ".join(["affine_map<(d0) -> (d0)>"] * 3)
    return f"""
      func.func @main(%x: tensor<?x{source}>, %y: tensor<?x{source}>, %n: index) -> tensor<?x{result}> {{
        %e = "kiln.empty"(%n) {{shape = affine_map<()[s0] -> (s0)>}} : (index) -> tensor<?x{result}>
        %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel"]}}
            ins(%x, %y : tensor<?x{source}>, tensor<?x{source}>) outs(%e : tensor<?x{result}>) {{
        ^bb0(%a: {source}, %b: {source}, %out: {result}):
          %v = {op}
          linalg.yield %v : {result}
        }} -> tensor<?x{result}>
        return %r : tensor<?x{result}>
      }}"""


EDGES = {
    "i8": [0, 1, 2, 3, 7, 100, 127, -1, -2, -3, -100, -128],
    "i32": [0, 1, 2, 3, 7, 65537, 2**31 - 1, -1, -2, -3, -65537, -(2**31)],
    "i64": [0, 1, 2, 3, 7, 2**33 + 5, 2**63 - 1, -1, -2, -3, -(2**33) - 5, -(2**63)],
}
DTYPES = {"i8": torch.int8, "i32": torch.int32, "i64": torch.int64, "f32": torch.float32, "f64": torch.float64}
BINARY = [
    *("addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "minsi", "maxui", "minui", "divsi", "divui", "remsi"),
    *("remui", "floordivsi", "ceildivsi", "shli", "shrsi", "shrui"),
]


@pytest.mark.parametrize("type_", list(EDGES))
@pytest.mark.parametrize("name", BINARY)
def test_integer_op(name: str, type_: str) -> None:
    pairs = [(a, b) for a in EDGES[type_] for b in EDGES[type_]]
    if "div" in name or "rem" in name:
        # The quotient of the least number by -1 has no place, and division by zero no value.
        pairs = [(a, b) for a, b in pairs if b != 0 and not (a == min(EDGES[type_]) and b == -1)]
    if name == "ceildivsi":
        pairs = [(a, b) for a, b in pairs if a != min(EDGES[type_])]
    if name.startswith("sh"):
        pairs = [(a, b) for a, b in pairs if 0 <= b < 8]
    x, y = (torch.tensor(v, dtype=DTYPES[type_]) for v in zip(*pairs, strict=True))
    text = body_of(f"arith.{name} %a, %b : {type_}", type_, type_)
    module = parse(text, create_context())
    expected = run_reference(module, [x.numpy(), y.numpy(), len(pairs)])[0]
    np.testing.assert_array_equal(evaluate(module, [x, y, len(pairs)])[0].numpy(), expected)


@pytest.mark.parametrize("predicate", ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"])
def test_integer_comparison(predicate: str) -> None:
    x, y = (torch.tensor(v) for v in zip(*[(a, b) for a in EDGES["i64"] for b in EDGES["i64"]], strict=True))
    module = parse(body_of(f"arith.cmpi {predicate}, %a, %b : i64", "i64", "i1"), create_context())
    expected = run_reference(module, [x.numpy(), y.numpy(), len(x)])[0]
    np.testing.assert_array_equal(evaluate(module, [x, y, len(x)])[0].numpy(), expected)


PREDICATES = ["oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno"]


@pytest.mark.parametrize("predicate", PREDICATES)
def test_float_comparison(predicate: str) -> None:
    numbers = [0.0, -0.0, 1.0, -2.5, float("inf"), float("-inf"), float("nan")]
    x, y = (torch.tensor(v) for v in zip(*[(a, b) for a in numbers for b in numbers], strict=True))
    module = parse(body_of(f"arith.cmpf {predicate}, %a, %b : f32", "f32", "i1"), create_context())
    expected = run_reference(module, [x.numpy(), y.numpy(), len(x)])[0]
    np.testing.assert_array_equal(evaluate(module, [x, y, len(x)])[0].numpy(), expected)


@pytest.mark.parametrize("name", ["maximumf", "minimumf", "maxnumf", "minnumf", "remf", "addf", "divf"])
def test_float_op(name: str) -> None:
    numbers = [0.0, 1.0, -2.5, 7.25, float("inf"), float("-inf"), float("nan")]
    x, y = (torch.tensor(v) for v in zip(*[(a, b) for a in numbers for b in numbers], strict=True))
    module = parse(body_of(f"arith.{name} %a, %b : f32", "f32", "f32"), create_context())
    expected = run_reference(module, [x.numpy(), y.numpy(), len(x)])[0]
    np.testing.assert_array_equal(evaluate(module, [x, y, len(x)])[0].numpy(), expected)


CASTS = [
    *("extsi i8 i64", "extui i8 i64", "trunci i64 i8", "trunci i64 i1", "sitofp i64 f64", "uitofp i8 f32"),
    *("uitofp i64 f64", "bitcast i32 f32", "fptosi f32 i32", "fptoui f32 i8", "extf f32 f64", "truncf f64 f32"),
]


@pytest.mark.parametrize("cast", CASTS)
def test_cast(cast: str) -> None:
    name, source, result = cast.split()
    numbers: list[Any] = EDGES[source] if source in EDGES else [0.0, 1.5, 2.5, 100.75]
    if cast == "fptosi f32 i32":
        numbers = [*numbers, -1.5, -100.75]
    x = torch.tensor(numbers, dtype=DTYPES[source])
    module = parse(body_of(f"arith.{name} %a : {source} to {result}", source, result), create_context())
    expected = run_reference(module, [x.numpy(), x.numpy(), len(x)])[0]
    np.testing.assert_array_equal(evaluate(module, [x, x, len(x)])[0].numpy(), expected)


PRODUCT = """
  func.func @main(%x: tensor<6x8xf32>, %y: tensor<8x5xf32>, %z: tensor<6x5xf32>) -> tensor<6x5xf32> {
    %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
        affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%x, %y : tensor<6x8xf32>, tensor<8x5xf32>) outs(%z : tensor<6x5xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %c, %p : f32
      linalg.yield %s : f32
    } -> tensor<6x5xf32>
    return %r : tensor<6x5xf32>
  }"""


def test_a_sum_of_products_starts_from_its_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, z = torch.randn(6, 8), torch.randn(8, 5), torch.randn(6, 5)
    torch.testing.assert_close(interpret(PRODUCT, x, y, z)[0], z + x @ y)
    monkeypatch.setattr(generic, "PART", 7)
    torch.testing.assert_close(interpret(PRODUCT, x, y, z)[0], z + x @ y)


def reduction(body: str, kinds: str = '"parallel", "reduction"') -> str:
    return f"""
      func.func @main(%x: tensor<4x9xf32>, %z: tensor<4xf32>) -> tensor<4xf32> {{
        %r = linalg.generic {{indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i)>],
            iterator_types = [{kinds}]}} ins(%x : tensor<4x9xf32>) outs(%z : tensor<4xf32>) {{
        ^bb0(%a: f32, %c: f32):
          {body}
          linalg.yield %s : f32
        }} -> tensor<4xf32>
        return %r : tensor<4xf32>
      }}"""


BODIES = {
    "sum": "%s = arith.addf %a, %c : f32",
    "product": "%s = arith.mulf %c, %a : f32",
    "maximum": "%s = arith.maximumf %c, %a : f32",
    "number": "%s = arith.maxnumf %c, %a : f32",
    "masked": "%o = arith.constant 0.0 : f32\n %t = arith.cmpf ogt, %a, %o : f32\n"
    "%m = arith.addf %c, %a : f32\n %s = arith.select %t, %m, %c : f32",
    "unmasked": "%o = arith.constant 0.0 : f32\n %t = arith.cmpf ogt, %a, %o : f32\n"
    "%m = arith.mulf %c, %a : f32\n %s = arith.select %t, %c, %m : f32",
    "in order": "%h = arith.constant 0.5 : f32\n %m = arith.mulf %c, %h : f32\n %s = arith.addf %m, %a : f32",
}


@pytest.mark.parametrize("part", [1 << 24, 5])
@pytest.mark.parametrize("body", list(BODIES))
def test_reduction(body: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generic, "PART", part)
    x, z = torch.randn(4, 9), torch.randn(4)
    x[1, 3] = float("nan")
    module = parse(reduction(BODIES[body]), create_context())
    expected = run_reference(module, [x.numpy(), z.numpy()])[0]
    for precision in ("declared", "float64"):
        found = evaluate(module, [x, z], precision=precision)[0]
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_strided_inputs_and_windows() -> None:
    text = """
      func.func @main(%x: tensor<3x11xf32>, %w: tensor<3xf32>) -> (tensor<3x5xf32>, tensor<3x5xf32>) {
        %e = arith.constant dense<0.0> : tensor<3x5xf32>
        %r = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j * 2 + k)>, affine_map<(i, j, k) -> (k)>,
            affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%x, %w : tensor<3x11xf32>, tensor<3xf32>) outs(%e : tensor<3x5xf32>) {
        ^bb0(%a: f32, %b: f32, %c: f32):
          %p = arith.mulf %a, %b : f32
          %s = arith.addf %c, %p : f32
          linalg.yield %s : f32
        } -> tensor<3x5xf32>
        %v = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (2 - d0, d1 * 2)>, shape = affine_map<() -> (3, 5)>}
          : (tensor<3x11xf32>) -> tensor<3x5xf32>
        return %r, %v : tensor<3x5xf32>, tensor<3x5xf32>
      }"""
    x, w = torch.randn(11, 6)[:, ::2].T, torch.randn(3)
    convolved, flipped = interpret(text, x, w)
    torch.testing.assert_close(convolved, torch.nn.functional.conv1d(x[:, None], w[None, None], stride=2)[:, 0])
    assert torch.equal(flipped, x.flip(0)[:, 0:10:2])


FUSION = """
  func.func @main(%x: tensor<?x8xbf16>, %n: index) -> tensor<?x8xbf16> {
    %r = "kiln.fusion"(%x, %n) ({
    ^bb0(%a: tensor<?x8xbf16>, %s: index):
      %e = "kiln.empty"(%s) {shape = affine_map<()[s0] -> (s0, 8)>} : (index) -> tensor<?x8xbf16>
      %g = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
          iterator_types = ["parallel", "parallel"]} ins(%a : tensor<?x8xbf16>) outs(%e : tensor<?x8xbf16>) {
      ^bb0(%v: bf16, %out: bf16):
        %c = arith.constant 1.0 : bf16
        %p = arith.addf %v, %c : bf16
        %q = arith.subf %p, %c : bf16
        linalg.yield %q : bf16
      } -> tensor<?x8xbf16>
      "kiln.yield"(%g) : (tensor<?x8xbf16>) -> ()
    }) {kind = "pointwise", name = "f"} : (tensor<?x8xbf16>, index) -> tensor<?x8xbf16>
    return %r : tensor<?x8xbf16>
  }"""


def test_precision_of_one_fusion() -> None:
    module = parse(FUSION, create_context())
    fusion = module.body.operations[0].regions[0].blocks[0].operations[0]
    x = (torch.rand(3, 8) / 100).bfloat16()
    for op in (module, fusion):
        rounded = evaluate(op, [x, 3])[0]
        assert rounded.dtype == torch.bfloat16 and torch.equal(rounded, x + 1 - 1) and not torch.equal(rounded, x)
        for name, dtype in (("float32", torch.float32), ("float64", torch.float64)):
            exact = evaluate(op, [x, 3], precision=name)[0]
            assert exact.dtype == dtype
            torch.testing.assert_close(exact, x.to(dtype), rtol=1e-5, atol=1e-6)


def test_a_module_that_only_the_call_holds() -> None:
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    x = torch.arange(4.0)
    assert evaluate(parse(text, create_context()), [x])[0].tolist() == x.tolist()


def test_unsigned_inputs_are_taken_bit_by_bit() -> None:
    text = body_of("arith.uitofp %a : i8 to f32", "i8", "f32")
    x = torch.tensor([0, 1, 127, 128, 255], dtype=torch.uint8)
    assert interpret(text, x, x, 5)[0].tolist() == [0.0, 1.0, 127.0, 128.0, 255.0]


def test_calls_of_aten() -> None:
    text = """
      func.func @main(%x: tensor<4xf32>) -> (tensor<?xi64>, index, tensor<4xf32>) {
        %0, %n = "kiln.aten"(%x) {op = "aten.nonzero.default", args = "[{\\22operand\\22: 0}]", kwargs = "{}",
          shapes = [affine_map<()[s0] -> (s0, 1)>, unit], strides = [unit, unit], pure = true}
          : (tensor<4xf32>) -> (tensor<?x1xi64>, index)
        %1 = "kiln.aten"(%x) {op = "aten._to_copy.default", args = "[{\\22operand\\22: 0}]",
          kwargs = "{\\22dtype\\22: {\\22dtype\\22: \\22float32\\22}}", shapes = [unit], strides = [unit], pure = true}
          : (tensor<4xf32>) -> tensor<4xf32>
        %2 = "kiln.view"(%0, %n) {map = affine_map<(d0)[s0] -> (d0, 0)>, shape = affine_map<()[s0] -> (s0)>}
          : (tensor<?x1xi64>, index) -> tensor<?xi64>
        return %2, %n, %1 : tensor<?xi64>, index, tensor<4xf32>
      }"""
    x = torch.tensor([0.0, 2.0, 0.0, 3.0])
    at, count, copied = interpret(text, x, precision="float64")
    assert at.tolist() == [1, 3] and count == 2 and copied.dtype == torch.float64


def test_errors() -> None:
    one = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    with pytest.raises(ValueError, match=r"input 0: expected tensor<4xf32>, found torch.float32 \(3,\)"):
        interpret(one, torch.zeros(3))
    with pytest.raises(ValueError, match="input 0: expected tensor<4xf32>, found torch.int64"):
        interpret(one, torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="expected 1 inputs, found 0"):
        interpret(one)
    with pytest.raises(KilnError, match="unknown precision 'float46'; did you mean 'float64'"):
        interpret(one, torch.zeros(4), precision="float46")
    with pytest.raises(UnsupportedError, match=r"tensor\.empty at .*is not supported: the interpreter has no such op"):
        interpret(
            "func.func @main() -> tensor<4xf32> {\n%e = tensor.empty() : tensor<4xf32>\nreturn %e : tensor<4xf32>\n}"
        )
    with pytest.raises(UnsupportedError, match=r"math\.ctpop at .*is not supported"):
        x = torch.zeros(4, dtype=torch.int32)
        interpret(body_of("math.ctpop %a : i32", "i32", "i32"), x, x, 4)


@pytest.mark.parametrize("index", ["(d0 + 1)", "(-d0 + 2)"])
def test_an_index_out_of_bounds(index: str) -> None:
    text = f"""
      func.func @main(%x: tensor<?xf32>, %n: index) -> tensor<4xf32> {{
        %v = "kiln.view"(%x, %n) {{map = affine_map<(d0)[s0] -> {index}>, shape = affine_map<()[s0] -> (4)>}}
          : (tensor<?xf32>, index) -> tensor<4xf32>
        return %v : tensor<4xf32>
      }}"""
    with pytest.raises(IndexError):
        interpret(text, torch.zeros(4), 4)
