# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The nests of a fusion's loops on a GPU: side by side in the grid, pieces of a concatenation as their own programs."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.lowering import paths
from kiln.lowering.gpu.rules import LoopRules, rules_for
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.pieces import Group, cut_group, whole_groups

__all__ = ["nest_groups"]

_TAKEN = paths.group("gpu cuts", "at concatenations", "pieces in one nest")
_MOST_PIECES = 32
"""Pieces of one nest. Not measured: it bounds the code that follows a concatenation, which each piece repeats."""


def nest_groups(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> list[Group]:
    """The nests of loops that compute a fusion's results, as `emit_kernel` puts them side by side."""
    found: list[Group] = []
    for group in whole_groups(body):
        pieces = cut_group(body, layouts, group, rules_for(LoopRules).piece_run, _MOST_PIECES)
        if pieces != [group]:
            _TAKEN("at concatenations")
        if any(len(piece.stored) > len(group.stored) for piece in pieces):
            _TAKEN("pieces in one nest")
        found += pieces
    return found
