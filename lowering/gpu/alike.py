# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Parts of a fusion that compute the same from different tensors (q, k and v): one piece of code serves them all.

Three sections with a product each took Triton three times as long as one, and that kernel was the longest of a model.
"""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.schedules import Schedule
from kiln.lowering.tile.body import FusionBody

__all__ = ["alike_parts"]


def alike_parts(
    parts: Sequence[FusionBody],
    layouts: Sequence[ir.AffineMap],
    unaligned: set[int],
    schedules: Sequence[Schedule | None],
) -> list[list[tuple[int, dict[int, int]]]]:
    """Groups of parts with products that differ in nothing but the tensors they read and write, in order.

    schedules: of each part; empty if there are none yet. Of each part: its number, and the pointers that it has in
    place of those of the group's first part.
    """
    groups: list[list[tuple[int, dict[int, int]]]] = []
    for number, part in enumerate(parts):
        for group in groups:
            first = group[0][0]
            if schedules and schedules[first] != schedules[number]:
                continue
            pointers = _correspondence(parts[first], part, layouts, unaligned)
            if pointers is not None:
                group.append((number, pointers))
                break
        else:
            groups.append([(number, {})])
    return groups


def _correspondence(
    first: FusionBody, other: FusionBody, layouts: Sequence[ir.AffineMap], unaligned: set[int]
) -> dict[int, int] | None:
    """Pointer of `first` -> pointer of `other` (tensors, then results); None if the parts differ."""
    if not any(kiln.name_of(op.operation) == "kiln.matmul" for op in first.operations):
        return None
    values: dict[ir.Value, ir.Value] = {}
    count = len(first.tensors)
    numbers = {value: i for i, value in enumerate(first.tensors)}
    found: dict[int, int] = {}

    def operands_match(mine: ir.Value, theirs: ir.Value) -> bool:
        if mine in values:
            return values[mine] == theirs
        if mine in numbers and theirs in numbers:
            found[numbers[mine]] = numbers[theirs]
            values[mine] = theirs
            return mine.type == theirs.type
        return mine == theirs

    def same(mine: Sequence[ir.Operation], theirs: Sequence[ir.Operation]) -> bool:
        return len(mine) == len(theirs) and all(map(same_op, mine, theirs))

    def same_op(mine: ir.Operation, theirs: ir.Operation) -> bool:
        if mine.name != theirs.name or len(mine.operands) != len(theirs.operands):
            return False
        if {a: mine.attributes[a] for a in mine.attributes} != {a: theirs.attributes[a] for a in theirs.attributes}:
            return False
        if [r.type for r in mine.results] != [r.type for r in theirs.results]:
            return False
        if not all(map(operands_match, mine.operands, theirs.operands)):
            return False
        for a, b in zip(mine.regions, theirs.regions, strict=True):
            for block, twin in zip(a.blocks, b.blocks, strict=True):
                values.update(zip(block.arguments, twin.arguments, strict=True))
                if not same([op.operation for op in block], [op.operation for op in twin]):
                    return False
        values.update(zip(mine.results, theirs.results, strict=True))
        return True

    if len(first.mine) != len(other.mine):
        return None
    if not same(_in_order(first), _in_order(other)):
        return None
    for i, k in zip(first.mine, other.mine, strict=True):
        if values.get(first.roots[i]) != other.roots[k]:
            return None
        found[count + i] = count + k
    if any(layouts[i] != layouts[k] or (i in unaligned) != (k in unaligned) for i, k in found.items()):
        return None
    return found


def _in_order(part: FusionBody) -> list[ir.Operation]:
    """The part's ops, what depends on no tensor first: parts that share it have it in different places."""
    return sorted((op.operation for op in part.operations), key=lambda op: kiln.name_of(op) not in _WITHOUT_TENSORS)


_WITHOUT_TENSORS = ("kiln.empty", "arith.constant")
