# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Element types of vectors and blocks, for code that takes scalars too."""

from torch_mlir import ir

__all__ = ["element_of", "with_element"]


def element_of(type_: ir.Type) -> ir.Type:
    """The element type of a vector or block; a scalar's own type."""
    return type_.element_type if isinstance(type_, ir.VectorType | ir.RankedTensorType) else type_


def with_element(type_: ir.Type, element: ir.Type) -> ir.Type:
    """The same shape with another element type; ``element`` itself for a scalar."""
    if not isinstance(type_, ir.VectorType | ir.RankedTensorType):
        return element
    loc = ir.Location.unknown(element.context)  # verifiers call this where no location is current
    if isinstance(type_, ir.VectorType):
        return ir.VectorType.get(type_.shape, element, loc=loc)
    return ir.RankedTensorType.get(type_.shape, element, type_.encoding, loc)
