# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules of GPU kernels as attributes that people and tuners can read and change."""

import re
from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.schedules import Schedule, to_attribute
from kiln.dialects.shapes import SymbolicShapes
from kiln.errors import UnsupportedError
from kiln.lowering.considered import considering
from kiln.lowering.gpu.dot.machine import machine
from kiln.lowering.gpu.positions import narrow_positions
from kiln.lowering.host.kernels import fusion_key
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts
from kiln.passes.core import Pass, register_pass
from kiln.passes.fusion.kernels import fusions_of

__all__ = ["ScheduleGpu"]

_FLOAT8 = re.compile("f8E4M3FN|f8E5M2")


@register_pass
@dataclass
class ScheduleGpu(Pass):
    """Choose a tile and a number of warps for every kernel by rules that were measured on an H200.

    Sets the attribute `schedule` on each `kiln.fusion` (docs/reference/schedules.md). A schedule that is there already
    is kept.

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

    After::

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
          }) {kind = "pointwise", name = "neg",
              schedule = {kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [128]}]}}
              : (tensor<4096xf32>) -> tensor<4096xf32>
          return %0 : tensor<4096xf32>
        }
    """

    name = "schedule-gpu"

    arch: str = "sm_90"
    """What the kernels are for: products are tiled by its multiprocessors and shared memory."""
    tf32: bool = False
    """Tensor cores may round f32 operands of products, as torch.backends.cuda.matmul.allow_tf32 says."""
    descriptors: bool = False
    """Products may load their operands through tensor maps, which the launcher encodes."""

    @override
    def run(self, module: ir.Module) -> None:
        self.count("with narrow positions", sum(narrow_positions(f) for f in module.body if _has_body(f)))
        known: dict[tuple[str, tuple[int | None, ...]], Schedule | UnsupportedError | None] = {}
        sizes: dict[ir.Operation, SymbolicShapes] = {}
        for fusion in fusions_of(module):
            attributes = fusion.operation.attributes
            if not machine(self.arch).float8 and _FLOAT8.search(str(fusion.operation)):
                attributes["software_float8"] = ir.UnitAttr.get()
                self.note(fusion.operation, f"{self.arch} has no conversions of 8-bit floats: integer arithmetic")
            if "schedule" in attributes:
                continue
            function = fusion.operation.parent
            assert function is not None, "fusions are in functions"
            outer = sizes.get(function) or sizes.setdefault(function, SymbolicShapes(function))
            symbols = [v for v in fusion.operation.operands if isinstance(v.type, ir.IndexType)]
            key = (fusion_key(fusion.operation), tuple(outer.hint(outer.expr(s)) for s in symbols))
            if key not in known:
                with considering(fusion.operation.location):
                    known[key] = self._schedule(fusion, outer)
            schedule = known[key]
            if isinstance(schedule, UnsupportedError):
                self.note(fusion.operation, f"no schedule: {schedule.reason}")
                self.count("without a schedule")
            elif schedule is not None:
                attributes["schedule"] = to_attribute(schedule)
                self.count("scheduled")

    def _schedule(self, fusion: ir.OpView, outer: SymbolicShapes) -> Schedule | UnsupportedError | None:
        """That of a kernel, and so of all equal ones of about these sizes; or why there is none."""
        from kiln.lowering.gpu.dot.fusions import DotOptions
        from kiln.lowering.gpu.emit import plan_kernel

        body = FusionBody(fusion, outer=outer)
        options = DotOptions(self.arch, self.tf32, self.descriptors)
        try:
            return plan_kernel(body, fusion_layouts(fusion, body), options)
        except UnsupportedError as error:
            return error


def _has_body(function: ir.OpView) -> bool:
    return function.operation.name == "func.func" and bool(len(function.operation.regions[0].blocks))
