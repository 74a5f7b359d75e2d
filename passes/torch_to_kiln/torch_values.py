# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reading of ops and operands in the torch dialect: names, constants, lists, and integer arithmetic on sizes."""

from typing import Any

from torch_mlir import ir

from kiln.dialects.walk import defining_op

from .sizes import Expr, as_expr, constant_of

__all__ = ["ELSEWHERE", "NOT_CONSTANT", "arithmetic", "list_elements", "number_of", "op_name", "python_value"]

ELSEWHERE = "torch.elsewhere."
"""Before the name of an op that reads or makes a tensor on another device than the graph's, and must be a call."""


class _NotConstant:
    def __repr__(self) -> str:
        return "NOT_CONSTANT"


NOT_CONSTANT = _NotConstant()
"""What :func:`python_value` returns for a value that is known only at run time."""


def op_name(op: ir.Operation) -> str:
    """The name a rule is found by: the op's own, or what a ``torch.operator`` calls (with ``ELSEWHERE`` before it, so
    that neither rules nor patterns find it, where its tensors are on another device).
    """
    if op.name == "torch.operator":
        return ir.StringAttr(op.attributes["name"]).value
    return op.name


def list_elements(value: ir.Value) -> list[ir.Value] | None:
    """The elements of a ``torch.prim.ListConstruct`` (or tuple); None for anything else."""
    op = defining_op(value)
    if op is None or op.name not in ("torch.prim.ListConstruct", "torch.prim.TupleConstruct"):
        return None
    return list(op.operands)


def python_value(value: ir.Value) -> Any:
    """The Python value of a constant operand: int, float, bool, str, None, or a list of these; else NOT_CONSTANT.

    A device comes as its name. ``torch.derefine`` is looked through.
    """
    op = defining_op(value)
    if op is None:
        return NOT_CONSTANT
    name = op.name
    if name == "torch.constant.none":
        return None
    if name == "torch.constant.int":
        return ir.IntegerAttr(op.attributes["value"]).value
    if name == "torch.constant.float":
        return ir.FloatAttr(op.attributes["value"]).value
    if name == "torch.constant.bool":
        return bool(ir.IntegerAttr(op.attributes["value"]).value)
    if name in ("torch.constant.str", "torch.constant.device"):
        return ir.StringAttr(op.attributes["value"]).value
    if name == "torch.derefine":
        return python_value(op.operands[0])
    elements = list_elements(value)
    if elements is None:
        return NOT_CONSTANT
    values = [python_value(element) for element in elements]
    return NOT_CONSTANT if any(v is NOT_CONSTANT for v in values) else values


def number_of(value: ir.Value) -> ir.Value | None:
    """The Python number that a 0-d tensor was made from by the importer (``prim.NumToTensor.Scalar``), else None.

    FxImporter wraps a number so where an op takes only tensors; PyTorch's promotion still sees a number.
    """
    op = defining_op(value)
    return op.operands[0] if op is not None and op.name == "torch.prim.NumToTensor.Scalar" else None


def arithmetic(name: str, args: list[Expr]) -> Expr | None:
    """The result of a torch op on integers that are affine expressions; None where it is not affine."""
    constants = [constant_of(arg) for arg in args]
    if name in ("torch.aten.neg.int", "torch.aten.neg"):
        return args[0] * -1
    if len(args) != 2:
        return None
    x, y = args
    if name in ("torch.aten.add.int", "torch.aten.add"):
        return x + y
    if name in ("torch.aten.sub.int", "torch.aten.sub"):
        return x + y * -1
    if name in ("torch.aten.mul.int", "torch.aten.mul"):
        return x * y
    a, b = constants
    if name in ("torch.aten.floordiv.int", "torch.aten.floordiv"):
        if a is not None and b:
            return as_expr(a // b)
        # Affine division and mod are defined for positive divisors only; a symbol stands for a size.
        return ir.AffineExpr.get_floor_div(x, y) if b is None or b > 0 else None
    if name in ("torch.aten.remainder.int", "torch.aten.remainder"):
        if a is not None and b:
            return as_expr(a % b)
        return ir.AffineExpr.get_mod(x, y) if b is None or b > 0 else None
    if a is None or b is None:
        return None
    if name in ("torch.prim.max.int", "torch.prim.min.int"):
        return as_expr(max(a, b) if "max" in name else min(a, b))
    return None
