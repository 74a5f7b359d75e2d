# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Elementwise ``linalg.generic`` ops: recognising them, following them, rebuilding them on other loops."""

from torch_mlir import ir

from kiln.dialects import affine

__all__ = ["expanding_view", "is_elementwise", "rebuild_elementwise", "shifted"]


def is_elementwise(op: ir.Operation) -> bool:
    """All loops parallel, one result written in loop order, no use of the loop indices."""
    iterators = [str(i) for i in ir.ArrayAttr(op.attributes["iterator_types"])]
    maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
    if len(op.results) != 1 or any("parallel" not in i for i in iterators):
        return False
    if maps[-1] != ir.AffineMap.get_identity(len(iterators)):
        return False
    block = op.regions[0].blocks[0]
    inner = [o.operation.name for o in block.operations]
    reads_out = any(True for _ in block.arguments[len(block.arguments) - 1].uses)
    return not reads_out and "linalg.index" not in inner and "tensor.extract" not in inner


def expanding_view(value: ir.Value, seen: set[ir.Value] | None = None) -> ir.Value | None:
    """The first view with more dims that a chain of elementwise ops from ``value`` ends in."""
    seen = set() if seen is None else seen
    if value in seen:
        return None
    seen.add(value)
    rank = ir.RankedTensorType(value.type).rank
    for use in value.uses:
        user = use.owner.operation
        if user.name == "kiln.view" and ir.RankedTensorType(user.results[0].type).rank > rank:
            return user.results[0]
        if user.name == "linalg.generic" and is_elementwise(user):
            found = expanding_view(user.results[0], seen)
            if found is not None:
                return found
    return None


def shifted(expr: ir.AffineExpr, count: int) -> ir.AffineExpr:
    """``expr`` with every dim moved up by ``count``."""
    return affine.substitute(expr, {k: ir.AffineExpr.get_dim(k + count) for k in affine.dims_in(expr)})


def rebuild_elementwise(
    op: ir.Operation, operands: list[ir.Value], maps: list[list[ir.AffineExpr]], loops: int
) -> ir.Value:
    """An elementwise ``linalg.generic`` with the body of ``op``, which is left without one, and what is said of it."""
    new = ir.Operation.create(
        "linalg.generic",
        results=[operands[-1].type],
        operands=operands,
        attributes={name: op.attributes[name] for name in op.attributes}
        | {
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(ir.AffineMap.get(loops, 0, m)) for m in maps]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * loops),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands) - 1, 1]),
        },
        regions=1,
    )
    op.regions[0].blocks[0].append_to(new.regions[0])
    return new.results[0]
