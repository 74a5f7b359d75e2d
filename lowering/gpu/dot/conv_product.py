# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions whose window is one element: products of all positions with the weight, loaded through descriptors.

Where channels lie next to each other the positions of all images are the rows of one matrix. Hardware moves its blocks,
so that there are no addresses to compute: such a kernel is also compiled in half the time.
"""

from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.schedules.gpu import TmaConvSchedule
from kiln.lowering.gpu.dot.described import describe_operands, product_places
from kiln.lowering.gpu.dot.epilogue import ConvolutionEpilogue
from kiln.lowering.gpu.dot.problem import Operand, Product
from kiln.lowering.gpu.dot.tensor_map import DescribedProblem, emit_tensor_map
from kiln.lowering.gpu.dot.windows import Convolution
from kiln.lowering.gpu.tile.evaluator import Evaluator
from kiln.lowering.tile.body import FusionBody

if TYPE_CHECKING:
    from kiln.lowering.gpu.emit import GpuKernel

__all__ = ["conv_product", "describable_product", "emit_conv_product"]


def conv_product(conv: Convolution) -> Product | None:
    """The product that a convolution is: [positions, channels] by [channels, out].

    None for windows of several elements, strides, padding, groups, and images whose positions do not lie evenly.
    """
    if conv.groups != 1 or {*conv.kernel, *conv.stride} != {1} or any(conv.padding):
        return None
    rows: ir.AffineExpr = ir.AffineConstantExpr.get(1)
    stride: ir.AffineExpr | None = None
    reach: ir.AffineExpr | None = None
    sizes, strides = (
        [values[0], *values[2:]] for values in (conv.result_sizes, conv.x.strides)
    )  # of images, then of spatial dims
    for size, step in zip(reversed(sizes), reversed(strides), strict=True):
        if affine.constant_of(size) == 1:
            continue
        if reach is not None and affine.constant_of(affine.simplify(step - reach)) != 0:
            return None
        stride = step if stride is None else stride
        rows, reach = affine.simplify(rows * size), affine.simplify(step * size)
    channels, out = (ir.AffineConstantExpr.get(n) for n in (conv.channels, conv.out))
    x = Operand(conv.x.position, (channels if stride is None else stride, conv.x.strides[1]), conv.x.offset)
    weight = Operand(conv.weight.position, conv.weight.strides[1::-1], conv.weight.offset)
    return Product(conv.op, (), rows, out, channels, x, weight, conv.element)


def describable_product(body: FusionBody, conv: Convolution) -> bool:
    """Whether a convolution is a product of two matrices that tensor maps describe, and that nothing else reads."""
    product = conv_product(conv)
    if product is None or body.part is not None or product.lhs.position == product.rhs.position:
        return False
    uses = (len(list(body.tensors[x.position].uses)) for x in (product.lhs, product.rhs))
    return all(n == 1 for n in uses) and None not in product_places([product])


def emit_conv_product(kernel: "GpuKernel", conv: Convolution, schedule: TmaConvSchedule) -> None:
    """Add the section of a convolution that is a `describable_product`."""
    product = conv_product(conv)
    assert product is not None, "the schedule is for a product"
    described = describe_operands(kernel, [product], schedule)
    tiles = ir.AffineExpr.get_ceil_div(product.m, schedule.block_m) * -(-conv.out // schedule.block_n)
    if schedule.persistent:
        count = affine.constant_of(affine.simplify(tiles))
        tiles = ir.AffineConstantExpr.get(schedule.programs if count is None else min(count, schedule.programs))
    body = kernel.body

    def emit(program: Any) -> None:
        e = Evaluator(kernel.b, body, kernel.pointers, kernel.layouts, kernel.symbols, kernel.backend)
        m, n, k = (e.index(x) for x in (product.m, product.n, product.k))
        problem = DescribedProblem(m, n, k, *described, schedule.precision)
        emit_tensor_map(kernel.b, problem, schedule, program, ConvolutionEpilogue(e, conv.op.results[0]))

    kernel.section(affine.simplify(tiles), emit, schedule.num_warps, schedule.num_stages)
