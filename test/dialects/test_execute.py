# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The reference executor: data movement, fusions, symbols, element types, scalar math."""

import math

import numpy as np
import pytest

from kiln.dialects import create_context, parse
from kiln.dialects.execute import run_reference
from kiln.errors import UnsupportedError


def execute(text: str, *inputs: np.ndarray | int) -> list[np.ndarray]:
    context = create_context()
    return run_reference(parse(text, context), inputs)


def test_the_torch_dialect_is_an_error() -> None:
    text = """func.func @main(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
      return %x : !torch.vtensor<[4],f32> }"""
    with pytest.raises(UnsupportedError, match="the torch dialect has no reference; run passes up to convert-torch-to"):
        execute(text, np.zeros(4, np.float32))


def test_view_pad_cat_with_symbols() -> None:
    text = """
      func.func @main(%x: tensor<4x?xf32>, %n: index) 
          -> (tensor<?x4xf32>, tensor<?xf32>, tensor<7x?xf32>, tensor<6x?xf32>) {
        %v = arith.constant -1.0 : f32
        %u = "kiln.view"(%x, %n) {map = affine_map<(d0, d1)[s0] -> (d1, d0)>, shape = affine_map<()[s0] -> (s0, 4)>}
          : (tensor<4x?xf32>, index) -> tensor<?x4xf32>
        %flat = "kiln.view"(%x, %n) {map = affine_map<(d0)[s0] -> (d0 floordiv s0, d0 mod s0)>,
          shape = affine_map<()[s0] -> (s0 * 4)>} : (tensor<4x?xf32>, index) -> tensor<?xf32>
        %p = "kiln.pad"(%x, %v, %n) {low = affine_map<()[s0] -> (1, -1)>, high = affine_map<()[s0] -> (2, s0)>,
          shape = affine_map<()[s0] -> (7, s0 * 2 - 1)>} : (tensor<4x?xf32>, f32, index) -> tensor<7x?xf32>
        %a = "kiln.view"(%x, %n) {map = affine_map<(d0, d1)[s0] -> (d0, d1)>, shape = affine_map<()[s0] -> (2, s0)>}
          : (tensor<4x?xf32>, index) -> tensor<2x?xf32>
        %c = "kiln.cat"(%a, %x, %n) {dim = 0, shape = affine_map<()[s0] -> (6, s0)>}
          : (tensor<2x?xf32>, tensor<4x?xf32>, index) -> tensor<6x?xf32>
        return %u, %flat, %p, %c : tensor<?x4xf32>, tensor<?xf32>, tensor<7x?xf32>, tensor<6x?xf32>
      }"""
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    turned, flat, padded, joined = execute(text, x, 5)
    np.testing.assert_array_equal(turned, x.T)
    np.testing.assert_array_equal(flat, x.ravel())
    np.testing.assert_array_equal(padded, np.pad(x[:, 1:], ((1, 2), (0, 5)), constant_values=-1))
    np.testing.assert_array_equal(joined, np.concatenate([x[:2], x]))


def test_fusions_are_inlined_and_their_named_ops_expanded() -> None:
    text = """
      func.func @main(%x: tensor<?x?xf32> {kiln.shape = affine_map<()[s0, s1] -> (s0, s1)>},
                      %n: index {kiln.symbol = "s0"}, %m: index {kiln.symbol = "s1"}) -> (tensor<?x?xf32>, tensor<?xf32>)
          attributes {kiln.symbols = ["s0", "s1"]} {
        %r:2 = "kiln.fusion"(%x, %n, %m) ({
        ^bb0(%a: tensor<?x?xf32>, %s: index, %t: index):
          %y = "kiln.softmax"(%a) {dim = 1, log = false} : (tensor<?x?xf32>) -> tensor<?x?xf32>
          %f = "kiln.view"(%y, %s, %t) {map = affine_map<(d0)[s0, s1] -> (d0, s1 - 1)>,
            shape = affine_map<()[s0, s1] -> (s0)>} : (tensor<?x?xf32>, index, index) -> tensor<?xf32>
          "kiln.yield"(%y, %f) : (tensor<?x?xf32>, tensor<?xf32>) -> ()
        }) {kind = "reduction", name = "softmax"} : (tensor<?x?xf32>, index, index) -> (tensor<?x?xf32>, tensor<?xf32>)
        return %r#0, %r#1 : tensor<?x?xf32>, tensor<?xf32>
      }"""
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    y, last = execute(text, x, 3, 5)
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_allclose(last, expected[:, -1], rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("exp", np.exp),
        ("exp2", np.exp2),
        ("expm1", np.expm1),
        ("log", np.log),
        ("log2", np.log2),
        ("log10", np.log10),
        ("log1p", np.log1p),
        ("sin", np.sin),
        ("cos", np.cos),
        ("tan", np.tan),
        ("sinh", np.sinh),
        ("cosh", np.cosh),
        ("tanh", np.tanh),
        ("asin", np.arcsin),
        ("acos", np.arccos),
        ("atan", np.arctan),
        ("asinh", np.arcsinh),
        ("acosh", np.arccosh),
        ("atanh", np.arctanh),
        ("sqrt", np.sqrt),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("cbrt", np.cbrt),
        ("absf", np.abs),
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("roundeven", np.round),
        ("erf", np.vectorize(math.erf)),
        ("erfc", np.vectorize(math.erfc)),
    ],
)
@pytest.mark.parametrize(("element", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_scalar_math(op: str, function, element: str, dtype: type) -> None:
    text = f"""
      func.func @main(%x: tensor<6x{element}>) -> tensor<6x{element}> {{
        %e = "kiln.empty"() {{shape = affine_map<() -> (6)>}} : () -> tensor<6x{element}>
        %r = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
            iterator_types = ["parallel"]}} ins(%x : tensor<6x{element}>) outs(%e : tensor<6x{element}>) {{
        ^bb0(%a: {element}, %o: {element}):
          %y = math.{op} %a : {element}
          linalg.yield %y : {element}
        }} -> tensor<6x{element}>
        return %r : tensor<6x{element}>
      }}"""
    x = np.array([-0.9, -0.3, 0.0, 0.5, 1.0, 2.5], dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(execute(text, x)[0], function(x.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("element", ["i1", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"])
def test_element_types_pass_through(element: str) -> None:
    text = f"""
      func.func @main(%x: tensor<2x3x{element}>) -> tensor<3x2x{element}> {{
        %t = "kiln.view"(%x) {{map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (3, 2)>}}
          : (tensor<2x3x{element}>) -> tensor<3x2x{element}>
        return %t : tensor<3x2x{element}>
      }}"""
    kinds = {"i1": np.bool_, "f16": np.float16, "bf16": np.float32, "f32": np.float32, "f64": np.float64}
    x = np.arange(6).reshape(2, 3).astype(kinds.get(element) or np.dtype(element.replace("i", "int")))
    np.testing.assert_array_equal(execute(text, x)[0], x.T)


def test_scalars_and_empty_tensors() -> None:
    text = """
      func.func @main(%x: tensor<f32>, %y: tensor<0x3xf32>) -> (tensor<f32>, tensor<0x3xf32>) {
        %z = "kiln.softmax"(%y) {dim = 1, log = false} : (tensor<0x3xf32>) -> tensor<0x3xf32>
        return %x, %z : tensor<f32>, tensor<0x3xf32>
      }"""
    x, y = execute(text, np.array(2.0, np.float32), np.zeros((0, 3), np.float32))
    assert x == 2.0 and x.shape == () and y.shape == (0, 3)


def test_errors() -> None:
    aten = """
      func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
        %0 = "kiln.aten"(%x) {op = "aten.abs.default", args = "[{\\22operand\\22: 0}]", kwargs = "{}", shapes = [unit],
          strides = [unit], pure = true} : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }"""
    with pytest.raises(UnsupportedError, match=r"kiln\.aten"):
        execute(aten, np.zeros(4, np.float32))
    identity = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    with pytest.raises(ValueError, match=r"input 0: expected tensor<4xf32>, found float32 \(3,\)"):
        execute(identity, np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="expected 1 inputs, found 0"):
        execute(identity)
