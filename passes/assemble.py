# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Machine code of kernels."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import KernelOp
from kiln.lowering.cpu.codegen import start_kernel
from kiln.lowering.host.objects import described, set_code
from kiln.passes.core import register_pass
from kiln.passes.kernel_pass import KernelPass

__all__ = ["Assemble"]


@register_pass
@dataclass
class Assemble(KernelPass):
    """Compile each kernel to machine code, in other threads: by LLVM for this CPU, or by Triton for a GPU.

    The code is not in the IR: the attribute `object` names it, and `plan-host` waits for it. A kernel that the compiler
    refuses is marked there: `unsupported`, with the reason, and `rejected`.

    Before::

        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%x: tensor<1xf32>):
            %0 = "kiln.fusion"(%x) ({
            ^bb0(%a: tensor<1xf32>):
              "kiln.yield"(%a) : (tensor<1xf32>) -> ()
            }) {kind = "pointwise", name = "nothing"} : (tensor<1xf32>) -> tensor<1xf32>
            "kiln.yield"(%0) : (tensor<1xf32>) -> ()
          }, {
            builtin.module {
              llvm.func @nothing_entry(%block: !llvm.ptr) {
                llvm.return
              }
            }
          }) {pointers = 2, sym_name = "nothing", symbols = 0} : () -> ()
        }

    After::

        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%arg0: tensor<1xf32>):
            %0 = "kiln.fusion"(%arg0) ({
            ^bb0(%arg1: tensor<1xf32>):
              "kiln.yield"(%arg1) : (tensor<1xf32>) -> ()
            }) {kind = "pointwise", name = "nothing"} : (tensor<1xf32>) -> tensor<1xf32>
            "kiln.yield"(%0) : (tensor<1xf32>) -> ()
          }, {
            builtin.module {
              llvm.func @nothing_entry(%arg0: !llvm.ptr) {
                llvm.return
              }
            }
          }) {object = "nothing", pointers = 2 : i64, sym_name = "nothing", symbols = 0 : i64} : () -> ()
        }
    """

    name = "assemble"

    arch: str = ""
    """The GPU that Triton compiles for, as "sm_90"; nothing: LLVM compiles for the CPU."""
    level: int | None = None
    """LLVM's optimisation level, for all kernels; by default 1 for those that are tiled by hand, and 2 for others."""

    @override
    def run_on(self, kernel: KernelOp) -> None:
        if self.arch:
            from kiln.lowering.host.gpu_kernels import start_gpu_kernel

            set_code(kernel, start_gpu_kernel(kernel.fusion, kernel.code, kernel.symbol, self.arch))
            return
        keep = None
        if "kept" in kernel.operation.attributes:
            from kiln.lowering.host.recent_kernels import recent_kernels

            keep = recent_kernels()
        kind = ir.StringAttr(kernel.fusion.operation.attributes["kind"]).value
        found = described(kernel)
        set_code(kernel, start_kernel(kernel.code, found, kind=kind, opt_level=self.level, keep=keep))
