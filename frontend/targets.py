# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which target a graph is compiled for, and what differs between targets: pipeline and kernels.

=========== ================================ ===============================================================
target      chosen for                       kernels
=========== ================================ ===============================================================
``cpu``     graphs on the CPU                vector code
``cuda``    graphs on one NVIDIA GPU         Triton IR, compiled by Triton
``tt-cpu``  on request, graphs on the CPU    the GPU's kernels in Triton IR, as loops: for looking at numbers
=========== ================================ ===============================================================
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.fx import GraphModule
from torch_mlir import ir

from kiln.errors import CompileError
from kiln.frontend.import_.fx_types import ImportUnsupported
from kiln.frontend.import_.placement import device_of, has_tensors
from kiln.frontend.options import Options
from kiln.lowering import target as lowering
from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.host.kernels import KernelSet
from kiln.lowering.host.recent_kernels import recent_kernels
from kiln.lowering.target import find_target
from kiln.lowering.ttcpu.settings import DEFAULTS, Settings
from kiln.passes.core import Compilation
from kiln.passes.manager import PipelineStep

if TYPE_CHECKING:
    from kiln.lowering.gpu.validate.proofs import Proofs

__all__ = ["Target", "choose_target"]

Failure = Callable[[ir.OpView, Exception], Exception]


@dataclass(frozen=True)
class Target:
    """What to compile for: `name` as above; `device` on which the graph's tensors are; `arch` of a GPU ("sm_90");
    `settings` of the target "tt-cpu"; `proofs`: what looks at each kernel of a GPU, for checked execution."""

    name: str
    device: str = "cpu"
    arch: str = ""
    settings: Settings = DEFAULTS
    proofs: "Proofs | None" = None

    @property
    def codegen(self) -> str:
        """What makes machine code of its kernels: "cpu", "cuda" or "tt-cpu"."""
        return find_target(self.name).codegen

    @property
    def compiled_for(self) -> lowering.Target:
        """What the compiler knows of it."""
        if self.name == "cuda":
            return GpuTarget(self.device, self.arch)
        return find_target(self.name)()

    def pipeline(self, options: Options, compilation: Compilation | None = None) -> list[PipelineStep]:
        """The passes up to scheduled kernels."""
        from kiln.passes import pipelines

        return pipelines.pipeline(self.compiled_for, options, compilation)

    def kernel(self, fusion: ir.OpView, name: str) -> ir.Module:
        """The kernel of a fusion: at the vector stage, or for "cuda" in Triton IR.

        Raises UnsupportedError, naming the op, for what there is no kernel for; ProofError for a kernel that is wrong,
        if `proofs` are asked for.
        """
        if self.codegen == "cpu":
            from kiln.lowering.cpu.emit import emit_kernel

            return emit_kernel(fusion, name)
        from kiln.lowering.gpu.emit import emit_kernel as emit_gpu_kernel

        module = emit_gpu_kernel(fusion, name)
        if self.proofs is not None:
            from kiln.lowering.host.gpu_kernels import kernel_function

            self.proofs.prove(fusion, kernel_function(module))
        if self.codegen == "cuda":
            return module
        from kiln.lowering.ttcpu.fusion import lower_fusion

        return lower_fusion(fusion, module, name, self.settings)

    def kernels(
        self,
        compiler: Callable[[ir.OpView, str], ir.Module | None],
        dump: Callable[[str, ir.Module], None] | None,
        write: Callable[[str, str], None] | None,
        failure: Failure,
    ) -> KernelSet:
        """What makes machine code of the kernels that `compiler` (`kernel`, with errors handled) gives."""
        if self.codegen == "cpu":
            return KernelSet(compiler, dump, recent_kernels())
        if self.codegen == "tt-cpu":
            from kiln.lowering.ttcpu.fusion import TtCpuKernelSet

            return TtCpuKernelSet(compiler, dump)
        from kiln.lowering.host.gpu_kernels import GpuKernelSet

        return GpuKernelSet(compiler, self.arch, write, failure)


def choose_target(gm: GraphModule, options: Options) -> Target:
    """The target of a graph: by where its tensors are, most of them if on several devices, unless the options ask for
    one.

    Raises ImportUnsupported, with the reason, for a graph on a device that no target is for;
    CompileError where what makes its kernels is not installed.
    """
    device = device_of(gm)
    if device.type == "cpu":
        if options.target == "cuda" and has_tensors(gm):
            raise CompileError(
                "target cuda was asked for, and the graph's tensors are on the CPU; move the model and its inputs to "
                "the GPU, or leave the option 'target' out"
            )
        return Target(options.target or "cpu", settings=Settings.parse(options.tt_cpu))
    if device.type != "cuda" or torch.version.hip is not None:
        raise ImportUnsupported(f"the graph's tensors are on {device}; there are targets for the CPU and NVIDIA GPUs")
    if options.target not in ("", "cuda"):
        raise ImportUnsupported(f"target {options.target} was asked for, and the graph's tensors are on {device}")
    index = device.index if device.index is not None else torch.cuda.current_device()
    major, minor = torch.cuda.get_device_capability(index)
    if major < 8:
        raise ImportUnsupported(f"GPU {index} has compute capability {major}.{minor}; kernels need 8.0 or later")
    from kiln.lowering.gpu.compile import triton_problem

    problem = triton_problem()
    if problem is not None:
        raise CompileError(problem)
    from kiln.lowering.host.gpu_kernels import start_compiler

    start_compiler(f"sm_{major}{minor}")
    return Target("cuda", f"cuda:{index}", f"sm_{major}{minor}")
