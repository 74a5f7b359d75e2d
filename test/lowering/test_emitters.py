# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Emitters register themselves for an op and a target; pipelines keep the ops that have one."""

import pytest
from torch_mlir import ir

from kiln.dialects import create_context, kiln
from kiln.errors import KilnError, UnsupportedError
from kiln.lowering import emitters
from kiln.lowering.cpu.emit import emit_kernel as emit_cpu
from kiln.lowering.emitters import emits, kernel_kinds
from kiln.lowering.gpu.emit import emit_kernel as emit_gpu
from kiln.passes.fusion.kernels import fusions_of
from kiln.passes.pipelines import cpu_pipeline, gpu_pipeline


def test_ops_with_kernels_have_an_emitter_somewhere() -> None:
    kept = {entry.op for entry in kiln.opdefs() if entry.has_kernel}
    assert {kind.op for target in ("cpu", "gpu") for kind in kernel_kinds(target).values()} == kept


@pytest.mark.parametrize(("target", "pipeline"), [("cpu", cpu_pipeline), ("gpu", gpu_pipeline)])
def test_pipelines_keep_what_has_an_emitter(target, pipeline, monkeypatch) -> None:
    def keeps() -> str:
        return next(s.pass_.spec() for s in pipeline() if s.name == "expand-named-ops")

    given = "" if target == "cpu" else " target=cuda"
    assert keeps() == f"expand-named-ops{{keep={','.join(kernel_kinds(target))}{given}}}"
    assert "softmax" not in keeps() and "matmul" in keeps()
    monkeypatch.delitem(emitters._KINDS[target], "matmul")
    assert "matmul" not in keeps()


@pytest.mark.parametrize(
    ("op", "target", "message"),
    [
        (kiln.SoftmaxOp, "cpu", "SoftmaxOp: an emitter needs a row in the table of ops with has_kernel=True"),
        (kiln.MatmulOp, "cpu", "kiln.matmul has two emitters for 'cpu'"),
        (kiln.ScatterNdOp, "cpus", "no target 'cpus'"),
    ],
)
def test_mistakes_are_named(op: type, target: str, message: str) -> None:
    kernel_kinds("cpu")
    with pytest.raises(KilnError, match=message):
        emits(op, target=target)


PRODUCT = """func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %0 = "kiln.fusion"(%x, %w) ({
  ^bb0(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>):
    %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false}
      : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    "kiln.yield"(%r) : (tensor<4x16xf32>) -> ()
  }) {kind = "matmul", name = "f", schedule = {SCHEDULE}} : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}"""
COPY = """func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<64xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (64)>} : () -> tensor<64xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%a : tensor<64xf32>) outs(%e : tensor<64xf32>) {
    ^bb0(%i: f32, %o: f32):
      %n = arith.negf %i : f32
      linalg.yield %n : f32
    } -> tensor<64xf32>
    "kiln.yield"(%r) : (tensor<64xf32>) -> ()
  }) {kind = "pointwise", name = "f", schedule = {SCHEDULE}} : (tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}"""
LOOPS = 'kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [64]}'
STREAM = 'kernel = "cpu.gemm.stream", width = 8 : i64, nc = 64 : i64, depth = 8 : i64'


@pytest.mark.parametrize(
    ("text", "emit", "schedule", "message"),
    [
        (PRODUCT, emit_cpu, f"{LOOPS}]", "no kernel for a schedule gpu.loops"),
        (PRODUCT, emit_gpu, STREAM, "no kernel for a schedule cpu.gemm.stream"),
        (COPY, emit_cpu, f"{LOOPS}]", "no kernel for a schedule gpu.loops"),
        (COPY, emit_gpu, STREAM, "no kernel for a schedule cpu.gemm.stream"),
        (COPY, emit_gpu, f"{LOOPS}, {{num_warps = 1 : i64, tile = [64]}}]", "a schedule of 2 nests for 1"),
        (COPY, emit_gpu, LOOPS.replace("[64]", "[64, 1]") + "]", "a schedule with a tile of 2 dims for 1"),
    ],
)
def test_the_schedule_of_another_kernel_is_refused(text, emit, schedule, message) -> None:
    """The verifier takes it, since it is one; the emitter cannot."""
    with create_context(tt=True), ir.Location.unknown():
        module = kiln.parse(text.replace("SCHEDULE", schedule))
        assert module.operation.verify()
        (fusion,) = fusions_of(module)
        with pytest.raises(UnsupportedError, match=message):
            emit(fusion, "kernel")
