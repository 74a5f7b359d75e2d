# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernel arguments that are descriptors of tensors in memory: their types, and what the launcher encodes them from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.dialects import affine, tt
from kiln.errors import UnsupportedError
from kiln.lowering.gpu.dot.problem import Operand, Product
from kiln.lowering.gpu.dot.tensor_map import DescribedMatrix

if TYPE_CHECKING:
    from kiln.lowering.gpu.emit import GpuKernel


def describe_operands(
    kernel: "GpuKernel", products: Sequence[Product], schedule: dict[str, Any]
) -> tuple[DescribedMatrix, tuple[DescribedMatrix, ...]]:
    """Turn the arguments of the operands of products with one lhs into descriptors.

    The function gets `kiln.descriptors`: per descriptor the argument's number, and over the kernel's symbols the sizes
    and strides of the matrix that it describes, in elements, the outermost dim first (the last stride is 1).
    Raises UnsupportedError where an operand is two of them: it would need two descriptors.
    """
    one = ir.AffineConstantExpr.get(1)
    product = products[0]
    lhs_last = product.lhs.strides[-1] == one
    block_m, block_n, block_k = (schedule[key] for key in ("block_m", "block_n", "block_k"))
    lhs = _argument(kernel, product, product.lhs, [block_m, block_k], (product.m, product.k), not lhs_last)
    described: list[DescribedMatrix] = []
    for x in products:
        # The right operand is [k, n] in memory, or [n, k] if the reduction comes last.
        last = x.rhs.strides[-2] == one
        rhs = _argument(kernel, x, x.rhs, [block_k, block_n], (x.k, x.n), last)
        described.append(DescribedMatrix(rhs, last))
    return DescribedMatrix(lhs, lhs_last), tuple(described)


def _argument(
    kernel: "GpuKernel",
    product: Product,
    operand: Operand,
    block: list[int],
    sizes: tuple[ir.AffineExpr, ir.AffineExpr],
    turned: bool,
) -> ir.Value:
    stride = operand.strides[-1] if turned else operand.strides[-2]
    if turned:
        block, sizes = block[::-1], (sizes[1], sizes[0])
    return describe_argument(kernel, product.op, operand.position, block, sizes, stride)


def describe_argument(
    kernel: "GpuKernel",
    op: ir.OpView,
    position: int,
    block: list[int],
    sizes: tuple[ir.AffineExpr, ir.AffineExpr],
    stride: ir.AffineExpr,
) -> ir.Value:
    """Turn one argument into the descriptor of a matrix with rows `stride` elements apart, moved in these blocks.

    Raises UnsupportedError where it is one already.
    """
    argument = kernel.pointers[position]
    if not tt.is_ptr(argument.type):
        raise UnsupportedError(op.operation.name, str(op.location), "an operand that needs two descriptors")
    argument.set_type(tt.tensordesc(ir.RankedTensorType.get(block, tt.pointee(argument.type))))
    attributes = kernel.function.operation.attributes
    inputs = [a.type for a in kernel.entry.arguments]
    attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
    marks = list(ir.ArrayAttr(attributes["arg_attrs"]))
    marks[position] = ir.DictAttr.get({})
    attributes["arg_attrs"] = ir.ArrayAttr.get(marks)
    n = len(kernel.body.symbols)
    entry = ir.DictAttr.get(
        {
            "arg": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), position),
            "shape": ir.AffineMapAttr.get(ir.AffineMap.get(0, n, list(sizes))),
            "strides": ir.AffineMapAttr.get(ir.AffineMap.get(0, n, [stride, ir.AffineConstantExpr.get(1)])),
        }
    )
    given = list(ir.ArrayAttr(attributes["kiln.descriptors"])) if "kiln.descriptors" in attributes else []
    attributes["kiln.descriptors"] = ir.ArrayAttr.get([*given, entry])
    return argument


@dataclass(frozen=True)
class RowPlaces:
    """A strided [*batch, heads, rows, columns] as one matrix: a step of each leading dim moves `rows` rows down and
    `columns` columns to the right of it. size: of the matrix. start: where the first element is."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    size: tuple[int, int]
    stride: int
    start: tuple[int, int]


def row_places(operand: Operand, sizes: Sequence[ir.AffineExpr]) -> RowPlaces | None:
    """The operand as a matrix, or None where it is none: a size or stride known at run time only, heads that overlap,
    rows that are no multiple of 16 bytes (of 16-bit elements) apart."""
    counts = [affine.constant_of(x) for x in sizes]
    steps = [affine.constant_of(x) for x in operand.strides]
    offset = affine.constant_of(operand.offset)
    known = [x for x in (*counts, *steps, offset) if x is not None]
    if len(known) < len(counts) + len(steps) + 1 or 0 in counts:
        return None
    rank = len(counts)
    lengths, strides, first = known[:rank], known[rank : 2 * rank], known[-1]
    stride = strides[-2]
    if strides[-1] != 1 or stride % 8 or stride < lengths[-1]:
        return None
    down = tuple(s // stride if s % stride == 0 else 0 for s in strides[:-2])
    right = tuple(0 if s % stride == 0 else s for s in strides[:-2])
    start = first // stride, first % stride
    ends = [
        origin + sum((n - 1) * step for n, step in zip(lengths, steps, strict=False)) + last
        for origin, steps, last in zip(start, (down, right), lengths[-2:], strict=True)
    ]
    return RowPlaces(down, right, (ends[0], ends[1]), stride, start) if ends[1] <= stride else None
