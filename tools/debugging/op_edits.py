# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Edits of one op that make a module smaller: without the op, or with something simpler in its place."""

from collections.abc import Callable
from itertools import takewhile

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.tools.debugging import editing

__all__ = ["CHOICES", "EDITS", "EditOfOp"]

EditOfOp = Callable[[ir.Module, ir.Operation, int], bool]
"""Simplifies an op in one of several ways, by number; whether it did."""

CHOICES = 4
"""Ways of an edit that are tried."""


def _as_argument(module: ir.Module, op: ir.Operation, choice: int) -> bool:
    """Its tensors become arguments of the function."""
    function = editing.entry_of(module)
    if choice or op not in editing.computing_ops(function):
        return False
    return editing.cut(function, [op])


def _as_operand(module: ir.Module, op: ir.Operation, choice: int) -> bool:
    """Each result is one of its operands, an argument of its block or what ops before it compute, that has its type."""
    results = [result for result in op.results if any(True for _ in result.uses)]
    if editing.is_end(op) or not results:
        return False
    before = takewhile(lambda other: other != op, (other.operation for other in op.block.operations))
    earlier = [v for other in before if not other.name.startswith(editing.FREE) for v in other.results]
    given = [v for v in dict.fromkeys([*op.operands, *op.block.arguments, *earlier]) if not _is_unwritten(v)]
    others = [[v for v in given if v.type == result.type][choice : choice + 1] for result in results]
    if not all(others):
        return False
    for result, other in zip(results, others, strict=True):
        result.replace_all_uses_with(other[0])
    op.erase()
    editing.erase_dead(editing.entry_of(module))
    return True


def _is_unwritten(value: ir.Value) -> bool:
    """Whether it is memory that holds anything: what reads it gives other numbers in each form of a module."""
    op = defining_op(value)
    return op is not None and op.name.startswith("kiln.empty")


def _as_number(module: ir.Module, op: ir.Operation, choice: int) -> bool:
    """A scalar, or all of a vector, becomes 1, or else 0."""
    if choice > 1 or len(op.results) != 1 or op.name.startswith(editing.FREE) or op.parent is None:
        return False
    result = op.results[0]
    is_vector = isinstance(result.type, ir.VectorType)
    scalar = result.type.element_type if is_vector else result.type
    if isinstance(scalar, ir.FloatType):
        value: ir.Attribute = ir.FloatAttr.get(scalar, 1 - choice)
    elif isinstance(scalar, ir.IntegerType | ir.IndexType):
        value = ir.IntegerAttr.get(scalar, 1 - choice)
    else:
        return False
    value = ir.DenseElementsAttr.get_splat(result.type, value) if is_vector else value
    name = "llvm.mlir.constant" if op.name.startswith("llvm.") else "arith.constant"
    with ir.InsertionPoint(op), op.location:
        constant = ir.Operation.create(name, results=[result.type], attributes={"value": value})
    result.replace_all_uses_with(constant.results[0])
    op.erase()
    editing.erase_dead(editing.entry_of(module))
    return True


def _erased(module: ir.Module, op: ir.Operation, choice: int) -> bool:
    """An op that only writes."""
    if choice or len(op.results) or editing.is_end(op):
        return False
    op.erase()
    editing.erase_dead(editing.entry_of(module))
    return True


def _inlined(module: ir.Module, op: ir.Operation, choice: int) -> bool:
    """The ops of a fusion in its place."""
    if choice or not op.name.startswith("kiln.fusion"):
        return False
    body = op.regions[0].blocks[0]
    for argument, operand in zip(list(body.arguments), list(op.operands), strict=True):
        argument.replace_all_uses_with(operand)
    for inner in [inner.operation for inner in body.operations]:
        if inner.name.startswith("kiln.yield"):
            for result, value in zip(list(op.results), list(inner.operands), strict=True):
                result.replace_all_uses_with(value)
            inner.erase()
        else:
            inner.move_before(op)
    op.erase()
    return True


def _fewer_inputs(module: ir.Module, op: ir.Operation, choice: int) -> bool:
    """Loops without the tensors that they do not read."""
    if choice or op.name != "linalg.generic":
        return False
    block = op.regions[0].blocks[0]
    inputs, outputs = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    unread = [k for k in range(inputs) if not any(True for _ in block.arguments[k].uses)]
    if not unread:
        return False
    kept = [k for k in range(inputs + outputs) if k not in unread]
    maps = list(ir.ArrayAttr(op.attributes["indexing_maps"]))
    attributes = {key: op.attributes[key] for key in op.attributes} | {
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([inputs - len(unread), outputs]),
        "indexing_maps": ir.ArrayAttr.get([maps[k] for k in kept]),
    }
    with ir.InsertionPoint(op), op.location:
        types, operands = [r.type for r in op.results], [op.operands[k] for k in kept]
        new = ir.Operation.create(op.name, results=types, operands=operands, attributes=attributes, regions=1)
    block.append_to(new.regions[0])
    for k in reversed(unread):
        block.erase_argument(k)
    for old, result in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    op.erase()
    editing.erase_dead(editing.entry_of(module))
    return True


def _one_way(module: ir.Module, op: ir.Operation, choice: int) -> bool:
    """A branch that is always, or never, taken."""
    if op.name != "llvm.cond_br" or choice > 1:
        return False
    _, taken, _ = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    operands = list(op.operands)[1:]
    with ir.InsertionPoint(op), op.location:
        given = operands[taken:] if choice else operands[:taken]
        ir.Operation.create("llvm.br", operands=given, successors=[op.successors[choice]])
    op.erase()
    editing.erase_dead(editing.entry_of(module))
    return True


EDITS: tuple[EditOfOp, ...] = (_as_argument, _erased, _inlined, _as_operand, _as_number, _fewer_inputs, _one_way)
