# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pass ``autotune-gpu``."""

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from kiln.lowering.tune.tuner import Tuner
from kiln.passes.core import register_pass
from kiln.passes.tuning import AutotunePass

__all__ = ["AutotuneGpu"]


@register_pass
@dataclass
class AutotuneGpu(AutotunePass):
    """Replace the schedules of GPU kernels by faster ones, where running them finds any.

    A few candidates around each schedule (tiles, warps, stages, operands through tensor maps or pointers) are compiled
    by Triton in threads and run on random operands with the real sizes and strides: those that compute what the
    schedule of ``schedule-gpu`` does are timed as CUDA graphs, in turn, on operands that are not in the cache. One that
    beats it by more than 2 % replaces it, and is remembered for equal kernels of later graphs; in ``torch.compile``
    with ``mode="max-autotune"`` also of later processes on a GPU of the same name. Sizes known at run time are not
    tuned.

    The remarks tell what was tried, and why a candidate was none. Kernels with the most work come first, until
    ``graph-seconds`` are over.

    The example has no time to try anything: the schedule is that of ``schedule-gpu``. Otherwise another tile or number
    of warps may stand there.

    Before::

        func.func @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {
          %0 = "kiln.fusion"(%x) ({
          ^bb0(%a: tensor<4096xf32>):
            %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf32>
            %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                iterator_types = ["parallel"]} ins(%a : tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
            ^bb0(%i: f32, %o: f32):
              %s = arith.negf %i : f32
              linalg.yield %s : f32
            } -> tensor<4096xf32>
            "kiln.yield"(%r) : (tensor<4096xf32>) -> ()
          }) {kind = "pointwise", name = "neg"} : (tensor<4096xf32>) -> tensor<4096xf32>
          return %0 : tensor<4096xf32>
        }

    After ``schedule-gpu,autotune-gpu{graph-seconds=-1}``::

        #map = affine_map<() -> (4096)>
        #map1 = affine_map<(d0) -> (d0)>
        func.func @main(%arg0: tensor<4096xf32>) -> tensor<4096xf32> {
          %0 = "kiln.fusion"(%arg0) ({
          ^bb0(%arg1: tensor<4096xf32>):
            %1 = "kiln.empty"() {shape = #map} : () -> tensor<4096xf32>
            %2 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel"]}
                ins(%arg1 : tensor<4096xf32>) outs(%1 : tensor<4096xf32>) {
            ^bb0(%in: f32, %out: f32):
              %3 = arith.negf %in : f32
              linalg.yield %3 : f32
            } -> tensor<4096xf32>
            "kiln.yield"(%2) : (tensor<4096xf32>) -> ()
          }) {kind = "pointwise", name = "neg", schedule =
              {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [128]}]}}
              : (tensor<4096xf32>) -> tensor<4096xf32>
          return %0 : tensor<4096xf32>
        }
    """

    name = "autotune-gpu"
    ahead: ClassVar[int] = 4

    seconds: float = 0.5
    """How long the candidates of one kernel are timed."""
    graph_seconds: float = 60.0
    """From when on, compilation included, the other kernels keep their schedules."""
    device: str = "cuda:0"
    """The GPU that runs them."""
    arch: str = "sm_90"
    """What it is, as ``schedule-gpu`` was told."""
    tf32: bool = False
    """As ``schedule-gpu`` was told."""
    descriptors: bool = False
    """As ``schedule-gpu`` was told."""

    @override
    def tuner(self) -> Tuner:
        from kiln.lowering.gpu.dot.fusions import DotOptions
        from kiln.lowering.gpu.tune.tuner import GpuTuner

        return GpuTuner(self.store, DotOptions(self.arch, self.tf32, self.descriptors), self.device, self.seconds)
