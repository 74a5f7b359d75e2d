# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Packed 16-bit integer ops of PTX become an op for each half."""

import pytest
from torch_mlir import ir

import kiln.lowering.gpu.compile as compile_module
from kiln.dialects import create_context, tt
from kiln.dialects.kiln import parse
from kiln.lowering.gpu.compile import compile_ttir, triton_problem
from kiln.lowering.gpu.packed_integers import unpacked
from kiln.lowering.gpu.ttir import to_ttir
from kiln.passes import run_pipeline

# A dilated convolution of an image 18 wide: its loads begin at `x mod 18 - 4`.
_CONVOLUTION = """
func.func @main(%x: tensor<1x8x4x18xbf16> {kiln.strides = affine_map<() -> (576, 1, 144, 8)>},
    %w: tensor<64x8x5x5xbf16> {kiln.strides = affine_map<() -> (200, 1, 40, 8)>})
    -> (tensor<1x64x4x18xbf16> {kiln.strides = affine_map<() -> (4608, 1, 1152, 64)>}) {
  %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 2, 2>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
    padding = array<i64: 4, 4>, stride = array<i64: 1, 1>, transposed = false}
    : (tensor<1x8x4x18xbf16>, tensor<64x8x5x5xbf16>) -> tensor<1x64x4x18xbf16>
  return %0 : tensor<1x64x4x18xbf16>
}
"""


def test_each_half_has_an_op_of_its_own() -> None:
    text = "\tadd.s16x2 \t%r58, %r56, %r57;\n\tmin.u16x2 %r1, %r2, 252;\n\tadd.bf16x2 %r3, %r4, %r5;\n"
    found = unpacked(text)
    assert unpacked(found) == found
    assert found.count("add.s16 ") == 2 and found.count("min.u16 ") == 2
    assert "mov.b32 %r58, {kiln_a0, kiln_a1};" in found and "mov.b32 kiln_x1, 252;" in found
    assert "\tadd.bf16x2 %r3, %r4, %r5;\n" in found


@pytest.mark.skipif(triton_problem() is not None, reason="needs Triton")
def test_kernels_are_assembled_without_packed_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    with create_context() as context, ir.Location.unknown():
        module = parse(_CONVOLUTION, context)
        run_pipeline(module, "fuse,assign-layouts,reuse-buffers,schedule-gpu,emit-gpu-kernels")
        functions = [op for op in module.body if isinstance(op, tt.FuncOp)]
        (text,) = [to_ttir(f) for f in functions]
        options = {"num_warps": functions[0].attributes["num_warps"].value}
    made = compile_ttir(text, "sm_90", options)
    assert made.binary is not None and unpacked(made.ptx) == made.ptx
    monkeypatch.setattr(compile_module, "unpacked", lambda ptx: ptx)
    packed = compile_ttir(text, "sm_90", options).ptx
    if unpacked(packed) == packed:
        pytest.skip("this Triton's LLVM packs none of them")
    assert "kiln_a0" in made.ptx
