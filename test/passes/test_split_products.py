# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products in parts of their sums: what the two kernels compute, on a CPU."""

import pytest
import torch
from torch_mlir import ir

from kiln.dialects import create_context, kiln, tt
from kiln.lowering.gpu.emit import emit_kernel
from kiln.lowering.ttcpu.run import run_kernel
from kiln.passes import run_pipeline
from kiln.passes.fusion.kernels import fusions_of

LINEAR = """
func.func @main(%x: tensor<{m}x{k}x{t}>, %w: tensor<{w}x{t}>, %b: tensor<{n}x{t}>) -> tensor<{m}x{n}x{t}> {{
  %0 = "kiln.matmul"(%x, %w) {{transpose_lhs = false, transpose_rhs = {turned}}}
    : (tensor<{m}x{k}x{t}>, tensor<{w}x{t}>) -> tensor<{m}x{n}x{t}>
  %e = "kiln.empty"() {{shape = affine_map<() -> ({m}, {n})>}} : () -> tensor<{m}x{n}x{t}>
  %1 = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
      ins(%0, %b : tensor<{m}x{n}x{t}>, tensor<{n}x{t}>) outs(%e : tensor<{m}x{n}x{t}>) {{
  ^bb0(%p: {t}, %q: {t}, %o: {t}):
    %s = arith.addf %p, %q : {t}
    linalg.yield %s : {t}
  }} -> tensor<{m}x{n}x{t}>
  return %1 : tensor<{m}x{n}x{t}>
}}
"""


@pytest.mark.parametrize("descriptors", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("dtype", "name", "tolerance"), [(torch.bfloat16, "bf16", 3e-3), (torch.float16, "f16", 4e-4)])
def test_parts_add_up(dtype, name, tolerance, turned, descriptors):
    """Sums of 768 terms in 6 parts, rounded once; the bias is added where they are added up."""
    m, n, k, parts = 70, 48, 768, 6
    x, w, b = (
        torch.randn(m, k).to(dtype),
        torch.randn(*((n, k) if turned else (k, n))).to(dtype),
        torch.randn(n).to(dtype),
    )
    text = LINEAR.format(m=m, n=n, k=k, t=name, w=f"{n}x{k}" if turned else f"{k}x{n}", turned=str(turned).lower())
    partial, out = torch.full((parts, m, n), 7.0), torch.full((m, n), 7.0, dtype=dtype)
    with create_context(), ir.Location.unknown():
        module = kiln.parse(text)
        maps = str(descriptors).lower()
        front = f"split-products{{parts={parts}}},canonicalize,cse,fuse{{row-blocks=false}}"
        run_pipeline(module, f"{front},assign-layouts,schedule-gpu{{descriptors={maps}}}")
        product, addition = fusions_of(module)
        for fusion, tensors in ((product, [x, w, partial]), (addition, [partial, b, out])):
            kernel = emit_kernel(fusion, "kernel")
            run_kernel(next(op for op in kernel.body if isinstance(op, tt.FuncOp)).operation, tensors)
    sums = x.double() @ (w.double().T if turned else w.double())
    assert (partial.double().sum(0) - sums).norm() / sums.norm() < 1e-5
    expected = sums.to(dtype).double() + b.double()
    assert (out.double() - expected).norm() / expected.norm() < tolerance


def test_sums_without_equal_parts_stay():
    text = LINEAR.format(m=8, n=8, k=100, t="bf16", w="8x100", turned="true")
    with create_context(), ir.Location.unknown():
        module = kiln.parse(text)
        run_pipeline(module, "split-products{parts=3}")
        assert str(module).count("kiln.matmul") == 1 and "f32" not in str(module)
