# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where the dims of a fusion's operands are in its results, and the products and convolutions of its body."""

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import ConvOp, MatmulOp, name_of
from kiln.lowering.tile.body import indexing_maps

__all__ = ["KernelDims"]


class KernelDims:
    """Found in one walk over the body, for all operands and results; holds for as long as the body is not changed.

    named: the products and convolutions, in order.
    """

    def __init__(self, fusion: ir.Operation) -> None:
        self._block = fusion.regions[0].blocks[0]
        self.named = [op.operation for op in self._block if isinstance(op.operation.opview, MatmulOp | ConvOp)]
        self._places: dict[ir.Value, list[int]] | None = None
        self._first: list[int] = []  # per result, the bit of its first dim

    def image_of(self, operand: int) -> ir.Operation | None:
        """The convolution that has an operand as its image."""
        return self._convolution_of(operand, 0)

    def weight_of(self, operand: int) -> ir.Operation | None:
        """The convolution that has an operand as its weight."""
        return self._convolution_of(operand, 1)

    def _convolution_of(self, operand: int, number: int) -> ir.Operation | None:
        argument = None
        for op in self.named:
            if name_of(op) == "kiln.conv":
                argument = self._block.arguments[operand] if argument is None else argument
                if op.operands[number] == argument:
                    return op
        return None

    def places(self, source: ir.Value, result: ir.Value) -> list[int | None]:
        """Which dim of a value in the body, or None, each dim of one of the results is, on some way between them.

        Ops other than loops and views (windows, pads, concatenations) leave dims in their places.
        """
        if self._places is None:
            self._places = self._walk()
        first = self._first[ir.OpResult(result).result_number]
        reached = self._places.get(source, [])
        found: list[int | None] = []
        for place in range(ir.RankedTensorType(result.type).rank):
            bit = 1 << (first + place)
            found.append(next((dim for dim, bits in enumerate(reached) if bits & bit), None))
        return found

    def _walk(self) -> dict[ir.Value, list[int]]:
        """For each dim of each value the dims of the results that it gets to: those of all results have a bit each."""
        *operations, last = list(self._block.operations)
        found: dict[ir.Value, list[int]] = {}
        bits = 0
        for root in last.operands:
            self._first.append(bits)
            mine = found.setdefault(root, [0] * _rank(root))
            for dim in range(len(mine)):
                mine[dim] |= 1 << (bits + dim)
            bits += len(mine)
        for op in reversed(operations):
            for target in op.results:
                reached = found.get(target)
                if reached is None or not any(reached):
                    continue
                for number, operand in enumerate(op.operands):
                    mine = found.setdefault(operand, [0] * _rank(operand))
                    for dim, place in enumerate(_moved(op, number, len(mine), len(reached))):
                        mine[dim] |= 0 if place is None else reached[place]
        return found


def _rank(value: ir.Value) -> int:
    return ir.RankedTensorType(value.type).rank if isinstance(value.type, ir.RankedTensorType) else 0


def _moved(op: ir.OpView, number: int, rank: int, target_rank: int) -> list[int | None]:
    """Which dim of a result, or None, each dim of an operand is. rank, target_rank: theirs."""
    if op.operation.name == "linalg.generic":
        maps = indexing_maps(op)
        written = maps[len(op.operands) - len(op.results)].results
        at = {e.position: i for i, e in reversed(list(enumerate(written))) if isinstance(e, ir.AffineDimExpr)}
        return [min((at[d] for d in affine.dims_in(e) if d in at), default=None) for e in maps[number].results]
    if name_of(op) == "kiln.view":
        walked = ir.AffineMapAttr(op.operation.attributes["map"]).value.results
        return [min(affine.dims_in(e), default=None) for e in list(walked)[:rank]]
    return [place if place < target_rank else None for place in range(rank)]
