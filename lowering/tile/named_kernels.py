# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which named ops have no kernel of their own, as far as all targets agree."""

from collections.abc import Callable, Sequence

from torch_mlir import ir

from kiln.dialects.kiln import AttentionOp, MatmulOp, ScanOp, by_name
from kiln.lowering.tile.combiner import SCANS

__all__ = ["SHARED_RULES", "Rule"]

Rule = Callable[[ir.Operation, Sequence[ir.RankedTensorType]], str | None]
"""Why an op, given the types of its operands, has no kernel; None if it has one."""


def _no_product(op: ir.Operation, types: Sequence[ir.RankedTensorType]) -> str | None:
    element = types[0].element_type
    if isinstance(element, ir.FloatType):
        return None
    result = ir.RankedTensorType(op.results[0].type).element_type
    return None if (str(element), str(result)) == ("i8", "i32") else f"products of {element} have no kernel"


def _no_attention(op: ir.Operation, types: Sequence[ir.RankedTensorType]) -> str | None:
    if isinstance(types[0].element_type, ir.F64Type):
        return "the attention kernel sums in f32"
    if any(t.is_dynamic_dim(t.rank - 1) or not t.shape[-1] for t in types[:3]):
        return "the attention kernel needs head sizes that are known and not zero"
    return None


def _no_scan(op: ir.Operation, types: Sequence[ir.RankedTensorType]) -> str | None:
    if ir.StringAttr(op.attributes["kind"]).value in SCANS and len(op.results) == 1:
        return None
    return "a running maximum or the like has no kernel"


SHARED_RULES: dict[str, Rule] = by_name({MatmulOp: _no_product, AttentionOp: _no_attention, ScanOp: _no_scan})
"""By the op's name."""
