# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which named ops have a kernel of their own on a GPU; the others are taken apart."""

from torch_mlir import ir

from kiln.dialects.kiln import AttentionOp, ConvOp, MatmulOp, ScanOp, by_name, name_of
from kiln.lowering.tile.combiner import SCANS

__all__ = ["no_kernel"]


def no_kernel(op: ir.Operation) -> str | None:
    """Why `op`, a kiln.matmul, attention, scan or conv, has no kernel; None if it has one, or is another op."""
    rule = _RULES.get(name_of(op))
    return None if rule is None else rule(op, [ir.RankedTensorType(v.type) for v in op.operands])


_Types = list[ir.RankedTensorType]


def _no_product(op: ir.Operation, types: _Types) -> str | None:
    element = types[0].element_type
    result = ir.RankedTensorType(op.results[0].type).element_type
    if isinstance(element, ir.FloatType) or (str(element), str(result)) == ("i8", "i32"):
        return None
    return f"products of {element} have no kernel"


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


def _no_convolution(op: ir.Operation, types: _Types) -> str | None:
    if ir.IntegerAttr(op.attributes["transposed"]).value:
        return "transposed convolutions have no kernel"
    if not isinstance(types[0].element_type, ir.FloatType):
        return f"convolutions of {types[0].element_type} have no kernel"
    if not types[1].has_static_shape or 0 in types[1].shape:
        return "the convolution kernel needs a weight of known size, not empty"
    return None


_RULES = by_name({MatmulOp: _no_product, AttentionOp: _no_attention, ScanOp: _no_scan, ConvOp: _no_convolution})
