# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sizes of an op's tensors as numbers, at the kiln stage: those known at run time only as what they were about."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.shapes import SymbolicShapes

__all__ = ["are_known", "likely_sizes"]


def likely_sizes(values: Sequence[ir.Value], unknown: int | None = None) -> list[list[int]] | None:
    """Those of each tensor. Where nothing tells what a size known at run time only was about when the graph was traced
    (`kiln.hint`) it is `unknown`; without that number, None instead of all.
    """
    if are_known(values):
        return [list(ir.RankedTensorType(v.type).shape) for v in values]
    block = next(v.owner if isinstance(v.owner, ir.Block) else v.owner.operation.block for v in values)
    shapes = SymbolicShapes(block.owner)
    likely = [[unknown if (n := shapes.hint(e)) is None else n for e in shapes.dims(v)] for v in values]
    found = [[n for n in sizes if n is not None] for sizes in likely]
    return found if found == likely else None


def are_known(values: Sequence[ir.Value]) -> bool:
    """Whether all sizes of the tensors are numbers."""
    return all(ir.RankedTensorType(v.type).has_static_shape for v in values)
