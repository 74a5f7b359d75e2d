# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reading of operands in the torch dialect: constants, lists, and integer arithmetic on sizes."""

from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.dialects.walk import defining_op

from .scalars import SizeNumber
from .sizes import Expr, as_expr, constant_of

if TYPE_CHECKING:
    from .function_state import FunctionState

__all__ = ["NOT_CONSTANT", "int_expr", "list_elements", "number_of", "python_value", "size_number"]


class _NotConstant:
    def __repr__(self) -> str:
        return "NOT_CONSTANT"


NOT_CONSTANT = _NotConstant()
"""What :func:`python_value` returns for a value that is known only at run time."""


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


def int_expr(value: ir.Value, state: "FunctionState") -> Expr | None:
    """A ``!torch.int`` as an affine expression over the symbols of ``state``, or None."""
    constant = python_value(value)
    if isinstance(constant, int):
        return as_expr(int(constant))
    op = defining_op(value)
    if op is None:
        return None
    if op.name in ("torch.aten.size.int", "torch.aten.sym_size.int"):
        dim = python_value(op.operands[1])
        tensor = state.values.get(op.operands[0])
        return state.info(tensor).shape[dim] if tensor is not None and isinstance(dim, int) else None
    if op.name == "torch.aten.numel" or op.name == "torch.aten.sym_numel":
        tensor = state.values.get(op.operands[0])
        if tensor is None:
            return None
        result = as_expr(1)
        for size in state.info(tensor).shape:
            result = result * size
        return result
    args = [state.int_expr(operand) for operand in op.operands]
    if any(arg is None for arg in args):
        return None
    return _arithmetic(op.name, [arg for arg in args if arg is not None])


def size_number(value: ir.Value, state: "FunctionState") -> SizeNumber | None:
    """A ``!torch.int`` or ``!torch.float`` that is made of sizes, or None."""
    expr = state.int_expr(value)
    if expr is not None:
        return SizeNumber(expr)
    op = defining_op(value)
    if op is None:
        return None
    if op.name in ("torch.aten.Float.Scalar", "torch.aten.div.int"):
        exprs = [state.int_expr(operand) for operand in op.operands]
        if all(e is not None for e in exprs):
            return SizeNumber(exprs[0], True, exprs[1] if len(exprs) > 1 else None)  # type: ignore[arg-type] - none of them is None
    return None


def _arithmetic(name: str, args: list[Expr]) -> Expr | None:
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
