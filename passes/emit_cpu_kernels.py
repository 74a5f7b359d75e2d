# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels as IR, for reading and testing."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.passes.core import Pass, register_pass

__all__ = ["EmitCpuKernels"]


@register_pass
@dataclass
class EmitCpuKernels(Pass):
    """Replace the functions of a module by the kernels of their fusions, as `plan-host` compiles them.

    Each distinct `kiln.fusion` becomes one function at the vector stage: 1-D memrefs for its operands and results,
    its symbols, scratch memory, thread id and thread count; loops, vectors and arithmetic inside. The fusion's name
    is the function's. Layouts and schedules count where they are set; without them operands are row-major and
    schedules are those of `schedule-cpu`.

    Before:

    ```mlir
    func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %0 = "kiln.fusion"(%x) ({...}) {kind = "pointwise", name = "relu"} : (tensor<8xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }
    ```

    After:

    ```mlir
    func.func @relu(%0: memref<?xf32>, %1: memref<?xf32>, %scratch: memref<?xi8>, %tid: index, %nt: index)
        attributes {kiln.scratch_bytes = affine_map<() -> (0)>, kiln.work = affine_map<() -> (16)>} { ... }
    ```
    """

    name = "emit-cpu-kernels"

    lower: bool = False
    """Go on to the LLVM dialect: expand-vector-math, the entry function, then the lowering of each op."""

    def run(self, module: ir.Module) -> None:
        from kiln.lowering.cpu.codegen import prepare_kernel
        from kiln.lowering.cpu.emit import emit_kernel
        from kiln.lowering.host.kernels import fusion_key

        seen: dict[str, str] = {}
        kernels: list[ir.Module] = []
        for fusion in _fusions(module):
            key = fusion_key(fusion.operation)
            if key in seen:
                self.note(fusion.operation, f"the same kernel as @{seen[key]}")
                continue
            name = _unused(ir.StringAttr(fusion.operation.attributes["name"]).value, set(seen.values()))
            seen[key] = name
            kernel = emit_kernel(fusion, name)
            if self.lower:
                with fusion.operation.location:
                    prepare_kernel(kernel, name)
            kernels.append(kernel)
        for op in reversed(list(module.body)):
            op.operation.erase()
        declared: set[str] = set()
        for kernel in kernels:
            for op in list(kernel.body):
                symbol = ir.StringAttr(op.operation.attributes["sym_name"]).value
                if symbol in declared:
                    continue  # a library function that several kernels call
                declared.add(symbol)
                module.body.append(op.operation.detach_from_parent())
        self.count("kernels", len(kernels))


def _fusions(module: ir.Module) -> list[ir.OpView]:
    return [
        op
        for function in module.body
        for region in function.operation.regions
        for block in region
        for op in block
        if isinstance(op, kiln.FusionOp)
    ]


def _unused(stem: str, taken: set[str]) -> str:
    """`stem`, with a number if another kernel has that name."""
    name, count = stem, 0
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    return name
