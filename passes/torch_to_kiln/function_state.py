# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a conversion knows about the function it converts: symbols, converted values, their sizes and element types."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, TypeVar

from torch_mlir import ir

from kiln.dialects.dtypes import DType, dtype_from_builtin, dtype_from_torch
from kiln.dialects.memo import type_text
from kiln.dialects.walk import defining_op
from kiln.errors import InvalidIRError

from .scalars import SizeNumber
from .sizes import Expr, as_expr, constant_of, pack_symbols
from .torch_values import arithmetic, python_value

__all__ = ["FunctionState", "TensorInfo", "argument_info", "parse_tensor_type"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class TensorInfo:
    """Sizes (affine expressions over the function's symbols) and element type, with its sign, of a builtin tensor.

    The element type may be an opaque one (complex, 8-bit floats), which only ATen computes.
    """

    shape: tuple[Expr, ...]
    dtype: DType


@lru_cache(maxsize=4096)
def parse_tensor_type(text: str) -> tuple[tuple[int | None, ...], str] | None:
    """``!torch.vtensor<[4,?],si64>`` as ``((4, None), "si64")``; None for other types and for unknown ranks."""
    for prefix in ("!torch.vtensor<[", "!torch.tensor<["):
        if text.startswith(prefix):
            sizes, _, rest = text[len(prefix) :].partition("]")
            element = rest.lstrip(",").removesuffix(">").split(",")[0].strip()
            dims = [d.strip() for d in sizes.split(",")] if sizes.strip() else []
            return tuple(None if d == "?" else int(d) for d in dims), element
    return None


class FunctionState:
    """The builtin side of one function under conversion.

    Affine expressions count the symbols in the order of the function's ``kiln.symbols``, from ``s0``. A symbol has an
    index value once :meth:`bind` was called: arguments at the start, data-dependent sizes when the op that makes them
    has been converted. New ops go to the current insertion point.
    """

    def __init__(self, symbol_names: Sequence[str] = ()) -> None:
        self.symbol_names: list[str] = list(symbol_names)
        self.symbols: list[ir.Value | None] = [None] * len(self.symbol_names)
        self.bound: list[str] = []  # names in the order in which they got their values
        self.values: dict[ir.Value, ir.Value] = {}  # torch tensor -> builtin tensor
        self.lists: dict[ir.Value, list[ir.Value | None]] = {}  # torch list of tensors -> builtin tensors
        self.sizes: dict[ir.Value, Expr] = {}  # torch int -> expression
        self.infos: dict[ir.Value, TensorInfo] = {}  # builtin tensor -> what is known of it
        self.finds_positions = True  # of the maxima of pooling windows, in kernels
        self._answers: dict[tuple[Hashable, ir.Value], Any] = {}

    # -- symbols

    def symbol(self, name: str) -> Expr:
        """The expression of the symbol ``name``; a name that is new joins at the end."""
        if name not in self.symbol_names:
            self.symbol_names.append(name)
            self.symbols.append(None)
        return ir.AffineExpr.get_symbol(self.symbol_names.index(name))

    def bind(self, name: str, value: ir.Value) -> Expr:
        """Give the symbol ``name`` its index value; returns its expression.

        Whoever converts an op with ``kiln.unbacked = ["u0", ...]`` calls this for each of these names.
        """
        expr = self.symbol(name)
        self.symbols[self.symbol_names.index(name)] = value
        self.bound.append(name)
        return expr

    def symbol_value(self, position: int) -> ir.Value:
        """The index value of the symbol ``s<position>``; raises ``InvalidIRError`` before it is bound."""
        if position >= len(self.symbols):
            raise InvalidIRError(f"s{position} is used but the function has {len(self.symbols)} symbols")
        value = self.symbols[position]
        if value is None:
            raise InvalidIRError(f"symbol {self.symbol_names[position]} has no value at this point of the function")
        return value

    def pack(self, *groups: tuple[int, Sequence[Expr]]) -> tuple[list[ir.AffineMap], list[ir.Value]]:
        """Maps for groups of ``(number of dims, results)`` and the index operands that their symbols stand for."""
        maps, used = pack_symbols(*groups)
        return maps, [self.symbol_value(position) for position in used]

    # -- values

    def set_info(self, value: ir.Value, shape: Sequence[int | Expr], dtype: DType) -> ir.Value:
        """Record the sizes and element type of a builtin tensor; returns it."""
        self.infos[value] = TensorInfo(tuple(as_expr(size) for size in shape), dtype)
        return value

    def info(self, value: ir.Value) -> TensorInfo:
        """What is known of a builtin tensor; a static one that was never recorded is read off its type."""
        found = self.infos.get(value)
        if found is None:
            tensor = ir.RankedTensorType(value.type)
            dtype = dtype_from_builtin(tensor.element_type)
            if not tensor.has_static_shape or dtype is None:
                raise InvalidIRError(f"no sizes are known for a value of type {tensor}", str(value.location))
            found = TensorInfo(tuple(as_expr(size) for size in tensor.shape), dtype)
            self.infos[value] = found
        return found

    def tensor_type(self, shape: Sequence[Expr], dtype: DType) -> ir.RankedTensorType:
        """The builtin type: constant sizes static, all others ``?``."""
        dynamic = ir.ShapedType.get_dynamic_size()
        sizes = [constant_of(size) for size in shape]
        return ir.RankedTensorType.get([dynamic if size is None else size for size in sizes], dtype.type)

    def dims(self, value: ir.Value) -> Sequence[Expr]:
        """Sizes of a builtin tensor."""
        return self.info(value).shape

    def result_info(self, op: ir.Operation, number: int) -> TensorInfo | None:
        """Sizes and element type of a torch op's result, by its type and ``kiln.shapes``; None if it is no tensor.

        Raises ``InvalidIRError`` for a dynamic size without ``kiln.shapes``.
        """
        parsed = parse_tensor_type(type_text(op.results[number].type))
        if parsed is None:
            return None
        sizes, element = parsed
        dtype = dtype_from_torch(element)
        if dtype is None:
            return None
        return TensorInfo(self._sizes(op, number, sizes), dtype)

    def result_shape(self, op: ir.Operation, number: int) -> tuple[Expr, ...] | None:
        """Sizes of a torch op's tensor result of any element type; None when it is no ranked tensor."""
        parsed = parse_tensor_type(type_text(op.results[number].type))
        return None if parsed is None else self._sizes(op, number, parsed[0])

    def _sizes(self, op: ir.Operation, number: int, sizes: tuple[int | None, ...]) -> tuple[Expr, ...]:
        if all(size is not None for size in sizes):
            return tuple(ir.AffineExpr.get_constant(size) for size in sizes if size is not None)
        if "kiln.shapes" not in op.attributes:
            raise InvalidIRError(f"{op.name}: a result has dynamic sizes but there is no kiln.shapes", str(op.location))
        shape = ir.ArrayAttr(op.attributes["kiln.shapes"])[number]
        if not isinstance(shape, ir.AffineMapAttr) or len(shape.value.results) != len(sizes):
            raise InvalidIRError(f"{op.name}: kiln.shapes[{number}] is no map to {len(sizes)} sizes", str(op.location))
        exprs = list(shape.value.results)
        return tuple(as_expr(s) if s is not None else e for s, e in zip(sizes, exprs, strict=True))

    def once(self, question: Hashable, value: ir.Value, find: Callable[[ir.Value], _T]) -> _T:
        """`find(value)` of a torch value, kept as the answer to `question` (all layers may share a mask)."""
        key = question, value
        if key not in self._answers:
            self._answers[key] = find(value)
        return self._answers[key]

    # -- integers of the torch dialect

    def int_expr(self, value: ir.Value) -> Expr | None:
        """A ``!torch.int`` as an expression over the symbols; None where it is not one (data-dependent, Max, ...)."""
        found = self.sizes.get(value)
        if found is None:
            found = self._int_expr(value)
            if found is not None:
                self.sizes[value] = found
        return found

    def _int_expr(self, value: ir.Value) -> Expr | None:
        constant = python_value(value)
        if isinstance(constant, int):
            return as_expr(int(constant))
        op = defining_op(value)
        if op is None:
            return None
        if op.name in ("torch.aten.size.int", "torch.aten.sym_size.int"):
            dim = python_value(op.operands[1])
            tensor = self.values.get(op.operands[0])
            return self.info(tensor).shape[dim] if tensor is not None and isinstance(dim, int) else None
        if op.name == "torch.aten.numel" or op.name == "torch.aten.sym_numel":
            tensor = self.values.get(op.operands[0])
            return None if tensor is None else prod(self.info(tensor).shape, start=as_expr(1))
        args = [self.int_expr(operand) for operand in op.operands]
        if any(arg is None for arg in args):
            return None
        return arithmetic(op.name, [arg for arg in args if arg is not None])

    def size_number(self, value: ir.Value) -> SizeNumber | None:
        """A ``!torch.int`` or ``!torch.float`` that is made of sizes, or None."""
        expr = self.int_expr(value)
        if expr is not None:
            return SizeNumber(expr)
        op = defining_op(value)
        if op is None:
            return None
        if op.name in ("torch.aten.Float.Scalar", "torch.aten.div.int"):
            exprs = [self.int_expr(operand) for operand in op.operands]
            if all(e is not None for e in exprs):
                return SizeNumber(exprs[0], True, exprs[1] if len(exprs) > 1 else None)  # type: ignore[arg-type] - none of them is None
        return None


def argument_info(argument: ir.Value, attrs: ir.Attribute | None) -> tuple[tuple[Expr, ...], DType]:
    """Sizes and element type of a function argument, by its type and its attribute ``kiln.shape``.

    Raises ``InvalidIRError`` if it is no ranked tensor or a dynamic size is not given.
    """
    parsed = parse_tensor_type(type_text(argument.type))
    dtype = dtype_from_torch(parsed[1]) if parsed else None
    where, at = f"argument of type {argument.type}", str(argument.location)
    if parsed is None or dtype is None:
        raise InvalidIRError(f"{where}: expected a tensor of known rank and element type, or !torch.int", at)
    sizes = parsed[0]
    given: list[Expr] | None = None
    if attrs is not None and "kiln.shape" in ir.DictAttr(attrs):
        given = list(ir.AffineMapAttr(ir.DictAttr(attrs)["kiln.shape"]).value.results)
        if len(given) != len(sizes):
            raise InvalidIRError(f"{where}: kiln.shape has {len(given)} sizes, expected {len(sizes)}", at)
    if given is None and None in sizes:
        raise InvalidIRError(f"{where}: has dynamic sizes but no kiln.shape", at)
    return tuple(as_expr(s) if s is not None else given[k] for k, s in enumerate(sizes)), dtype  # type: ignore[index] - sizes are given where one is unknown
