# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernel arguments that are descriptors of tensors in memory: their types, and what the launcher encodes them from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.dialects import tt
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
    argument = kernel.pointers[operand.position]
    stride = operand.strides[-1] if turned else operand.strides[-2]
    if turned:
        block, sizes = block[::-1], (sizes[1], sizes[0])
    if not tt.is_ptr(argument.type):
        raise UnsupportedError("kiln.matmul", str(product.op.location), "a described operand that is read twice")
    type_ = tt.tensordesc(ir.RankedTensorType.get(block, tt.pointee(argument.type)))
    argument.set_type(type_)
    attributes = kernel.function.operation.attributes
    inputs = [a.type for a in kernel.entry.arguments]
    attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
    marks = list(ir.ArrayAttr(attributes["arg_attrs"]))
    marks[operand.position] = ir.DictAttr.get({})
    attributes["arg_attrs"] = ir.ArrayAttr.get(marks)
    n = len(kernel.body.symbols)
    entry = ir.DictAttr.get(
        {
            "arg": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), operand.position),
            "shape": ir.AffineMapAttr.get(ir.AffineMap.get(0, n, list(sizes))),
            "strides": ir.AffineMapAttr.get(ir.AffineMap.get(0, n, [stride, ir.AffineConstantExpr.get(1)])),
        }
    )
    given = list(ir.ArrayAttr(attributes["kiln.descriptors"])) if "kiln.descriptors" in attributes else []
    attributes["kiln.descriptors"] = ir.ArrayAttr.get([*given, entry])
    return argument
