# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which ops of a kernel say where memory is touched: a backward slice from addresses, masks and branches."""

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.dialects.walk import ops_inside

__all__ = ["address_ops", "mask_operand", "segments"]

_ATOMICS = ("tt.atomic_rmw", "tt.atomic_cas")


def segments(op: ir.Operation) -> list[list[ir.Value]]:
    """The operand groups of an op with `operandSegmentSizes`."""
    operands = list(op.operands)
    found: list[list[ir.Value]] = []
    for size in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]):
        found.append(operands[:size])
        operands = operands[size:]
    return found


def mask_operand(op: ir.Operation, name: str) -> ir.Value | None:
    """The mask of a load, a store or an atomic op."""
    if name == "tt.load":
        masks = segments(op)[1]
        return masks[0] if masks else None
    if name in ("tt.store", "tt.atomic_rmw"):
        return op.operands[2] if len(op.operands) > 2 else None
    return None


def address_ops(function: ir.Operation) -> set[ir.Operation]:
    """The ops on whose results an address, a mask, a branch or a loop's bounds depend."""
    found: set[ir.Operation] = set()
    stack: list[ir.Value] = []
    for op in ops_inside(function):
        stack += _addresses(op.operation)
    seen: set[ir.Value] = set()
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        owner = value.owner
        if isinstance(owner, ir.Block):
            stack += _carried(owner, ir.BlockArgument(value).arg_number)
            continue
        op = owner.operation
        found.add(op)
        name = name_of(op)
        if name in ("tt.load", "tt.descriptor_load", *_ATOMICS):
            continue  # any value; where it lies is a root of its own
        if name in ("scf.for", "scf.if"):
            stack += _results(op, name, ir.OpResult(value).result_number)
            continue
        stack += list(op.operands)
    return found


def _addresses(op: ir.Operation) -> list[ir.Value]:
    name = name_of(op)
    if name in ("tt.load", "tt.store", *_ATOMICS):
        mask = mask_operand(op, name)
        return [op.operands[0], *([] if mask is None else [mask])]
    if name == "tt.descriptor_load":
        return list(op.operands)
    if name == "tt.descriptor_store":
        return [op.operands[0], *list(op.operands)[2:]]
    if name == "scf.if":
        return [op.operands[0]]
    return list(op.operands)[:3] if name == "scf.for" else []


def _carried(block: ir.Block, number: int) -> list[ir.Value]:
    """What an argument of a loop's body is made of."""
    owner = block.owner
    op = owner.operation if isinstance(owner, ir.OpView) else owner
    if name_of(op) != "scf.for" or number == 0:
        return []
    last = list(block.operations)[-1].operation
    return [op.operands[2 + number], last.operands[number - 1]]


def _results(op: ir.Operation, name: str, number: int) -> list[ir.Value]:
    """What a result of a loop or a branch is made of."""
    passed = [
        list(region.blocks[0].operations)[-1].operation.operands[number] for region in op.regions if len(region.blocks)
    ]
    return [op.operands[3 + number], *passed] if name == "scf.for" else passed
