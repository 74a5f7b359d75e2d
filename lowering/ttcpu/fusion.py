# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The kernel of a fusion for the GPU, run on the CPU: what the host would do around a launch is done inside."""

from typing import Any

from torch_mlir import ir

from kiln.lowering.host.gpu_kernels import cleared_results, kernel_function
from kiln.lowering.ttcpu.buffers import buffers_of
from kiln.lowering.ttcpu.lower import lower_kernel
from kiln.lowering.ttcpu.settings import DEFAULTS, Settings

__all__ = ["lower_fusion"]


def lower_fusion(fusion: ir.OpView, module: Any, name: str, settings: Settings = DEFAULTS) -> ir.Module:
    """Lowers `module`, the kernel of `fusion` in Triton IR, to the vector stage as `@name`.

    Raises UnsupportedError, naming the op, for what does not run on the CPU.
    """
    function = kernel_function(module)
    attributes = fusion.operation.attributes
    shared: list[int] = []
    if "in_place" in attributes:
        operands = sum(isinstance(v.type, ir.RankedTensorType) for v in fusion.operation.operands)
        pairs = list(ir.DenseI64ArrayAttr(attributes["in_place"]))
        shared = [*pairs[::2], *(operands + result for result in pairs[1::2])]
    cleared = cleared_results(fusion, function)
    buffers = buffers_of(fusion, kept=[*shared, *(number for number, _ in cleared)])
    return lower_kernel(function, name, shared, cleared, buffers=buffers, settings=settings)
