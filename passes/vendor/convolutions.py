# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions as ``aten.convolution``."""

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.errors import InvalidIRError
from kiln.passes.vendor.sizes import Symbols, static_sizes

__all__ = ["convolution", "convolution_alone"]


def convolution_alone(op: ir.Operation, symbols: Symbols, reason: str) -> tuple[ir.Value, ir.Value]:
    """``aten.convolution`` for cuDNN: a bias is a pass of its own for ATen, and part of the next kernel here. PyTorch's
    kernels of depthwise convolutions take it.
    """
    is_depthwise = ir.IntegerAttr(op.attributes["groups"]).value != 1 and _is_one(op.operands[1], 1)
    return convolution(op, symbols, reason, takes_bias=is_depthwise)


def _is_one(value: ir.Value, dim: int) -> bool:
    return ir.RankedTensorType(value.type).shape[dim] == 1


def convolution(op: ir.Operation, symbols: Symbols, reason: str, takes_bias: bool = True) -> tuple[ir.Value, ir.Value]:
    """``aten.convolution``, with the bias that is added right after it where nothing else reads the convolution."""
    result = op.results[0]
    bias, replaced = _bias(result) if takes_bias else (None, result)
    attributes = op.attributes
    if "shape" not in attributes and not ir.RankedTensorType(result.type).has_static_shape:
        raise InvalidIRError("kiln.conv: a dynamic result needs the attribute 'shape'", str(op.location))
    shape = (
        ir.AffineMapAttr(attributes["shape"]).value
        if "shape" in attributes
        else static_sizes(ir.RankedTensorType(result.type).shape)
    )
    strides = ir.AffineMapAttr(attributes["strides"]).value if "strides" in attributes else None
    (shape, strides), values = symbols.pack(op, [shape, strides])
    inputs = [op.operands[0], op.operands[1], *([bias] if bias is not None else [])]
    args = [
        {"operand": 0},
        {"operand": 1},
        {"operand": 2} if bias is not None else None,
        *(list(ir.DenseI64ArrayAttr(attributes[name])) for name in ("stride", "padding", "dilation")),
        bool(ir.IntegerAttr(attributes["transposed"]).value),
        list(ir.DenseI64ArrayAttr(attributes["output_padding"])),
        ir.IntegerAttr(attributes["groups"]).value,
    ]
    # Behind the addition: the bias may be computed between the two.
    with ir.InsertionPoint(replaced.owner.operation), op.location:
        call = kiln.aten(
            "aten.convolution.default", inputs, args, {}, [replaced.type], [shape], [strides], values, reason=reason
        )
    return replaced, call.results[0]


def _bias(result: ir.Value) -> tuple[ir.Value | None, ir.Value]:
    """The bias added to a convolution's only use, and the value that takes the place of both."""
    uses = list(result.uses)
    if len(uses) == 1:
        user = uses[0].owner.operation
        if user.name == "linalg.generic" and "conv_bias" in user.attributes and user.operands[0] == result:
            return user.operands[1], user.results[0]
    return None, result
