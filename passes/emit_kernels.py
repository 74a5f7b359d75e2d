# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Loops, vectors and arithmetic for what a kernel computes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import KernelOp
from kiln.errors import UnsupportedError
from kiln.lowering.host.objects import mark_unsupported
from kiln.passes.core import register_pass
from kiln.passes.kernel_pass import KernelPass

__all__ = ["EmitKernels"]

Emitter = Callable[[ir.OpView, str], ir.Module]


@register_pass
@dataclass
class EmitKernels(KernelPass):
    """Fill each kernel with code that computes its fusion.

    For the CPU: functions on 1-D memrefs of `scf`, `vector`, `arith` and `math`, with scratch memory, thread and number
    of threads behind the operands, results and symbols (lowering/cpu/emit.py). For a GPU: a `tt.func` of Triton IR
    (lowering/gpu/emit.py). A kernel that cannot be emitted gets the reason as its attribute `unsupported`.

    Before::

        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%x: tensor<1xf32>):
            %0 = "kiln.fusion"(%x) ({
            ^bb0(%a: tensor<1xf32>):
              "kiln.yield"(%a) : (tensor<1xf32>) -> ()
            }) {kind = "pointwise", name = "copy"} : (tensor<1xf32>) -> tensor<1xf32>
            "kiln.yield"(%0) : (tensor<1xf32>) -> ()
          }, {
          }) {sym_name = "copy"} : () -> ()
        }

    After::

        #map = affine_map<() -> (0)>
        #map1 = affine_map<() -> (1)>
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
              func.func @copy(%arg0: memref<?xf32>, %arg1: memref<?xf32>, %arg2: memref<?xi8>, %arg3: index,
                  %arg4: index) attributes {kiln.scratch_bytes = #map, kiln.work = #map1} {
                %c0 = arith.constant 0 : index
                %c1 = arith.constant 1 : index
                %0 = arith.divui %arg3, %arg4 : index
                %1 = arith.addi %arg3, %c1 : index
                %2 = arith.divui %1, %arg4 : index
                %3 = memref.load %arg0[%c0] : memref<?xf32>
                scf.for %arg5 = %0 to %2 step %c1 {
                  memref.store %3, %arg1[%c0] : memref<?xf32>
                }
                return
              }
            }
          }) {sym_name = "copy"} : () -> ()
        }
    """

    name = "emit-kernels"

    target: Literal["cpu", "gpu"] = "cpu"
    """What the kernels are for."""
    backend: Literal["cuda", "hip"] = "cuda"
    """Whose math library kernels for a GPU call."""
    strict: bool = False
    """Fail on a defect of the emitter. What it is known not to emit is marked all the same."""

    @override
    def run_on(self, kernel: KernelOp) -> None:
        try:
            made = self._emitter()(kernel.fusion, kernel.symbol)
        except Exception as error:  # a defect of the emitter is a reason as well, and told apart from its limits
            if self.strict and not isinstance(error, UnsupportedError):
                raise
            mark_unsupported(kernel, error)
            self.note(kernel, f"not emitted: {error}")
            return
        kernel.put_code(made)
        self.count("kernels")

    def _emitter(self) -> Emitter:
        if self.target == "cpu":
            from kiln.lowering.cpu import emit

            return emit.emit_kernel
        from kiln.lowering.gpu import emit as gpu_emit

        return lambda fusion, name: gpu_emit.emit_kernel(fusion, name, self.backend)
