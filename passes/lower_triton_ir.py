# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Triton IR as loops of a CPU."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import KernelOp
from kiln.errors import UnsupportedError
from kiln.lowering.host.objects import mark_unsupported
from kiln.passes.core import register_pass
from kiln.passes.kernel_pass import KernelPass

__all__ = ["LowerTritonIR"]


@register_pass
@dataclass
class LowerTritonIR(KernelPass):
    """Replace each `tt.func` of a module by the loops that run it on a CPU, as the target `tt-cpu` does.

    The kernel takes memory per pointer, the symbols, scratch memory, the thread and the number of threads; with
    `sampled` also, behind the symbols, the first program to run and the one behind the last. What is put behind this
    pass is what makes machine code of any kernel for the CPU: `expand-vector-math`, `lower-to-llvm`.

    Before::

        "tt.func"() ({
        ^bb0(%p: !tt.ptr<f32>):
          %0 = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
          %1 = "tt.addptr"(%p, %0) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
          %2 = "tt.load"(%1) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!tt.ptr<f32>) -> f32
          %3 = math.exp %2 : f32
          "tt.store"(%1, %3) : (!tt.ptr<f32>, f32) -> ()
          "tt.return"() : () -> ()
        }) {function_type = (!tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (8)>, sym_name = "k",
            sym_visibility = "public"} : () -> ()

    After::

        #map = affine_map<() -> (0)>
        #map1 = affine_map<() -> (8)>
        func.func @k(%arg0: memref<?xf32>, %arg1: memref<?xi8>, %arg2: index, %arg3: index)
            attributes {kiln.scratch_bytes = #map, kiln.work = #map1} {
          %cst = arith.constant 0x7FC00000 : f32
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %c8 = arith.constant 8 : index
          %intptr = memref.extract_aligned_pointer_as_index %arg0 : memref<?xf32> -> index
          %0 = arith.index_cast %intptr : index to i64
          %1 = llvm.inttoptr %0 : i64 to !llvm.ptr
          %2 = arith.muli %arg2, %c8 : index
          %3 = arith.divui %2, %arg3 : index
          %4 = arith.addi %arg2, %c1 : index
          %5 = arith.muli %4, %c8 : index
          %6 = arith.divui %5, %arg3 : index
          scf.for %arg4 = %3 to %6 step %c1 {
            %7 = arith.index_cast %arg4 : index to i32
            %8 = arith.index_cast %c0 : index to i32
            %9 = arith.index_cast %c0 : index to i32
            %10 = arith.index_cast %arg4 : index to i64
            %11 = arith.extsi %7 : i32 to i64
            %12 = llvm.getelementptr %1[%11] : (!llvm.ptr, i64) -> !llvm.ptr, i32
            %13 = llvm.load %12 : !llvm.ptr -> f32
            %14 = math.exp %13 : f32
            llvm.store %14, %12 : f32, !llvm.ptr
          }
          return
        }
    """

    name = "lower-triton-ir"

    sampled: bool = False
    """Programs of a range in place of the whole grid."""

    settings: str = ""
    """What the executor does like a GPU, as the option `tt_cpu` of the backend: "order=reversed bounds=off"."""
    strict: bool = False
    """Fail on a defect of the executor. What it is known not to run is marked `unsupported` all the same."""

    @override
    def run_on(self, kernel: KernelOp) -> None:
        from kiln.lowering.ttcpu import fusion
        from kiln.lowering.ttcpu.settings import Settings

        settings = Settings.parse(self.settings)
        try:
            made = fusion.lower_fusion(kernel.fusion, kernel.code, kernel.symbol, settings)
        except Exception as error:  # what the executor does not run is a reason, as for a kernel that is not emitted
            if self.strict and not isinstance(error, UnsupportedError):
                raise
            mark_unsupported(kernel, error)
            self.note(kernel, f"not lowered: {error}")
            return
        kernel.put_code(made)

    @override
    def run_alone(self, module: ir.Module) -> None:
        from kiln.lowering.ttcpu.lower import lower_kernel

        kernels = [op.operation for op in module.body if op.operation.name == "tt.func"]
        lowered = [
            lower_kernel(kernel, ir.StringAttr(kernel.attributes["sym_name"]).value, is_sampled=self.sampled)
            for kernel in kernels
            if _is_public(kernel)
        ]
        for kernel in kernels:
            kernel.erase()
        for made in lowered:
            for op in list(made.body):
                module.body.append(op.operation.detach_from_parent())
        self.count("kernels", len(lowered))


def _is_public(kernel: ir.Operation) -> bool:
    """Whether it is launched; others are called, and inlined."""
    attributes = kernel.attributes
    return "sym_visibility" not in attributes or ir.StringAttr(attributes["sym_visibility"]).value == "public"
