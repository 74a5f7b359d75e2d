# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The last stage of a CPU kernel as a pass, for reading and testing."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.errors import InvalidIRError
from kiln.passes.core import Pass, register_pass

__all__ = ["LowerKernel"]


@register_pass
@dataclass
class LowerKernel(Pass):
    """Lower a vector-stage kernel to the LLVM dialect, with the entry point that the launcher calls.

    What ``kiln.lowering.cpu.codegen.compile_kernel`` does before LLVM: vector math, pointers marked noalias, the
    entry ``void NAME_entry(int64_t* block)``, the lowering pipeline.

    Before::

        func.func @k(%x: memref<?xf32>, %n: index, %scratch: memref<?xi8>, %tid: index, %nt: index) { ... }

    After::

        llvm.func internal @k(%arg0: !llvm.ptr {llvm.noalias}, %arg1: i64, %arg2: !llvm.ptr, ...) { ... }
        llvm.func @k_entry(%arg0: !llvm.ptr) { ... }
    """

    name = "lower-kernel"
    kernel: str = ""
    """Name of the kernel; the first function by default."""

    def run(self, module: ir.Module) -> None:
        """Lower the module in place."""
        from kiln.lowering.cpu.codegen import prepare_kernel

        functions = [op for op in module.body if op.operation.name == "func.func"]
        if not functions:
            raise InvalidIRError("the module holds no func.func to lower")
        prepare_kernel(module, self.kernel or ir.StringAttr(functions[0].attributes["sym_name"]).value)
