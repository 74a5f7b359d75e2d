# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Marks on loops, for LLVM."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import KernelOp
from kiln.lowering.cpu.codegen import mark_loops
from kiln.passes.core import register_pass
from kiln.passes.kernel_pass import KernelPass

__all__ = ["OptimizeLoops"]


@register_pass
@dataclass
class OptimizeLoops(KernelPass):
    """Mark the loops of kernels for the CPU that LLVM must not unroll: those of kernels that are tiled by hand.

    Loops of products, convolutions and attention are as long, and unrolled as often, as their schedules say. LLVM
    would unroll them once more, which costs time and does not make them faster.

    Before::

        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%x: tensor<4xf32>):
            %0 = "kiln.fusion"(%x) ({
            ^bb0(%a: tensor<4xf32>):
              "kiln.yield"(%a) : (tensor<4xf32>) -> ()
            }) {kind = "matmul", name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
            "kiln.yield"(%0) : (tensor<4xf32>) -> ()
          }, {
            builtin.module {
              func.func @k(%from: index, %to: index) {
                %one = arith.constant 1 : index
                scf.for %i = %from to %to step %one {
                }
                return
              }
            }
          }) {sym_name = "k"} : () -> ()
        }

    After::

        #loop_unroll = #llvm.loop_unroll<disable = true>
        #loop_annotation = #llvm.loop_annotation<unroll = #loop_unroll>
        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%arg0: tensor<4xf32>):
            %0 = "kiln.fusion"(%arg0) ({
            ^bb0(%arg1: tensor<4xf32>):
              "kiln.yield"(%arg1) : (tensor<4xf32>) -> ()
            }) {kind = "matmul", name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
            "kiln.yield"(%0) : (tensor<4xf32>) -> ()
          }, {
            builtin.module {
              func.func @k(%arg0: index, %arg1: index) {
                %c1 = arith.constant 1 : index
                scf.for %arg2 = %arg0 to %arg1 step %c1 {
                } {loop_annotation = #loop_annotation}
                return
              }
            }
          }) {sym_name = "k"} : () -> ()
        }
    """

    name = "optimize-loops"

    @override
    def run_on(self, kernel: KernelOp) -> None:
        mark_loops(kernel.code, ir.StringAttr(kernel.fusion.operation.attributes["kind"]).value)
