# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What Triton itself takes, in each version's spelling. Machine code of kernels is in machine_code/."""

import dataclasses

import pytest
from torch_mlir import ir

from kiln.dialects import create_context, kiln, tt
from kiln.errors import CompileError, InvalidIRError
from kiln.lowering.gpu import builder
from kiln.lowering.gpu.ttir import Spelling, installed_spelling, to_ttir
from kiln.passes import run_pipeline

pytest.importorskip("triton")

PIPELINE = (
    "expand-named-ops{keep=scan},compose-views,canonicalize,cse,fuse,assign-layouts,schedule-gpu,emit-gpu-kernels"
)

ROWS = """
  func.func @main(%x: tensor<64x1000xbf16>) -> tensor<64x1000xbf16> {
    %0 = "kiln.softmax"(%x) {dim = 1 : i64, log = false} : (tensor<64x1000xbf16>) -> tensor<64x1000xbf16>
    return %0 : tensor<64x1000xbf16>
  }"""


def _kernel() -> str:
    """Triton IR of a kernel."""
    with create_context() as context, ir.Location.unknown():
        module = kiln.parse(ROWS, context)
        run_pipeline(module, PIPELINE)
        (function,) = [op for op in module.body if isinstance(op, tt.FuncOp)]
        return to_ttir(function)


def test_an_error_of_triton_is_a_compile_error() -> None:
    from kiln.lowering.gpu.compile import compile_ttir

    with pytest.raises(CompileError, match="Triton cannot compile for sm_90"):
        compile_ttir('"builtin.module"() ({ "tt.nonsense"() : () -> () }) : () -> ()', "sm_90")


def test_what_would_end_the_process_is_an_error() -> None:
    from kiln.lowering.gpu.compile import compile_ttir

    with (
        create_context(),
        ir.Location.unknown(),
        pytest.raises(InvalidIRError, match="expected a tt.func, found built"),
    ):
        to_ttir(ir.Module.create())
    for text in ("module {}", f"module {{\n{_kernel()}\n}}"):
        with pytest.raises(CompileError, match=r"for sm_90: the Triton IR holds (no tt\.func|modules in a module)"):
            compile_ttir(text, "sm_90")


def test_target_names() -> None:
    from kiln.lowering.gpu.compile import gpu_target

    assert (gpu_target("sm_100a").arch, gpu_target("gfx942").warp_size) == (100, 64)
    with pytest.raises(ValueError, match="expected sm_NN or gfxNNN"):
        gpu_target("h100")


def _hinted() -> tt.FuncOp:
    """A kernel with what Triton's versions spell differently."""
    module = ir.Module.create()

    def body(b: builder.Builder, x: ir.Value, desc: ir.Value) -> None:
        value = b.load(x, cache="cg", evict="normal")
        block = b.descriptor_load(desc, [0, 0])
        b.store(x, b.addf(value, b.reduce(b.reduce([block], 1, b.addf), 0, b.addf)[0]), evict="last")

    with ir.InsertionPoint(module.body):
        block = ir.RankedTensorType.get([16, 32], ir.F32Type.get())
        func = builder.kernel("k", [tt.ptr(ir.F32Type.get()), tt.tensordesc(block)], body)
    func.module = module
    return func


def test_spellings() -> None:
    with create_context(), ir.Location.unknown():
        func = _hinted()
        old = to_ttir(func, Spelling(nested_descriptors=True, cache_policy=False))
        new = to_ttir(func, Spelling(nested_descriptors=False, cache_policy=True))
    assert "!tt.tensordesc<tensor<16x32xf32>>" in old and "cache = 3 : i32" in old and "evict = 3 : i32" in old
    assert "!tt.tensordesc<16x32xf32>" in new and "evict = 3" not in new
    assert "cachePolicy = #tt.cache_policy<cache_modifier = cg, eviction_policy = evict_normal>" in new
    assert "cachePolicy = #tt.cache_policy<cache_modifier = none, eviction_policy = evict_last>" in new


def test_the_installed_spelling_parses() -> None:
    from kiln.lowering.gpu.compile import compile_ttir

    with create_context(), ir.Location.unknown():
        func = _hinted()
        assert dataclasses.is_dataclass(installed_spelling())
        text = to_ttir(func)
    assert "ld.global.cg" in compile_ttir(text, "sm_90", {"num_warps": 4}).assembly


def test_text_is_the_same_each_time() -> None:
    assert _kernel() == _kernel()


def test_negations_are_products(context):
    """MLIR's canonicalizer makes arith.negf of -0 - x; Triton 3.6 has none on blocks."""
    module = kiln.parse(
        """
        "tt.func"() ({
        ^bb0(%x: f32):
          %b = "tt.splat"(%x) : (f32) -> tensor<64xf32>
          %n = arith.negf %b : tensor<64xf32>
          %s = "tt.reduce"(%n) ({
          ^bb0(%p: f32, %q: f32):
            %m = arith.negf %p : f32
            "tt.reduce.return"(%m) : (f32) -> ()
          }) {axis = 0 : i32} : (tensor<64xf32>) -> f32
          "tt.return"() : () -> ()
        }) {sym_name = "k", sym_visibility = "public", function_type = (f32) -> ()} : () -> ()
        """
    )
    text = to_ttir(list(module.body)[0])
    assert "negf" not in text
    assert text.count('"arith.mulf"') == 2


def test_what_triton_refuses_is_asked_quietly(capfd):
    from kiln.lowering.gpu.ttir import _parser

    assert not _parser()('"builtin.module"() ({ "tt.func"() : () -> i32 })')
    assert _parser()("module {}")
    assert capfd.readouterr().err == ""
