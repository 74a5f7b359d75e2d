# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which named ops have a kernel of their own on the CPU; the others are taken apart."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.kiln import AttentionOp, ConvOp, MatmulOp, ScanOp, by_name, name_of
from kiln.lowering.tile.combiner import SCANS

__all__ = ["no_kernel"]


def no_kernel(op: ir.Operation) -> str | None:
    """Why `op`, a kiln.matmul, attention, scan or conv, has no kernel; None if it has one, or is another op."""
    rule = _RULES.get(name_of(op))
    return None if rule is None else rule(op, [ir.RankedTensorType(v.type) for v in op.operands])


_Types = Sequence[ir.RankedTensorType]


def _no_product(op: ir.Operation, types: _Types) -> str | None:
    element = types[0].element_type
    if isinstance(element, ir.FloatType):
        return None
    result = ir.RankedTensorType(op.results[0].type).element_type
    return None if (str(element), str(result)) == ("i8", "i32") else f"products of {element} have no kernel"


def _no_attention(op: ir.Operation, types: _Types) -> str | None:
    if isinstance(types[0].element_type, ir.F64Type):
        return "the attention kernel sums in f32"
    if any(t.is_dynamic_dim(t.rank - 1) or not t.shape[-1] for t in types[:3]):
        return "the attention kernel needs head sizes that are known and not zero"
    return None


def _no_scan(op: ir.Operation, types: _Types) -> str | None:
    if ir.StringAttr(op.attributes["kind"]).value in SCANS and len(op.results) == 1:
        return None
    return "a running maximum or the like has no kernel"


_WINDOW = 32
"""Columns of a window that a convolution's kernel writes out."""


def _no_convolution(op: ir.Operation, types: _Types) -> str | None:
    weight = types[1]
    if weight.rank > 5:
        return "convolutions over more than three dims have no kernel"
    if not weight.has_static_shape or 0 in weight.shape:
        return "the convolution kernel needs a weight of known size, not empty"
    if weight.shape[-1] > _WINDOW:
        return f"the convolution kernel takes windows of at most {_WINDOW} columns"
    stride = list(ir.DenseI64ArrayAttr(op.attributes["stride"]))
    if ir.IntegerAttr(op.attributes["transposed"]).value and stride[-1] > _WINDOW:
        return f"the kernel of transposed convolutions takes strides of at most {_WINDOW} columns"
    return None


_RULES = by_name({MatmulOp: _no_product, AttentionOp: _no_attention, ScanOp: _no_scan, ConvOp: _no_convolution})
