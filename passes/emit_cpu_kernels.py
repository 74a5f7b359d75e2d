# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels for the CPU alone, for reading and testing."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.passes.core import Pass, register_pass
from kiln.passes.fusion.kernels import fusions_of, unused_name

__all__ = ["EmitCpuKernels"]


@register_pass
@dataclass
class EmitCpuKernels(Pass):
    """Replace the functions of a module by the kernels of their fusions alone, as `emit-kernels` emits them.

    Each distinct `kiln.fusion` becomes one function at the vector stage: 1-D memrefs for its operands and results,
    its symbols, scratch memory, thread id and thread count; loops, vectors and arithmetic inside. The fusion's name
    is the function's. Layouts and schedules count where they are set; without them operands are row-major and
    schedules are those of `schedule-cpu`.

    Before::

        func.func @main(%x: tensor<1xf32>) -> tensor<1xf32> {
          %0 = "kiln.fusion"(%x) ({
          ^bb0(%a: tensor<1xf32>):
            %e = "kiln.empty"() {shape = affine_map<() -> (1)>} : () -> tensor<1xf32>
            %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                iterator_types = ["parallel"]} ins(%a : tensor<1xf32>) outs(%e : tensor<1xf32>) {
            ^bb0(%i: f32, %o: f32):
              %s = arith.negf %i : f32
              linalg.yield %s : f32
            } -> tensor<1xf32>
            "kiln.yield"(%r) : (tensor<1xf32>) -> ()
          }) {kind = "pointwise", name = "neg"} : (tensor<1xf32>) -> tensor<1xf32>
          return %0 : tensor<1xf32>
        }

    After::

        #map = affine_map<() -> (0)>
        #map1 = affine_map<() -> (3)>
        func.func @neg(%arg0: memref<?xf32>, %arg1: memref<?xf32>, %arg2: memref<?xi8>, %arg3: index, %arg4: index)
            attributes {kiln.scratch_bytes = #map, kiln.work = #map1} {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %0 = arith.divui %arg3, %arg4 : index
          %1 = arith.addi %arg3, %c1 : index
          %2 = arith.divui %1, %arg4 : index
          %3 = memref.load %arg0[%c0] : memref<?xf32>
          %4 = arith.negf %3 : f32
          scf.for %arg5 = %0 to %2 step %c1 {
            memref.store %4, %arg1[%c0] : memref<?xf32>
          }
          return
        }
    """

    name = "emit-cpu-kernels"

    lower: bool = False
    """Go on to the LLVM dialect: expand-vector-math, the entry function, then the lowering of each op."""

    @override
    def run(self, module: ir.Module) -> None:
        from kiln.lowering.cpu.codegen import expand_math, lower_kernel
        from kiln.lowering.cpu.emit import emit_kernel
        from kiln.lowering.host.kernels import fusion_key

        seen: dict[str, str] = {}
        kernels: list[ir.Module] = []
        for fusion in fusions_of(module):
            key = fusion_key(fusion.operation)
            if key in seen:
                self.note(fusion.operation, f"the same kernel as @{seen[key]}")
                continue
            name = unused_name(ir.StringAttr(fusion.operation.attributes["name"]).value, set(seen.values()))
            seen[key] = name
            kernel = emit_kernel(fusion, name)
            if self.lower:
                with fusion.operation.location:
                    expand_math(kernel)
                    lower_kernel(kernel, name)
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
