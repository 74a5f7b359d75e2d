# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the passes that emit kernels share."""

from torch_mlir import ir

from kiln.dialects import kiln

__all__ = ["fusions_of", "unused_name"]


def fusions_of(module: ir.Module) -> list[ir.OpView]:
    """The fusions of every function, in order."""
    return [
        op
        for function in module.body
        for region in function.operation.regions
        for block in region
        for op in block
        if isinstance(op, kiln.FusionOp)
    ]


def unused_name(stem: str, taken: set[str]) -> str:
    """`stem`, with a number if another kernel has that name."""
    name, count = stem, 0
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    return name
