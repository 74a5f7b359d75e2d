# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Numerics of emitted kernels: fusions given as text, run on random tensors, compared with float64."""

import pytest
import torch
from kernel_harness import run_fusion

ADD = """
func.func @main(%x: tensor<{s}xf32>, %y: tensor<{t}xf32>) -> tensor<{s}xf32> {{
  %0 = "kiln.fusion"(%x, %y) ({{
  ^bb0(%a: tensor<{s}xf32>, %b: tensor<{t}xf32>):
    %e = "kiln.empty"() {{shape = affine_map<() -> ({c})>}} : () -> tensor<{s}xf32>
    %r = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ({ymap})>,
        affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
        ins(%a, %b : tensor<{s}xf32>, tensor<{t}xf32>) outs(%e : tensor<{s}xf32>) {{
    ^bb0(%p: f32, %q: f32, %o: f32):
      %1 = arith.mulf %p, %q : f32
      %2 = arith.addf %1, %p : f32
      linalg.yield %2 : f32
    }} -> tensor<{s}xf32>
    "kiln.yield"(%r) : (tensor<{s}xf32>) -> ()
  }}) {{kind = "pointwise", name = "k"}} : (tensor<{s}xf32>, tensor<{t}xf32>) -> tensor<{s}xf32>
  return %0 : tensor<{s}xf32>
}}
"""


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-6) -> None:
    scale = expected.double().abs().max().clamp(min=1e-30)
    assert (actual.double() - expected.double()).abs().max() / scale < tolerance


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("shape", "other", "ymap"), [
    ((64, 128), (64, 128), "d0, d1"),
    ((5, 7), (5, 7), "d0, d1"),
    ((33, 65), (65,), "d1"),
    ((33, 65), (33, 1), "d0, 0"),
    ((16, 24), (24, 16), "d1, d0"),
    ((1, 1), (1, 1), "d0, d1"),
])  # fmt: skip
def test_pointwise(shape, other, ymap, threads):
    x, y = torch.rand(shape), torch.rand(other)  # positive: a difference may have no correct digit
    out = torch.full(shape, float("nan"))
    text = ADD.format(s="x".join(map(str, shape)), t="x".join(map(str, other)), c=", ".join(map(str, shape)), ymap=ymap)
    run_fusion(text, [x, y], [out], threads=threads)
    y2 = y.T if ymap == "d1, d0" else y
    close(out, x.double() * y2.double() + x.double())


ROWS = """
#row = affine_map<(d0, d1) -> (d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<{m}x{n}xf32>) -> (tensor<{m}xf32>, tensor<{m}xf32>) {{
  %0:2 = "kiln.fusion"(%x) ({{
  ^bb0(%a: tensor<{m}x{n}xf32>):
    %zero = arith.constant 0.0 : f32
    %low = arith.constant 0xFF800000 : f32
    %e = "kiln.empty"() {{shape = affine_map<() -> ({m})>}} : () -> tensor<{m}xf32>
    %zeros = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}}
      outs(%e : tensor<{m}xf32>) {{
    ^bb0(%o: f32):
      linalg.yield %zero : f32
    }} -> tensor<{m}xf32>
    %lows = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}}
      outs(%e : tensor<{m}xf32>) {{
    ^bb0(%o: f32):
      linalg.yield %low : f32
    }} -> tensor<{m}xf32>
    %s = linalg.generic {{indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%a : tensor<{m}x{n}xf32>) outs(%zeros : tensor<{m}xf32>) {{
    ^bb0(%p: f32, %o: f32):
      %q = arith.mulf %p, %p : f32
      %r = arith.addf %o, %q : f32
      linalg.yield %r : f32
    }} -> tensor<{m}xf32>
    %t = linalg.generic {{indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%a : tensor<{m}x{n}xf32>) outs(%lows : tensor<{m}xf32>) {{
    ^bb0(%p: f32, %o: f32):
      %r = arith.maximumf %o, %p : f32
      linalg.yield %r : f32
    }} -> tensor<{m}xf32>
    "kiln.yield"(%s, %t) : (tensor<{m}xf32>, tensor<{m}xf32>) -> ()
  }}) {{kind = "reduction", name = "k"}} : (tensor<{m}x{n}xf32>) -> (tensor<{m}xf32>, tensor<{m}xf32>)
  return %0#0, %0#1 : tensor<{m}xf32>, tensor<{m}xf32>
}}
"""


@pytest.mark.parametrize("n", [1, 3, 16, 17, 33, 100, 127, 128, 129, 255, 1000, 2049, 5000])
def test_row_reductions_of_any_size(n):
    """Whole steps of several vectors, single vectors and a masked one; two reductions share the loops."""
    x = torch.randn(5, n) - 3  # the maximum is negative: lanes that are masked off may not count as zero
    sums, most = torch.full((5,), float("nan")), torch.full((5,), float("nan"))
    run_fusion(ROWS.format(m=5, n=n), [x], [sums, most])
    close(sums, (x.double() ** 2).sum(1))
    assert torch.equal(most, x.amax(1))


SOFTMAX = """
func.func @main(%x: tensor<{s}xf32>) -> tensor<{s}xf32> {{
  %0 = "kiln.fusion"(%x) ({{
  ^bb0(%a: tensor<{s}xf32>):
    %ninf = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %e = "kiln.empty"() {{shape = affine_map<() -> ({c})>}} : () -> tensor<{s}xf32>
    %f = "kiln.empty"() {{shape = affine_map<() -> ({r})>}} : () -> tensor<{r}xf32>
    %mi = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}}
      outs(%f : tensor<{r}xf32>) {{
    ^bb0(%o: f32):
      linalg.yield %ninf : f32
    }} -> tensor<{r}xf32>
    %si = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}}
      outs(%f : tensor<{r}xf32>) {{
    ^bb0(%o: f32):
      linalg.yield %zero : f32
    }} -> tensor<{r}xf32>
    %m = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ({k})>],
      iterator_types = [{it}]}} ins(%a : tensor<{s}xf32>) outs(%mi : tensor<{r}xf32>) {{
    ^bb0(%p: f32, %o: f32):
      %1 = arith.maximumf %p, %o : f32
      linalg.yield %1 : f32
    }} -> tensor<{r}xf32>
    %x1 = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ({k})>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
      ins(%a, %m : tensor<{s}xf32>, tensor<{r}xf32>) outs(%e : tensor<{s}xf32>) {{
    ^bb0(%p: f32, %q: f32, %o: f32):
      %1 = arith.subf %p, %q : f32
      %2 = math.exp %1 : f32
      linalg.yield %2 : f32
    }} -> tensor<{s}xf32>
    %t = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ({k})>],
      iterator_types = [{it}]}} ins(%x1 : tensor<{s}xf32>) outs(%si : tensor<{r}xf32>) {{
    ^bb0(%p: f32, %o: f32):
      %1 = arith.addf %p, %o : f32
      linalg.yield %1 : f32
    }} -> tensor<{r}xf32>
    %r = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ({k})>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
      ins(%x1, %t : tensor<{s}xf32>, tensor<{r}xf32>) outs(%e : tensor<{s}xf32>) {{
    ^bb0(%p: f32, %q: f32, %o: f32):
      %1 = arith.divf %p, %q : f32
      linalg.yield %1 : f32
    }} -> tensor<{s}xf32>
    "kiln.yield"(%r) : (tensor<{s}xf32>) -> ()
  }}) {{kind = "reduction", name = "softmax"}} : (tensor<{s}xf32>) -> tensor<{s}xf32>
  return %0 : tensor<{s}xf32>
}}
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", [(8, 128), (7, 50), (130, 9), (3, 1000)])
def test_softmax(shape, dim, threads):
    x = torch.randn(shape) * 4
    out = torch.full(shape, float("nan"))
    kinds = ['"parallel"', '"parallel"']
    kinds[dim] = '"reduction"'
    text = SOFTMAX.format(s="x".join(map(str, shape)), c=", ".join(map(str, shape)), r=shape[1 - dim],
                          k=f"d{1 - dim}", it=", ".join(kinds))  # fmt: skip
    shown = run_fusion(text, [x], [out], threads=threads)
    close(out, torch.softmax(x.double(), dim), 2e-6)
    if dim == 1:
        assert shown.count("math.exp") <= 2, "the exponential is kept in scratch, not computed again"


DYNAMIC_SUM = """
func.func @main(%x: tensor<?x?xf32>, %s0: index, %s1: index) -> (tensor<?xf32>, tensor<?x?xf32>) {
  %0:2 = "kiln.fusion"(%x, %s0, %s1) ({
  ^bb0(%a: tensor<?x?xf32>, %m: index, %n: index):
    %zero = arith.constant 0.0 : f32
    %f = "kiln.empty"(%m) {shape = affine_map<()[s0] -> (s0)>} : (index) -> tensor<?xf32>
    %e = "kiln.empty"(%m, %n) {shape = affine_map<()[s0, s1] -> (s0, s1)>} : (index, index) -> tensor<?x?xf32>
    %i = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%f : tensor<?xf32>) {
    ^bb0(%o: f32):
      linalg.yield %zero : f32
    } -> tensor<?xf32>
    %t = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]} ins(%a : tensor<?x?xf32>) outs(%i : tensor<?xf32>) {
    ^bb0(%p: f32, %o: f32):
      %1 = arith.addf %p, %o : f32
      linalg.yield %1 : f32
    } -> tensor<?xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%a, %t : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %1 = arith.subf %p, %q : f32
      linalg.yield %1 : f32
    } -> tensor<?x?xf32>
    "kiln.yield"(%t, %r) : (tensor<?xf32>, tensor<?x?xf32>) -> ()
  }) {kind = "reduction", name = "k", shapes = [affine_map<()[s0, s1] -> (s0, s1)>]}
    : (tensor<?x?xf32>, index, index) -> (tensor<?xf32>, tensor<?x?xf32>)
  return %0#0, %0#1 : tensor<?xf32>, tensor<?x?xf32>
}
"""


@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (64, 64), (5, 5000), (0, 4), (4, 0)])
def test_dynamic_rows(shape):
    x = torch.randn(shape)
    total, out = torch.full((shape[0],), float("nan")), torch.full(shape, float("nan"))
    run_fusion(DYNAMIC_SUM, [x], [total, out], symbols=shape, threads=2)
    if shape[0]:
        close(total, x.double().sum(1), 1e-5)
    if out.numel():
        close(out, x.double() - x.double().sum(1, keepdim=True), 1e-5)
