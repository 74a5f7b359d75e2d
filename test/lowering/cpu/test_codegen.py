# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Vector-stage kernels through code generation and the ABI, called by hand."""

import ctypes
import re

import pytest
import torch
from torch_mlir import ir

from kiln.errors import CompileError, InvalidIRError
from kiln.lowering.cpu import codegen
from kiln.lowering.cpu.codegen import compile_kernel
from kiln.runtime.loader import load
from kiln.runtime.threads import symbol_address

TAIL = "%s0: index, %scratch: memref<?xi8>, %tid: index, %nt: index"

DOUBLE = f"""
func.func @double(%x: memref<?xf32>, %y: memref<?xf32>, {TAIL}) {{
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %rest = arith.remui %s0, %c8 : index
  %full = arith.subi %s0, %rest : index
  scf.for %i = %c0 to %full step %c8 {{
    %v = vector.load %x[%i] : memref<?xf32>, vector<8xf32>
    %w = arith.addf %v, %v : vector<8xf32>
    vector.store %w, %y[%i] : memref<?xf32>, vector<8xf32>
  }}
  %mask = vector.create_mask %rest : vector<8xi1>
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %v = vector.maskedload %x[%full], %mask, %zero : memref<?xf32>, vector<8xi1>, vector<8xf32> into vector<8xf32>
  %w = arith.addf %v, %v : vector<8xf32>
  vector.maskedstore %y[%full], %mask, %w : memref<?xf32>, vector<8xi1>, vector<8xf32>
  return
}}"""

ROW_SUM = f"""
func.func @row_sum(%x: memref<?xf32>, %y: memref<?xf32>, {TAIL}) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %zero = arith.constant dense<0.0> : vector<8xf32>
  scf.for %i = %c0 to %s0 step %c1 {{
    %row = arith.muli %i, %c16 : index
    %c8 = arith.constant 8 : index
    %sum = scf.for %j = %c0 to %c16 step %c8 iter_args(%acc = %zero) -> vector<8xf32> {{
      %at = arith.addi %row, %j : index
      %v = vector.load %x[%at] : memref<?xf32>, vector<8xf32>
      %next = arith.addf %acc, %v : vector<8xf32>
      scf.yield %next : vector<8xf32>
    }}
    %total = vector.reduction <add>, %sum : vector<8xf32> into f32
    memref.store %total, %y[%i] : memref<?xf32>
  }}
  return
}}"""

LESS = f"""
func.func @less(%x: memref<?xf32>, %y: memref<?xi8>, {TAIL}) {{
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant dense<0.0> : vector<8xf32>
  scf.for %i = %c0 to %s0 step %c8 {{
    %v = vector.load %x[%i] : memref<?xf32>, vector<8xf32>
    %b = arith.cmpf olt, %v, %zero : vector<8xf32>
    %w = arith.extui %b : vector<8xi1> to vector<8xi8>
    vector.store %w, %y[%i] : memref<?xi8>, vector<8xi8>
  }}
  return
}}"""

# Writes tid, nt and s0 through the thread's own scratch.
WHO = f"""
func.func @who(%y: memref<?xi64>, {TAIL})
    attributes {{kiln.scratch_bytes = affine_map<()[s0] -> (s0 * 8)>, kiln.work = affine_map<()[s0] -> (s0)>}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %mine = memref.view %scratch[%c0][%c1] : memref<?xi8> to memref<?xi64>
  %t = arith.index_cast %tid : index to i64
  memref.store %t, %mine[%c0] : memref<?xi64>
  %back = memref.load %mine[%c0] : memref<?xi64>
  %c100 = arith.constant 100 : i64
  %n = arith.index_cast %nt : index to i64
  %a = arith.muli %n, %c100 : i64
  %b = arith.addi %a, %back : i64
  memref.store %b, %y[%tid] : memref<?xi64>
  return
}}"""


@pytest.fixture
def plain():
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        yield context


def call(text, name, *words, threads=0, kind=""):
    """Compiles and runs a kernel on tensors and ints; `threads` > 0 launches through GOMP_parallel."""
    kernel = compile_kernel(ir.Module.parse(text), name, kind=kind)
    code = load([kernel.object_bytes], [kernel.entry])
    scratch = torch.zeros(4096, dtype=torch.uint8)
    values = [w.data_ptr() if isinstance(w, torch.Tensor) else w for w in words]
    block = (ctypes.c_int64 * kernel_words(kernel))(*values, scratch.data_ptr(), 1024, int(threads > 0))
    if threads:
        parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
        parallel(symbol_address("GOMP_parallel"))(code[kernel.entry], ctypes.addressof(block), threads, 0)
    else:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code[kernel.entry])(ctypes.addressof(block))
    return kernel


def kernel_words(kernel):
    return kernel.pointers + kernel.symbols + 3


@pytest.mark.parametrize("n", [0, 1, 7, 8, 29])
def test_pointwise_with_tail(plain, n):
    x, y = torch.randn(40), torch.full((40,), 9.0)
    call(DOUBLE, "double", x, y, n)
    assert torch.equal(y[:n], 2 * x[:n]) and (y[n:] == 9).all()


def test_reduction(plain):
    x, y = torch.randn(5, 16), torch.empty(5)
    call(ROW_SUM, "row_sum", x, y, 5)
    assert torch.allclose(y, x.sum(1), atol=1e-5)


def test_booleans_are_bytes(plain):
    x, y = torch.randn(24), torch.zeros(24, dtype=torch.bool)
    call(LESS, "less", x, y, 24)
    assert torch.equal(y, x < 0)


def test_direct_call_is_thread_0_of_1(plain):
    y = torch.zeros(4, dtype=torch.int64)
    kernel = call(WHO, "who", y, 1)
    assert y.tolist() == [100, 0, 0, 0]
    assert (kernel.pointers, kernel.symbols) == (1, 1)
    assert kernel.scratch_bytes == "affine_map<()[s0] -> (s0 * 8)>"
    assert kernel.work == "affine_map<()[s0] -> (s0)>"


def test_parallel_call(plain):
    y = torch.zeros(4, dtype=torch.int64)
    call(WHO, "who", y, 1, threads=3)
    assert y.tolist() == [300, 301, 302, 0]


def test_input_module_is_unchanged(plain):
    module = ir.Module.parse(WHO)
    before = str(module)
    compile_kernel(module, "who")
    assert str(module) == before


def test_object_is_deterministic(plain):
    module = ir.Module.parse(DOUBLE)
    assert compile_kernel(module, "double").digest == compile_kernel(module, "double").digest


VECTORS = """
func.func @vectors(%x: memref<?xf32>, %y: memref<?xf32>, SIGNATURE) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %two = arith.constant 2.0 : f32
  %zero = arith.constant dense<0.0> : vector<4xf32>
  %mask = arith.constant dense<[true, true, true, false]> : vector<4xi1>
  %twos = vector.broadcast %two : f32 to vector<4xf32>
  %a = vector.load %x[%c0] : memref<?xf32>, vector<4xf32>
  %b = vector.maskedload %x[%c2], %mask, %zero : memref<?xf32>, vector<4xi1>, vector<4xf32> into vector<4xf32>
  %c = vector.fma %a, %twos, %b : vector<4xf32>
  %d = vector.shuffle %c, %a [3, 2, 1, 4] : vector<4xf32>, vector<4xf32>
  %bits = vector.bitcast %d : vector<4xf32> to vector<4xi32>
  %e = vector.bitcast %bits : vector<4xi32> to vector<4xf32>
  %first = vector.extract %e[0] : f32 from vector<4xf32>
  LAST
  %s = vector.broadcast %last : f32 to vector<4xf32>
  %f = arith.addf %e, %s : vector<4xf32>
  vector.maskedstore %y[%c0], %mask, %f : memref<?xf32>, vector<4xi1>, vector<4xf32>
  return
}""".replace("SIGNATURE", TAIL)


@pytest.mark.parametrize(
    ("last", "more", "expected"),
    [
        ("%last = arith.addf %first, %first : f32", [], lambda d: d[0] * 2),
        ("%last = vector.reduction <add>, %e : vector<4xf32> into f32", ["convert-vector-to-llvm"], lambda d: d.sum()),
    ],
)
def test_vector_ops_with_and_without_patterns_of_their_own(plain, last, more, expected):
    """The pipeline has `convert-vector-to-llvm` for those that need it; numbers are right with and without."""
    text = VECTORS.replace("LAST", last)
    ops = codegen._op_names(ir.Module.parse(text))
    assert re.findall("convert-vector-to-llvm", codegen.lowering_pipeline(ops)) == more
    x, y = torch.randn(8), torch.full((4,), 7.0)
    call(text, "vectors", x, y, 4)
    c = x[:4] * 2 + torch.cat([x[2:5], torch.zeros(1)])
    d = torch.stack([c[3], c[2], c[1], x[0]])
    torch.testing.assert_close(y[:3], (d + expected(d))[:3])
    assert y[3] == 7


def test_missing_kernel(plain):
    with pytest.raises(InvalidIRError, match="no func.func @other"):
        compile_kernel(ir.Module.parse(DOUBLE), "other")


def test_op_without_lowering(plain):
    text = f"func.func @k(%x: memref<?xf32>, {TAIL}) {{\n  %t = tensor.empty() : tensor<4xf32>\n  return\n}}"
    with pytest.raises(CompileError, match=r"tensor\.empty at .* in @k has no lowering"):
        compile_kernel(ir.Module.parse(text), "k")
