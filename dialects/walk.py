# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Walking over IR: to the op that defines a value, and over nested ops."""

from collections.abc import Iterable, Iterator

from torch_mlir import ir

from kiln.dialects.kiln import EmptyOp, PackOp, YieldOp
from kiln.dialects.memo import type_text

__all__ = ["BlockTail", "defining_op", "enclosing", "is_structural", "ops_inside", "tensors_among"]


def defining_op(value: ir.Value) -> ir.Operation | None:
    """The op whose result `value` is; None for a block argument."""
    # By class, which the bindings know of each value: `isinstance` takes longer where the answer is no.
    if type(value) is ir.BlockArgument:
        return None
    owner = value.owner
    return None if type(owner) is ir.Block else owner.operation


def enclosing(op: ir.Operation | ir.OpView | ir.Block, name: str) -> ir.Operation:
    """The nearest op of that name that `op` is, or is inside of (`func.func`, `builtin.module`).

    Raises ValueError where there is none.
    """
    found = op.owner.operation if isinstance(op, ir.Block) else op.operation
    while found.name != name:
        parent = found.parent
        if parent is None:
            raise ValueError(f"no {name} encloses the op")
        found = parent.operation
    return found


def is_structural(op: ir.Operation) -> bool:
    """Whether an op stands for nothing in the model: ends of blocks, constants, destinations, packing."""
    names_nothing = isinstance(op.opview, EmptyOp | PackOp | YieldOp)
    return names_nothing or op.name in ("arith.constant", "func.return")


def ops_inside(op: ir.Operation) -> Iterator[ir.Operation]:
    """The ops in the regions of ``op``, at any depth, each before those inside of it.

    Unlike ``Operation.walk``, which calls back, it can be left at any op. Take a ``list`` before you erase any.
    """
    for region in op.regions:
        for block in region:
            for child in block:
                yield child.operation
                yield from ops_inside(child.operation)


class BlockTail:
    """The end of a block to which ops are appended, for taking back the latest ones.

    The length of a block is counted at each look, and so is the way to its last op; from one op to the next is a step.
    """

    def __init__(self, block: ir.Block) -> None:
        self._block = block
        self._last: ir.Operation | None = None

    def mark(self) -> ir.Operation | None:
        """The last op there is now; None in an empty block. No op up to it may be erased from here on."""
        for op in self._behind(self._last):
            self._last = op
        return self._last

    def erase_behind(self, mark: ir.Operation | None) -> None:
        """Erase the ops behind a mark, the last one first."""
        for op in reversed(list(self._behind(mark))):
            op.erase()

    def _behind(self, op: ir.Operation | None) -> Iterator[ir.Operation]:
        if op is None:
            first = next(iter(self._block.operations), None)
        else:
            first = ir.InsertionPoint.after(op).ref_operation
        while first is not None:
            op = first.operation
            yield op
            first = ir.InsertionPoint.after(op).ref_operation


def tensors_among(values: Iterable[ir.Value]) -> Iterator[ir.Value]:
    """The tensors of the torch dialect among ``values``, and in the lists among them, in order."""
    for value in values:
        if type_text(value.type).startswith("!torch.vtensor"):
            yield value
            continue
        list_ = defining_op(value)
        if list_ is not None and list_.name == "torch.prim.ListConstruct":
            yield from tensors_among(list_.operands)
