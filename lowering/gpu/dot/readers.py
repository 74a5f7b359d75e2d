# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What reads the result of an op at the kiln stage, and what a value is a view of."""

from collections.abc import Iterator

from torch_mlir import ir

from kiln.dialects import kiln

__all__ = ["generic_readers", "source"]


def generic_readers(value: ir.Value) -> Iterator[ir.Operation]:
    """The `linalg.generic` that read a value, also through a view that is its only reader: several views read elements
    that other tiles have.
    """
    uses = list(value.uses)
    for use in uses:
        reader = use.owner.operation
        if kiln.name_of(reader) == "kiln.view" and len(uses) == 1:
            yield from generic_readers(reader.results[0])
        elif kiln.name_of(reader) == "linalg.generic":
            yield reader


def source(value: ir.Value) -> ir.Value:
    """What a value is, or is a view of."""
    while not isinstance(value.owner, ir.Block) and kiln.name_of(value.owner) == "kiln.view":
        value = value.owner.operation.operands[0]
    return value
