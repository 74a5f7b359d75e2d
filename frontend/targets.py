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

from dataclasses import dataclass

import torch
from torch.fx import GraphModule

from kiln.errors import CompileError
from kiln.frontend.import_.fx_types import ImportUnsupported
from kiln.frontend.import_.placement import device_of, has_tensors
from kiln.frontend.options import Options
from kiln.lowering import target as lowering
from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.target import find_target
from kiln.lowering.ttcpu.settings import DEFAULTS, Settings
from kiln.passes.core import Compilation
from kiln.passes.manager import PipelineStep

__all__ = ["Target", "choose_target"]


@dataclass(frozen=True)
class Target:
    """What to compile for: `name` as above; `device` on which the graph's tensors are; `arch` of a GPU ("sm_90");
    `settings` of the target "tt-cpu"."""

    name: str
    device: str = "cpu"
    arch: str = ""
    settings: Settings = DEFAULTS

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

    def kernels(self, check: str = "", *, shared: bool = False, strict: bool = False) -> list[PipelineStep]:
        """The passes from there to machine code; the arguments are those of ``pipelines.cpu_kernels``."""
        from kiln.passes import pipelines

        if self.codegen == "cpu":
            return pipelines.cpu_kernels(checks=check, shared=shared, strict=strict)
        if self.codegen == "tt-cpu":
            return pipelines.tt_cpu_kernels(str(self.settings), checks=check, strict=strict)
        return pipelines.gpu_kernels(self.arch, checks=check, strict=strict)


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
