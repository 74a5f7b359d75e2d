# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Other schedules for kernels that do not compile."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import KernelOp, LaunchOp
from kiln.dialects.schedules import from_attribute, to_attribute
from kiln.lowering.gpu.smaller import more_warps, smaller_schedule
from kiln.lowering.host.kernels import fusion_key, kernel_name, kernels_of
from kiln.lowering.host.objects import unmark_unsupported
from kiln.passes.core import Pass, register_pass

__all__ = ["ShrinkSchedules"]


@register_pass
@dataclass
class ShrinkSchedules(Pass):
    """Give each kernel that Triton refused (`rejected`) another schedule, and take the mark away.

    One on which Triton failed (`defect`) gets more warps, of at most 16; others, and those that tensor cores compute, a
    smaller schedule. The passes from `emit-kernels` on then make code of it again. A kernel whose schedule is the
    smallest one keeps its mark, and becomes a call.

    Before::

        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%x: tensor<512xf32>):
            %0 = "kiln.fusion"(%x) ({
            ^bb0(%a: tensor<512xf32>):
              "kiln.yield"(%a) : (tensor<512xf32>) -> ()
            }) {kind = "pointwise", name = "copy",
                schedule = {kernel = "gpu.loops", nests = [{num_warps = 16 : i64, tile = [512]}]}}
              : (tensor<512xf32>) -> tensor<512xf32>
            "kiln.yield"(%0) : (tensor<512xf32>) -> ()
          }, {
          }) {defect, rejected, sym_name = "copy_0", unsupported = "out of resources", unsupported_op = "kiln.fusion"}
            : () -> ()
          func.func @main(%x: tensor<512xf32>) -> tensor<512xf32> {
            %0 = "kiln.launch"(%x) {kernel = "copy_0", name = "copy"} : (tensor<512xf32>) -> tensor<512xf32>
            return %0 : tensor<512xf32>
          }
        }

    After::

        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%arg0: tensor<512xf32>):
            %0 = "kiln.fusion"(%arg0) ({
            ^bb0(%arg1: tensor<512xf32>):
              "kiln.yield"(%arg1) : (tensor<512xf32>) -> ()
            }) {kind = "pointwise", name = "copy", schedule =
                {kernel = "gpu.loops", nests = [{num_warps = 16 : i64, tile = [256]}]}}
                : (tensor<512xf32>) -> tensor<512xf32>
            "kiln.yield"(%0) : (tensor<512xf32>) -> ()
          }, {
          }) {sym_name = "copy_HASH"} : () -> ()
          func.func @main(%arg0: tensor<512xf32>) -> tensor<512xf32> {
            %0 = "kiln.launch"(%arg0) {kernel = "copy_HASH", name = "copy"} : (tensor<512xf32>) -> tensor<512xf32>
            return %0 : tensor<512xf32>
          }
        }
    """

    name = "shrink-schedules"

    @override
    def run(self, module: ir.Module) -> None:
        renamed: dict[str, str] = {}
        for kernel in kernels_of(module):
            if "rejected" in kernel.operation.attributes:
                self._shrink(kernel, renamed)
        for function in [op for op in module.body if op.operation.name == "func.func"]:
            for op in function.operation.regions[0].blocks[0]:
                if isinstance(op, LaunchOp):
                    name = ir.StringAttr(op.operation.attributes["kernel"]).value
                    op.operation.attributes["kernel"] = ir.StringAttr.get(renamed.get(name, name))

    def _shrink(self, kernel: KernelOp, renamed: dict[str, str]) -> None:
        fusion = kernel.fusion.operation
        if "schedule" not in fusion.attributes:
            return
        schedule = from_attribute(fusion.attributes["schedule"])
        wider = more_warps(schedule) if "defect" in kernel.operation.attributes else None
        chosen = wider or smaller_schedule(schedule)
        if chosen is None:
            return
        reason = ir.StringAttr(kernel.operation.attributes["unsupported"]).value.partition("\n")[0]
        self.note(fusion, f"{'more warps' if wider else 'a smaller schedule'}: {reason}")
        self.count("wider" if wider else "smaller")
        fusion.attributes["schedule"] = to_attribute(chosen)
        unmark_unsupported(kernel)
        before, after = kernel.symbol, kernel_name(fusion, fusion_key(fusion))
        kernel.operation.attributes["sym_name"] = ir.StringAttr.get(after)
        renamed[before] = after
