# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules: how each kernel is tiled and vectorised, as an attribute that people and tuners can read and change."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.kiln import FusionOp
from kiln.lowering.cpu.emit import KERNEL_KINDS
from kiln.lowering.cpu.schedule_attr import to_attribute
from kiln.lowering.cpu.tile.body import FusionBody
from kiln.lowering.cpu.tile.kernel import fusion_layouts
from kiln.passes.core import Pass, register_pass


@register_pass
@dataclass
class ScheduleCpu(Pass):
    """Choose a schedule for every matrix product and attention by the measured rules for the host.

    Sets the dictionary `schedule` on each `kiln.fusion` whose kind has one; pointwise and reduction kernels take
    their loops from the layouts alone. A schedule that is there already is kept.

    Before: `%0 = "kiln.fusion"(%x, %w) ({ ... "kiln.matmul" ... }) {kind = "matmul", name = "linear"}`

    After: `... {kind = "matmul", name = "linear", schedule = {kernel = "dot", kc = 1024 : i64, mr = 4 : i64, ...}}`
    """

    name = "schedule-cpu"

    def run(self, module: ir.Module) -> None:
        for function in module.body.operations:
            for region in function.regions:
                for block in region.blocks:
                    for op in block.operations:
                        if isinstance(op, FusionOp):
                            self._schedule(op)

    def _schedule(self, fusion: ir.OpView) -> None:
        attributes = fusion.operation.attributes
        kind = KERNEL_KINDS.get(ir.StringAttr(attributes["kind"]).value)
        if kind is None or kind.plan is None or "schedule" in attributes:
            return
        body = FusionBody(fusion)
        attributes["schedule"] = to_attribute(kind.plan(body, fusion_layouts(fusion, body)))
        self.count("scheduled")
