# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which target a graph is compiled for.

=========== ================================ ===============================================================
target      chosen for                       kernels
=========== ================================ ===============================================================
``cpu``     graphs on the CPU                vector code
``cuda``    graphs on one NVIDIA GPU         Triton IR, compiled by Triton
``tt-cpu``  on request, graphs on the CPU    the GPU's kernels in Triton IR, as loops: for looking at numbers
=========== ================================ ===============================================================
"""

import torch
from torch.fx import GraphModule

from kiln.errors import CompileError, KilnError
from kiln.frontend.import_.fx_types import ImportUnsupported
from kiln.frontend.import_.placement import device_of, has_tensors
from kiln.frontend.options import Options
from kiln.lowering.target import Target, find_target

__all__ = ["choose_target", "has_triton_kernels"]


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
        return find_target(options.target or "cpu")()
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
    from kiln.lowering.gpu.target import GpuTarget
    from kiln.lowering.host.gpu_kernels import start_compiler

    start_compiler(f"sm_{major}{minor}")
    return GpuTarget(f"cuda:{index}", f"sm_{major}{minor}")


def has_triton_kernels(gm: GraphModule, options: Options) -> bool:
    """Whether kernels of a graph will be a GPU's; False as well for a graph that no target is for."""
    try:
        return choose_target(gm, options).uses_triton
    except (ImportUnsupported, KilnError):
        return False
