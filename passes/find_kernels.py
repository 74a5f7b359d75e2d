# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels that an earlier graph of the process has compiled."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import KernelOp
from kiln.lowering.host.objects import set_code
from kiln.passes.core import register_pass
from kiln.passes.kernel_pass import KernelPass

__all__ = ["FindKernels"]


@register_pass
@dataclass
class FindKernels(KernelPass):
    """Reuse machine code that an earlier graph of this process compiled for equal kernels.

    A name says all that the code depends on but for the CPU, for which there are kernels of their own. Code of other
    kernels is kept for later graphs (`kept`). What has code is left alone by the passes behind.

    Before::

        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%x: tensor<4xf32>):
            %0 = "kiln.fusion"(%x) ({
            ^bb0(%a: tensor<4xf32>):
              "kiln.yield"(%a) : (tensor<4xf32>) -> ()
            }) {kind = "pointwise", name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
            "kiln.yield"(%0) : (tensor<4xf32>) -> ()
          }, {
          }) {sym_name = "copy_0123456789"} : () -> ()
        }

    After::

        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%arg0: tensor<4xf32>):
            %0 = "kiln.fusion"(%arg0) ({
            ^bb0(%arg1: tensor<4xf32>):
              "kiln.yield"(%arg1) : (tensor<4xf32>) -> ()
            }) {kind = "pointwise", name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
            "kiln.yield"(%0) : (tensor<4xf32>) -> ()
          }, {
          }) {kept, sym_name = "copy_0123456789"} : () -> ()
        }
    """

    name = "find-kernels"

    @override
    def run_on(self, kernel: KernelOp) -> None:
        from kiln.lowering.host.recent_kernels import recent_kernels

        found = recent_kernels().get(kernel.symbol)  # one look-up: other threads may drop the kernel at any time
        if found is None:
            kernel.operation.attributes["kept"] = ir.UnitAttr.get()
        else:
            set_code(kernel, found)
            self.count("found")
