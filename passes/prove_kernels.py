# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Proofs about kernels for GPUs, for checked execution."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from torch_mlir import ir

from kiln.dialects.kiln import KernelOp
from kiln.passes.core import register_pass
from kiln.passes.kernel_pass import KernelPass

if TYPE_CHECKING:
    from kiln.lowering.gpu.validate.proofs import Proofs

__all__ = ["ProveKernels"]


@register_pass
@dataclass
class ProveKernels(KernelPass):
    """Prove that each kernel for a GPU stays in its buffers, and that its programs write apart (docs/validation.md).

    The kernel's attribute `proved` counts the properties. This is what checked execution runs behind `emit-kernels`;
    `validate-gpu-kernels` is for single kernels.

    Before::

        #map = affine_map<() -> (1, 1, 1)>
        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%arg0: tensor<1xf32>):
            %0 = "kiln.fusion"(%arg0) ({
            ^bb0(%arg1: tensor<1xf32>):
              "kiln.yield"(%arg1) : (tensor<1xf32>) -> ()
            }) {kind = "pointwise", name = "copy"} : (tensor<1xf32>) -> tensor<1xf32>
            "kiln.yield"(%0) : (tensor<1xf32>) -> ()
          }, {
            builtin.module {
              "tt.func"() ({
              ^bb0(%arg0: !tt.ptr<f32>, %arg1: !tt.ptr<f32>):
                %0 = "tt.load"(%arg0) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!tt.ptr<f32>) -> f32
                "tt.store"(%arg1, %0) : (!tt.ptr<f32>, f32) -> ()
                "tt.return"() : () -> ()
              }) {arg_attrs = [{tt.divisibility = 16 : i32}, {tt.divisibility = 16 : i32}],
                  function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = #map, noinline = false,
                  num_stages = 3 : i32, num_warps = 1 : i32, sym_name = "copy", sym_visibility = "public"} : () -> ()
            }
          }) {sym_name = "copy"} : () -> ()
        }

    After::

        #map = affine_map<() -> (1, 1, 1)>
        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%arg0: tensor<1xf32>):
            %0 = "kiln.fusion"(%arg0) ({
            ^bb0(%arg1: tensor<1xf32>):
              "kiln.yield"(%arg1) : (tensor<1xf32>) -> ()
            }) {kind = "pointwise", name = "copy"} : (tensor<1xf32>) -> tensor<1xf32>
            "kiln.yield"(%0) : (tensor<1xf32>) -> ()
          }, {
            builtin.module {
              "tt.func"() ({
              ^bb0(%arg0: !tt.ptr<f32>, %arg1: !tt.ptr<f32>):
                %0 = "tt.load"(%arg0) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!tt.ptr<f32>) -> f32
                "tt.store"(%arg1, %0) : (!tt.ptr<f32>, f32) -> ()
                "tt.return"() : () -> ()
              }) {arg_attrs = [{tt.divisibility = 16 : i32}, {tt.divisibility = 16 : i32}],
                  function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (), kiln.grid = #map, noinline = false, num_stages = 3
                  : i32, num_warps = 1 : i32, sym_name = "copy", sym_visibility = "public"} : () -> ()
            }
          }) {proved = 4 : i64, sym_name = "copy"} : () -> ()
        }
    """

    name = "prove-kernels"

    policy: Literal["error", "warn"] = "error"
    """What a property that is refuted is."""

    @cached_property
    def proofs(self) -> "Proofs":
        """What was found so far."""
        from kiln.lowering.gpu.validate.proofs import Proofs

        return Proofs(self.policy)

    def run_on(self, kernel: KernelOp) -> None:
        """Raises ProofError for a kernel that is wrong."""
        from kiln.lowering.host.gpu_kernels import kernel_function

        before = self.proofs.proved
        self.proofs.prove(kernel.fusion, kernel_function(kernel.code))
        count = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self.proofs.proved - before)
        kernel.operation.attributes["proved"] = count

    def run_alone(self, module: ir.Module) -> None:
        """There is nothing to prove without what a kernel computes."""
