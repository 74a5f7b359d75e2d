# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The last step: the host plan."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import kiln
from kiln.errors import UnsupportedError
from kiln.passes.core import Pass, register_pass

if TYPE_CHECKING:
    from kiln.lowering.host.plan import InputSource
    from kiln.passes.instruments.base import Instrument
    from kiln.passes.manager import PipelineStep
    from kiln.runtime.plan import Plan

__all__ = ["PlanHost", "compiled_plan"]


@register_pass
@dataclass
class PlanHost(Pass):
    """Replace @main by its host plan: buffers with lifetimes and workspace offsets, launches and ATen calls.

    The plan itself is data (``plan``), which the executor runs. Waits for the machine code of the kernels; what of them
    has none is in the plan by its name. Fusions that are not outlined yet are outlined first. A kernel that its
    compiler refuses is marked as `unsupported`, and the module is left as it is.

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
    device: str = "cpu"
    """Where the plan is to run: on a GPU ("cuda:0") its library's products are launches."""
    show: bool = True
    """Replace @main by the plan as text, and drop the kernels."""

    def __post_init__(self) -> None:
        self.plan: Plan | None = None
        #: What the frontend knows of the graph, and the IR does not.
        self.inputs: Sequence[InputSource] | None = None
        self.graph = "main"
        self.num_inputs: int | None = None

    @override
    def run(self, module: ir.Module) -> None:
        from kiln.lowering.host.kernels import kernels_of, outline_kernels
        from kiln.lowering.host.plan import build_plan

        outline_kernels(module, is_gpu=self.device != "cpu")
        plan = build_plan(module, self.inputs, name=self.graph, num_inputs=self.num_inputs, device=self.device)
        refused = [k for k in kernels_of(module) if "unsupported" in k.operation.attributes]
        self.plan = plan if not refused else None
        self.count("launches", sum(step.step == "launch" for step in plan.steps))
        self.count("kernels", len(plan.kernels))
        if refused or not self.show:
            return
        for key in list(module.operation.attributes):
            del module.operation.attributes[key]
        parsed = kiln.parse(plan.text)
        for op in reversed(list(module.body)):
            op.operation.erase()
        for op in list(parsed.body):
            module.body.append(op.operation.detach_from_parent())


def compiled_plan(
    module: ir.Module,
    kernels: "Iterable[PipelineStep]",
    device: str = "cpu",
    *,
    name: str = "main",
    instruments: "Sequence[Instrument]" = (),
) -> "Plan":
    """The plan of a scheduled module, with its kernels' machine code, for running it alone.

    kernels: the steps to machine code, which are the phases `emit` and `lower` of a target; `device` and `name`: those
    of the plan.

    Raises UnsupportedError where there is a kernel without machine code, and what the steps raise.
    """
    from kiln.lowering.host.kernels import kernels_of
    from kiln.passes.manager import PassManager, PipelineStep

    planning = PlanHost(device, show=False)
    planning.graph = name
    PassManager([*kernels, PipelineStep(planning)], instruments).run(module)
    if planning.plan is None:
        kernel = next(k for k in kernels_of(module) if "unsupported" in k.operation.attributes)
        op, reason = (ir.StringAttr(kernel.operation.attributes[k]).value for k in ("unsupported_op", "unsupported"))
        raise UnsupportedError(op, str(kernel.fusion.operation.location), reason)
    return planning.plan
