# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The `tt` dialect: docstring examples parse, verify and print again; verifiers reject what Triton would."""

import re

import pytest
from torch_mlir import ir

from kiln.dialects import create_context, kiln, tt


def _context() -> ir.Context:
    context = create_context()
    context.allow_unregistered_dialects = True  # "test.value" stands for any operand
    return context


@pytest.mark.parametrize("op", tt.OPS, ids=lambda op: op.OPERATION_NAME)
def test_docstring_example(op: type) -> None:
    examples = re.findall(r"```mlir\n(.*?)```", op.__doc__ or "", flags=re.DOTALL)
    assert examples, f"{op.OPERATION_NAME} has no example"
    with _context(), ir.Location.unknown():
        for text in examples:
            module = kiln.parse(text)
            assert module.operation.verify()
            assert f'"{op.OPERATION_NAME}"(' in kiln.to_text(module)
            assert kiln.to_text(kiln.parse(kiln.to_text(module))) == kiln.to_text(module)


REJECTED = [
    ('%0 = "tt.make_range"() {start = 0 : i32, end = 100 : i32} : () -> tensor<100xi32>', "powers of two"),
    ('%0 = "tt.make_range"() {start = 0 : i32, end = 64 : i32} : () -> tensor<32xi32>', "result sizes"),
    ('%0 = "tt.splat"(%f) : (f32) -> tensor<8xf64>', "result element type: expected f32"),
    ('%0 = "tt.expand_dims"(%x) {axis = 2 : i32} : (tensor<8xf32>) -> tensor<8x1xf32>', "attribute axis"),
    ('%0 = "tt.broadcast"(%x) : (tensor<8xf32>) -> tensor<16xf32>', "with the ones grown"),
    ('%0 = "tt.reshape"(%x) : (tensor<8xf32>) -> tensor<2x2xf32>', "result elements"),
    (
        '%0 = "tt.load"(%p) {operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<8x!tt.ptr<f32>>) -> tensor<8xf64>',
        "re",
    ),
    ('"tt.store"(%p, %x, %f) : (tensor<8x!tt.ptr<f32>>, tensor<8xf32>, f32) -> ()', "mask shape"),
    (
        '%0 = "tt.reduce"(%x) ({\n^bb0(%a: f32, %b: f32):\n"tt.reduce.return"(%a) : (f32) -> ()\n}) {axis = 0 : i32}'
        " : (tensor<8xf32>) -> tensor<8xf32>",
        "result 0 type: expected f32",
    ),
    (
        '%0 = "tt.atomic_rmw"(%p, %x) {atomic_rmw_op = 4 : i32, sem = 1 : i32, scope = 1 : i32}'
        " : (tensor<8x!tt.ptr<f32>>, tensor<8xf32>) -> tensor<8xf32>",
        "atomic_rmw_op",
    ),
]


@pytest.mark.parametrize(("text", "message"), REJECTED, ids=[re.findall(r"tt\.\w+", t)[0] for t, _ in REJECTED])
def test_verifier_rejects(text: str, message: str) -> None:
    values = '%f, %x, %p = "test.value"() : () -> (f32, tensor<8xf32>, tensor<8x!tt.ptr<f32>>)\n'
    with _context(), ir.Location.unknown(), pytest.raises(ir.MLIRError, match=re.escape(message)):
        kiln.parse(values + text)


def test_a_dead_load_goes_and_a_store_stays() -> None:
    text = """
    "tt.func"() ({
    ^bb0(%p: !tt.ptr<f32>, %x: f32):
      %0 = "tt.load"(%p) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!tt.ptr<f32>) -> f32
      "tt.store"(%p, %x) : (!tt.ptr<f32>, f32) -> ()
      "tt.return"() : () -> ()
    }) {sym_name = "k", sym_visibility = "public", function_type = (!tt.ptr<f32>, f32) -> ()} : () -> ()
    """
    from torch_mlir.passmanager import PassManager

    with _context() as context, ir.Location.unknown():
        module = kiln.parse(text)
        PassManager.parse("builtin.module(canonicalize)", context).run(module.operation)
        printed = kiln.to_text(module)
    assert "tt.load" not in printed
    assert "tt.store" in printed
