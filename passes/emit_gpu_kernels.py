# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""GPU kernels as IR, for reading and testing."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.errors import PassOptionError
from kiln.passes.core import Pass, register_pass
from kiln.passes.fusion.kernels import fusions_of, unused_name

__all__ = ["EmitGpuKernels"]


@register_pass
@dataclass
class EmitGpuKernels(Pass):
    """Replace the functions of a module by the Triton IR of their fusions alone, as `emit-kernels` emits it.

    Each distinct `kiln.fusion` becomes one `tt.func`: pointers for its operands and results, then its symbols; see
    `lowering/gpu/emit.py` for the attributes; `kiln.buffers` is for `validate-gpu-kernels`. The fusion's name is the
    function's. Layouts and schedules count where
    they are set; without them operands are row-major and schedules are those of `schedule-gpu`.

    Before::

        func.func @main(%x: tensor<1024xf32>) -> tensor<1024xf32> {
          %0 = "kiln.fusion"(%x) ({
          ^bb0(%a: tensor<1024xf32>):
            %e = "kiln.empty"() {shape = affine_map<() -> (1024)>} : () -> tensor<1024xf32>
            %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                iterator_types = ["parallel"]} ins(%a : tensor<1024xf32>) outs(%e : tensor<1024xf32>) {
            ^bb0(%i: f32, %o: f32):
              %s = math.exp %i : f32
              linalg.yield %s : f32
            } -> tensor<1024xf32>
            "kiln.yield"(%r) : (tensor<1024xf32>) -> ()
          }) {kind = "pointwise", name = "exp"} : (tensor<1024xf32>) -> tensor<1024xf32>
          return %0 : tensor<1024xf32>
        }

    After::

        #map = affine_map<(d0) -> (d0)>
        #map1 = affine_map<() -> (1024)>
        #map2 = affine_map<() -> (8, 1, 1)>
        "tt.func"() ({
        ^bb0(%arg0: !tt.ptr<f32>, %arg1: !tt.ptr<f32>):
          %c128_i32 = arith.constant 128 : i32
          %0 = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
          %1 = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
          %2 = arith.muli %1, %c128_i32 : i32
          %3 = "tt.splat"(%2) : (i32) -> tensor<128xi32>
          %4 = arith.addi %3, %0 : tensor<128xi32>
          %5 = "tt.splat"(%arg0) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
          %6 = "tt.addptr"(%5, %4) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
          %7 = "tt.load"(%6) {operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<128x!tt.ptr<f32>>) -> tensor<128xf32>
          %8 = math.exp %7 : tensor<128xf32>
          %9 = "tt.splat"(%arg1) : (!tt.ptr<f32>) -> tensor<128x!tt.ptr<f32>>
          %10 = "tt.addptr"(%9, %4) : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>) -> tensor<128x!tt.ptr<f32>>
          "tt.store"(%10, %8) : (tensor<128x!tt.ptr<f32>>, tensor<128xf32>) -> ()
          "tt.return"() : () -> ()
        }) {arg_attrs = [{tt.divisibility = 16 : i32}, {tt.divisibility = 16 : i32}],
            function_type = (!tt.ptr<f32>, !tt.ptr<f32>) -> (),
            kiln.buffers = [{is_result = false, layout = #map, sizes = #map1}, {is_result = true, layout = #map,
            sizes = #map1}], kiln.grid = #map2, noinline = false, num_stages = 3 : i32, num_warps = 1 : i32,
            sym_name = "exp", sym_visibility = "public"} : () -> ()
    """

    name = "emit-gpu-kernels"

    backend: str = "cuda"
    """Whose math library kernels call: cuda or hip."""

    @override
    def run(self, module: ir.Module) -> None:
        from kiln.lowering.gpu.emit import emit_kernel
        from kiln.lowering.gpu.validate.buffers import attach_buffers
        from kiln.lowering.host.kernels import fusion_key

        if self.backend not in ("cuda", "hip"):
            raise PassOptionError(self.name, f"backend: expected 'cuda' or 'hip', found {self.backend!r}")
        seen: dict[str, str] = {}
        kernels: list[ir.Module] = []
        for fusion in fusions_of(module):
            key = fusion_key(fusion.operation)
            if key in seen:
                self.note(fusion.operation, f"the same kernel as @{seen[key]}")
                continue
            name = unused_name(ir.StringAttr(fusion.operation.attributes["name"]).value, set(seen.values()))
            seen[key] = name
            kernel = emit_kernel(fusion, name, self.backend)
            attach_buffers(fusion, next(iter(kernel.body)).operation)
            kernels.append(kernel)
        for op in reversed(list(module.body)):
            op.operation.erase()
        for kernel in kernels:
            for op in list(kernel.body):
                module.body.append(op.operation.detach_from_parent())
        self.count("kernels", len(kernels))
