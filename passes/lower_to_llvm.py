# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels for the CPU in the LLVM dialect."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import KernelOp
from kiln.errors import InvalidIRError
from kiln.lowering.cpu.codegen import expand_math, lower_kernel, verify_kernel
from kiln.lowering.host.objects import describe
from kiln.passes.core import register_pass
from kiln.passes.kernel_pass import KernelPass

__all__ = ["LowerToLlvm"]


@register_pass
@dataclass
class LowerToLlvm(KernelPass):
    """Lower a kernel for the CPU to the LLVM dialect, with the entry point that the launcher calls.

    Pointers are marked noalias, the entry is ``void NAME_entry(int64_t* block)``, and all other functions are internal.
    The kernel keeps how it is called: ``pointers``, ``symbols``, ``scratch``, ``work``, ``checks`` and ``sites``.
    A module without kernels is lowered as the code of one, behind what ``expand-vector-math`` does to it.

    Before::

        func.func @k(%scratch: memref<?xi8>, %tid: index, %nt: index) {
          return
        }

    After::

        llvm.func internal @k(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64)
            attributes {no_inline, sym_visibility = "private"} {
          %0 = llvm.mlir.poison : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
          %1 = llvm.mlir.constant(0 : i64) : i64
          %2 = llvm.insertvalue %arg0, %0[0] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
          %3 = llvm.insertvalue %arg0, %2[1] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
          %4 = llvm.insertvalue %1, %3[2] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
          llvm.return
        }
        llvm.func @omp_get_thread_num() -> i32 attributes {sym_visibility = "private"}
        llvm.func @omp_get_num_threads() -> i32 attributes {sym_visibility = "private"}
        llvm.func @k_entry(%arg0: !llvm.ptr) attributes {no_inline} {
          %0 = llvm.getelementptr inbounds %arg0[0] : (!llvm.ptr) -> !llvm.ptr, i64
          %1 = llvm.load %0 {alignment = 8 : i64} : !llvm.ptr -> !llvm.ptr
          %2 = llvm.getelementptr inbounds %arg0[1] : (!llvm.ptr) -> !llvm.ptr, i64
          %3 = llvm.load %2 {alignment = 8 : i64} : !llvm.ptr -> i64
          %4 = llvm.getelementptr inbounds %arg0[2] : (!llvm.ptr) -> !llvm.ptr, i64
          %5 = llvm.load %4 {alignment = 8 : i64} : !llvm.ptr -> i64
          %6 = llvm.mlir.constant(0 : i64) : i64
          %7 = llvm.mlir.constant(1 : i64) : i64
          %8 = llvm.icmp "ne" %5, %6 : i64
          llvm.cond_br %8, ^bb1, ^bb2(%6, %7 : i64, i64)
        ^bb1:  // pred: ^bb0
          %9 = llvm.call @omp_get_thread_num() : () -> i32
          %10 = llvm.call @omp_get_num_threads() : () -> i32
          %11 = llvm.sext %9 : i32 to i64
          %12 = llvm.sext %10 : i32 to i64
          %13 = llvm.icmp "ugt" %5, %7 : i64
          %14 = llvm.intr.umin(%5, %12) : (i64, i64) -> i64
          %15 = llvm.select %13, %14, %12 : i1, i64
          %16 = llvm.icmp "ult" %11, %15 : i64
          llvm.cond_br %16, ^bb2(%11, %15 : i64, i64), ^bb3
        ^bb2(%17: i64, %18: i64):  // 2 preds: ^bb0, ^bb1
          %19 = llvm.mul %17, %3 : i64
          %20 = llvm.getelementptr %1[%19] : (!llvm.ptr, i64) -> !llvm.ptr, i8
          llvm.call @k(%20, %17, %18) : (!llvm.ptr, i64, i64) -> ()
          llvm.br ^bb3
        ^bb3:  // 2 preds: ^bb1, ^bb2
          llvm.return
        }
    """

    name = "lower-to-llvm"
    kernel: str = ""
    """Name of the function of a module without kernels; the first function by default."""

    @override
    def run_on(self, kernel: KernelOp) -> None:
        code = kernel.code
        verify_kernel(code, kernel.symbol)
        describe(kernel, lower_kernel(code, kernel.symbol))
        self.count("kernels")

    @override
    def run_alone(self, module: ir.Module) -> None:
        functions = [op for op in module.body if op.operation.name == "func.func"]
        if not functions:
            raise InvalidIRError("the module holds no func.func to lower")
        expand_math(module)
        lower_kernel(module, self.kernel or ir.StringAttr(functions[0].attributes["sym_name"]).value)
