# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions of a few pixels with windows of one element: a matrix product that reads the weight where it lies.

To pack the weight, as the direct kernel does, takes longer than to multiply it by so few pixels.
"""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.schedules.cpu import GemmConvSchedule
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.conv.kernel import ConvKernel
from kiln.lowering.cpu.conv.problem import ConvEpilogue, ConvProblem
from kiln.lowering.cpu.isa import Isa
from kiln.lowering.cpu.matmul import Buffers, Epilogue, MatmulProblem, choose_schedule, emit_matmul, scratch_bytes


def choose_product(p: ConvProblem, isa: Isa) -> GemmConvSchedule | None:
    """The schedule; None where the convolution is none of these."""
    plain = p.groups == 1 and p.is_pointwise and len(p.axes) == 2
    most = isa.rules.convolutions.product_pixels
    few = p.images == p.row.results == 1 and isinstance(p.column.results, int) and p.column.results <= most
    if not plain or not few or p.planar or p.x_strides[1] != 1 or p.weight_strides[1] != 1:
        return None
    return GemmConvSchedule(product=choose_schedule(as_matmul(p), isa, vendor=False))


class Product(ConvKernel):
    """The product, with a convolution's operands."""

    def __init__(self, *arguments: Any):
        self.b, self.p, self.s, self.operands, self.epilogue, self.ctx = arguments

    @staticmethod
    @override
    def layout(p: ConvProblem, s: GemmConvSchedule) -> dict[str, int]:
        return {"bytes": scratch_bytes(as_matmul(p), s.product)}

    @override
    def emit(self) -> None:
        x = self.operands
        buffers = Buffers(x.x, x.weight, x.x_offset, x.weight_offset)
        emit_matmul(self.b, as_matmul(self.p), self.s.product, buffers, _Rows(self.epilogue), self.ctx)


def as_matmul(p: ConvProblem) -> MatmulProblem:
    """The product that a convolution with a window of one element is: pixels by channels times channels by outputs."""
    lhs, rhs = (p.column.x_stride, p.x_strides[1]), (p.weight_strides[1], p.weight_strides[0])
    return MatmulProblem((), p.column.results, p.outputs, p.channels, lhs, rhs, p.dtype)


class _Rows(Epilogue):
    """A convolution's epilogue as a product's: rows are pixels, columns are channels."""

    def __init__(self, epilogue: ConvEpilogue):
        self.epilogue = epilogue

    @override
    def apply(
        self, b: Builder, index: Sequence[Index], column: Index, width: int, acc: ir.Value, mask: ir.Value | None
    ) -> None:
        with self.epilogue.channels(b, 0, 0, column, width, mask) as pixel:
            pixel(index[-1], acc)
