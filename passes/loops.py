# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Loops over tensors that passes put in."""

from collections.abc import Sequence

from torch_mlir import ir

__all__ = ["generic"]


def generic(
    inputs: Sequence[ir.Value], out: ir.Value, maps: Sequence[ir.AffineMap], kinds: Sequence[str]
) -> ir.Operation:
    """A `linalg.generic` at the insertion point, without a body: its region has no block yet.

    Args:
        inputs: operands.
        out: what the result is written to; it has its type.
        maps: indexing maps of the inputs, then of `out`.
        kinds: "parallel" or "reduction" for each loop.
    """
    return ir.Operation.create(
        "linalg.generic",
        results=[out.type],
        operands=[*inputs, out],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{k}>") for k in kinds]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
        },
        regions=1,
    )
