# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which values have one memory, as the pass reuse-buffers decided."""

from torch_mlir import ir

from kiln.errors import InvalidIRError
from kiln.lowering.host.layout import HostGraph

__all__ = ["shared_memory"]


def shared_memory(graph: HostGraph) -> dict[ir.Value, ir.Value]:
    """Result of a fusion -> the value whose memory it is written to, for `in_place` and `writes` of all fusions."""
    found: dict[ir.Value, ir.Value] = {}
    for op in graph.operations:
        operation = op.operation
        tensors = [v for v in operation.operands if isinstance(v.type, ir.RankedTensorType)]
        for operand, result in _pairs(operation, "in_place"):
            layout = graph.layout(tensors[operand])
            if layout is None:
                raise InvalidIRError("in_place: the operand has no layout", str(operation.location))
            found[operation.results[result]] = found.get(layout.root, layout.root)
        for result, argument in _pairs(operation, "writes"):
            found[operation.results[result]] = graph.arguments[argument]
    return found


def _pairs(op: ir.Operation, name: str) -> list[tuple[int, int]]:
    if name not in op.attributes:
        return []
    numbers = list(ir.DenseI64ArrayAttr(op.attributes[name]))
    return list(zip(numbers[::2], numbers[1::2], strict=True))
