# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The host plan as IR, for reading and testing."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.passes.core import Pass, register_pass

__all__ = ["PlanHost"]


@register_pass
@dataclass
class PlanHost(Pass):
    """Replace @main by its host plan: buffers with lifetimes and workspace offsets, launches and ATen calls.

    The compiler itself calls ``kiln.lowering.host.plan.build_plan``, which gives the plan as data; this pass shows it.
    Needs ``assign-layouts`` first. Kernels are named, not compiled, unless ``compile`` is set; without compilation
    their work and scratch are unknown.

    Before::

        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          %0 = "kiln.fusion"(%x) ({
          ^bb0(%a: tensor<4xf32>):
            "kiln.yield"(%a) : (tensor<4xf32>) -> ()
          }) {kind = "pointwise", layouts = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "copy"}
            : (tensor<4xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>
        }

    After::

        func.func @main() {
          %0 = "kiln.buffer"() {index = 0 : i64, kind = "input"} : () -> memref<4xf32, strided<[1]>>
          %1 = "kiln.buffer"() {kind = "tensor"} : () -> memref<4xf32, strided<[1]>>
          "kiln.launch"(%0, %1) {kernel = "copy_HASH"}
              : (memref<4xf32, strided<[1]>>, memref<4xf32, strided<[1]>>) -> ()
          "kiln.output"(%1) : (memref<4xf32, strided<[1]>>) -> ()
          return
        }
    """

    name = "plan-host"
    compile: bool = False
    """Compile the kernels, so that the plan tells their work and scratch memory."""
    device: str = "cpu"
    """Where the plan is to run: on a GPU ("cuda:0") its library's products are launches."""

    def run(self, module: ir.Module) -> None:
        """Plan @main."""
        from kiln.lowering.host.plan import build_plan

        compiler = None
        if self.compile:
            from kiln.lowering.cpu.emit import emit_kernel as compiler
        plan = build_plan(module, compiler, device=self.device)
        self.count("launches", sum(step.step == "launch" for step in plan.steps))
        self.count("kernels", len(plan.kernels))
        parsed = kiln.parse(plan.text)
        for op in reversed(list(module.body)):
            op.operation.erase()
        for op in list(parsed.body):
            module.body.append(op.operation.detach_from_parent())
