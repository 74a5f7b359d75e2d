# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pass ``autotune-cpu``."""

from dataclasses import dataclass

from typing_extensions import override

from kiln.lowering.cpu.tune.tuner import CpuTuner
from kiln.lowering.tune.measure import interleaved, processor_time
from kiln.lowering.tune.tuner import Tuner
from kiln.passes.core import register_pass
from kiln.passes.tuning import AutotunePass
from kiln.runtime.threads import max_threads

__all__ = ["AutotuneCpu"]


@register_pass
@dataclass
class AutotuneCpu(AutotunePass):
    """Replace the schedules of products, attention and convolutions by faster ones, where running them finds any.

    A few candidates around each schedule (tiles, packing, the library's blocks or Kiln's own, how threads share) are
    compiled and timed on random operands with the real sizes and strides. One that beats the schedule of
    ``schedule-cpu`` by more than 3 % replaces it, and is remembered for equal kernels of later graphs; in
    ``torch.compile`` with ``mode="max-autotune"`` also of later processes. Sizes known at run time are not tuned.

    The remarks tell what was tried. Kernels with the most work come first, until ``graph-seconds`` are over.

    The example has no time to try anything: the schedule is that of ``schedule-cpu``. Otherwise ``depth`` and ``nc`` of
    the result, or its kernel, may be others.

    Before::

        func.func @main(%x: tensor<1x64xf32>, %w: tensor<64x32xf32>) -> tensor<1x32xf32> {
          %0 = "kiln.fusion"(%x, %w) ({
          ^bb0(%a: tensor<1x64xf32>, %b: tensor<64x32xf32>):
            %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false}
              : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
            "kiln.yield"(%r) : (tensor<1x32xf32>) -> ()
          }) {kind = "matmul", name = "linear"} : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
          return %0 : tensor<1x32xf32>
        }

    After ``schedule-cpu,autotune-cpu{graph-seconds=-1}`` (AVX-512)::

        func.func @main(%arg0: tensor<1x64xf32>, %arg1: tensor<64x32xf32>) -> tensor<1x32xf32> {
          %0 = "kiln.fusion"(%arg0, %arg1) ({
          ^bb0(%arg2: tensor<1x64xf32>, %arg3: tensor<64x32xf32>):
            %1 = "kiln.matmul"(%arg2, %arg3) {transpose_lhs = false, transpose_rhs = false}
                : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
            "kiln.yield"(%1) : (tensor<1x32xf32>) -> ()
          }) {kind = "matmul", name = "linear", schedule =
              {kc = 8 : i64, kernel = "cpu.gemm.blocked", mc = 1 : i64, mr = 1 : i64, nc = 4096 : i64, nv = 2 : i64,
               pack_lhs = false, pack_rhs = false, width = 16 : i64}}
              : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
          return %0 : tensor<1x32xf32>
        }
    """

    name = "autotune-cpu"
    seconds: float = 0.5  # how long the candidates of one kernel are timed
    graph_seconds: float = 60.0  # from when on, compilation included, the other kernels keep their schedules

    @override
    def tuner(self) -> Tuner:
        return CpuTuner(self.store, self.seconds, interleaved if max_threads() > 1 else processor_time)
