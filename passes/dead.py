# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Erasing what a rewrite leaves without readers."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.kiln import Role, name_of, opdef

__all__ = ["erase_dead"]


def erase_dead(block: ir.Block, also: Sequence[str] = ()) -> None:
    """Erase views, concatenations and other data movement that nothing reads, and such ops of the names `also`."""
    for op in reversed([op.operation for op in block.operations]):
        is_candidate = opdef(op).role is Role.MOVEMENT or name_of(op) in also
        if is_candidate and not any(True for r in op.results for _ in r.uses):
            op.erase()
