# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How numbers flow through the body of a fusion: from scalars of loops into tensors, and into loops again."""

from collections.abc import Iterator

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import reduction_dims

__all__ = ["Dataflow", "scalar_ops", "yielded"]


class Dataflow:
    """The body of one fusion. A tensor stands for its elements: `sources` and `readers` of a value are the scalars and
    tensors that it is computed from, or that are computed from it, in one step.
    """

    def __init__(self, fusion: ir.Operation) -> None:
        self.block = fusion.regions[0].blocks[0]
        self.ops = [op.operation for op in self.block.operations][:-1]
        self.generics = [op for op in self.ops if op.name == "linalg.generic"]
        self.roots = list(list(self.block.operations)[-1].operands)
        self._stored = set(self.roots)

    def is_stored(self, value: ir.Value) -> bool:
        """Whether a tensor is a result of the fusion."""
        return value in self._stored

    def sources(self, value: ir.Value) -> list[ir.Value]:
        """What `value` is computed from; empty for arguments of the fusion."""
        op = defining_op(value)
        if op is None:
            owner = value.owner
            assert isinstance(owner, ir.Block)
            if owner == self.block:
                return []
            return [owner.owner.operation.operands[ir.BlockArgument(value).arg_number]]
        if op.name != "linalg.generic":
            return list(op.operands)
        number = ir.OpResult(value).result_number
        carried = [op.operands[len(op.operands) - len(op.results) + number]] if reduction_dims(op.opview) else []
        return [yielded(op)[number], *carried]

    def readers(self, value: ir.Value) -> Iterator[tuple[ir.Operation, ir.Value | None]]:
        """Each op that reads `value`, and what the elements become there: the argument of a loop's body for an operand,
        the loop's result for what is yielded, the results of other ops; None for what leaves the body.
        """
        for use in value.uses:
            op, number = use.owner.operation, use.operand_number
            if op.name == "linalg.generic":
                yield op, op.regions[0].blocks[0].arguments[number]
            elif op.name == "linalg.yield":
                owner = op.parent
                assert owner is not None
                yield op, owner.operation.results[number]
            elif name_of(op) == "kiln.yield":
                yield op, None
            else:
                for result in op.results:
                    yield op, result


def scalar_ops(generic: ir.Operation) -> list[ir.Operation]:
    """The ops of a loop's body, without the last."""
    return [op.operation for op in generic.regions[0].blocks[0].operations][:-1]


def yielded(generic: ir.Operation) -> list[ir.Value]:
    """What a loop's body yields."""
    return list(list(generic.regions[0].blocks[0].operations)[-1].operands)
