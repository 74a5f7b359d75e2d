# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What all kernels of convolutions begin with."""

from typing import Any

from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.conv.problem import ConvBuffers, ConvEpilogue, ConvProblem
from kiln.lowering.cpu.matmul.problem import KernelContext, element_type, known

__all__ = ["ConvKernel"]


class ConvKernel:
    """One thread's share of a convolution, in vectors of `width` sums."""

    def __init__(
        self,
        b: Builder,
        p: ConvProblem,
        s: Any,
        operands: ConvBuffers,
        epilogue: ConvEpilogue,
        ctx: KernelContext,
    ):
        self.b, self.p, self.s, self.operands, self.epilogue, self.ctx = b, p, s, operands, epilogue, ctx
        self.sum_type, self.width = element_type(p.sum_dtype), s.width
        self.vector = b.vec(self.width, self.sum_type)
        self.x_image, self.x_channel, self.x_row, self.x_column = (known(x) for x in p.x_strides)

    @classmethod
    def emit_kernel(cls, *arguments: Any) -> None:
        """Emits the kernel; the arguments are those of `emit_conv`."""
        cls(*arguments).emit()

    def emit(self) -> None:
        """Emits the loops of this thread's share."""
        raise NotImplementedError
