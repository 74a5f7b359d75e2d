# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules: how each kernel is tiled and vectorised, as an attribute that people and tuners can read and change."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.schedules import PartsSchedule, Schedule, to_attribute
from kiln.dialects.schedules.cpu import GemmSchedule, PhasesSchedule
from kiln.lowering.considered import considering
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.emit import plan_kernel
from kiln.lowering.cpu.matmul import describe_schedule
from kiln.lowering.host.constants import constant_name
from kiln.lowering.host.kernels import fusion_key
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts
from kiln.passes.core import Pass, register_pass
from kiln.passes.fusion.kernels import fusions_of


@register_pass
@dataclass
class ScheduleCpu(Pass):
    """Choose a schedule for every matrix product, attention and convolution by the measured rules for the CPU.

    Sets the attribute `schedule` (docs/reference/schedules.md) on each `kiln.fusion` whose kind has one; pointwise and
    reduction kernels take their loops from the layouts alone. A schedule that is there already is kept. A note tells
    which kernel each product got.

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

    After (AVX-512)::

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

    name = "schedule-cpu"

    @override
    def run(self, module: ir.Module) -> None:
        known: dict[Hashable, Schedule | None] = {}
        for fusion in fusions_of(module):
            self._schedule(fusion, known)

    def _schedule(self, fusion: ir.OpView, known: dict[Hashable, Schedule | None]) -> None:
        """Equal kernels with constants at the same operands have equal schedules: layers repeat."""
        attributes, operands = fusion.operation.attributes, fusion.operation.operands
        if "schedule" in attributes or ir.StringAttr(attributes["kind"]).value in ("pointwise", "reduction"):
            return  # loops follow from the layouts
        key = fusion_key(fusion.operation), tuple(constant_name(operand) is not None for operand in operands)
        if key not in known:
            body = FusionBody(fusion)
            with considering(fusion.operation.location):
                known[key] = plan_kernel(body, fusion_layouts(fusion, body))
        schedule = known[key]
        if schedule is not None:
            attributes["schedule"] = to_attribute(schedule)
            self.count("scheduled")
            if ir.StringAttr(attributes["kind"]).value == "matmul":
                for product in _products(schedule):
                    self.note(fusion, describe_schedule(product, isa.target()))


def _products(schedule: Schedule) -> Iterator[GemmSchedule]:
    """The schedules of the products in that of a fusion."""
    for part in schedule.parts if isinstance(schedule, PartsSchedule) else [schedule]:
        if isinstance(part, PhasesSchedule):
            yield from part.products
        elif isinstance(part, GemmSchedule):
            yield part
