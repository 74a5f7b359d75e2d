# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Shape arithmetic on Python numbers."""

import operator
from typing import Any

from torch_mlir import ir

from kiln.dialects.memo import type_text
from kiln.dialects.walk import defining_op
from kiln.functions import Fn
from kiln.passes.torch_to_kiln.function_state import parse_tensor_type
from kiln.passes.torch_to_kiln.torch_values import NOT_CONSTANT, list_elements, python_value

__all__ = ["evaluate_scalar"]

_OPS: dict[str, Fn[Any, Any]] = {
    "torch.aten.add.int": operator.add,
    "torch.aten.add.float_int": operator.add,
    "torch.aten.sub.int": operator.sub,
    "torch.aten.sub.float": operator.sub,
    "torch.aten.mul.int": operator.mul,
    "torch.aten.mul.float": operator.mul,
    "torch.aten.mul.float_int": operator.mul,
    "torch.aten.mul.int_float": operator.mul,
    "torch.aten.floordiv.int": operator.floordiv,
    "torch.aten.remainder.int": operator.mod,
    "torch.aten.div.int": operator.truediv,
    "torch.aten.div.float": operator.truediv,
    "torch.aten.neg.int": operator.neg,
    "torch.aten.neg.float": operator.neg,
    "torch.aten.sqrt.int": lambda x: x**0.5,
    "torch.aten.Float.Scalar": float,
    "torch.aten.Int.Scalar": int,
    "torch.aten.Int.float": int,
    "torch.aten.Int.bool": int,
    "torch.prim.max.int": max,
    "torch.prim.min.int": min,
    "torch.prim.min.self_int": min,
    "torch.prim.max.self_int": max,
    "torch.aten.eq.int": operator.eq,
    "torch.aten.ne.int": operator.ne,
    "torch.aten.lt.int": operator.lt,
    "torch.aten.le.int": operator.le,
    "torch.aten.gt.int": operator.gt,
    "torch.aten.ge.int": operator.ge,
    "torch.aten.__not__": operator.not_,
    "torch.aten.len.t": len,
    "torch.aten.__getitem__.t": lambda items, i: items[i],
}


def evaluate_scalar(op: ir.Operation) -> Any:
    """The number that a scalar op gives, or NOT_CONSTANT: sizes of static tensors, arithmetic on constants."""
    if op.name in ("torch.aten.size.int", "torch.aten.dim", "torch.aten.numel", "torch.aten.size"):
        return _size(op)
    if op.name == "torch.aten.len.t":
        elements = list_elements(op.operands[0])
        return NOT_CONSTANT if elements is None else len(elements)
    if op.name == "torch.aten.__getitem__.t":
        return _item(op)
    compute = _OPS.get(op.name)
    if compute is None:
        return NOT_CONSTANT
    operands = [python_value(operand) for operand in op.operands]
    if any(value is NOT_CONSTANT or value is None for value in operands):
        return NOT_CONSTANT
    try:
        result = compute(*operands)
    except (ArithmeticError, ValueError, IndexError):
        return NOT_CONSTANT  # eager raises when it gets there: so does the op
    overflow = isinstance(result, int) and not -(2**63) <= result < 2**63
    return NOT_CONSTANT if overflow or isinstance(result, complex) else result


def _size(op: ir.Operation) -> Any:
    parsed = parse_tensor_type(type_text(op.operands[0].type))
    if parsed is None:
        return NOT_CONSTANT
    sizes = parsed[0]
    if op.name == "torch.aten.dim":
        return len(sizes)
    if op.name == "torch.aten.numel":
        count = 1
        for size in sizes:
            if size is None:
                return NOT_CONSTANT
            count *= size
        return count
    if op.name == "torch.aten.size":
        return NOT_CONSTANT
    dim = python_value(op.operands[1])
    if not isinstance(dim, int) or not -len(sizes) <= dim < len(sizes) or sizes[dim] is None:
        return NOT_CONSTANT
    return sizes[dim]


def _item(op: ir.Operation) -> Any:
    elements, index = list_elements(op.operands[0]), python_value(op.operands[1])
    if elements is None or not isinstance(index, int):
        source = defining_op(op.operands[0])
        parsed = (
            parse_tensor_type(type_text(source.operands[0].type))
            if source and source.name == "torch.aten.size"
            else None
        )
        if parsed is None or not isinstance(index, int) or not -len(parsed[0]) <= index < len(parsed[0]):
            return NOT_CONSTANT
        size = parsed[0][index]
        return NOT_CONSTANT if size is None else size
    if not -len(elements) <= index < len(elements):
        return NOT_CONSTANT
    return python_value(elements[index])
