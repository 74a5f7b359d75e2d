# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a conversion knows about the function it converts: symbols, converted values, their sizes and element types."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from torch_mlir import ir

from kiln.errors import InvalidIRError

from . import torch_values
from .dtypes import DType, dtype_from_builtin, dtype_from_torch
from .sizes import Expr, as_expr, constant_of, pack_symbols

__all__ = ["FunctionState", "TensorInfo", "parse_tensor_type"]


@dataclass(frozen=True)
class TensorInfo:
    """Sizes (affine expressions over the function's symbols) and element type, with its sign, of a builtin tensor."""

    shape: tuple[Expr, ...]
    dtype: DType


@lru_cache(maxsize=4096)
def parse_tensor_type(text: str) -> tuple[tuple[int | None, ...], str] | None:
    """``!torch.vtensor<[4,?],si64>`` as ``((4, None), "si64")``; None for other types and for unknown ranks."""
    for prefix in ("!torch.vtensor<[", "!torch.tensor<["):
        if text.startswith(prefix):
            sizes, _, rest = text[len(prefix) :].partition("]")
            element = rest.strip(",>").split(",")[0].strip()
            dims = [d.strip() for d in sizes.split(",")] if sizes.strip() else []
            return tuple(None if d == "?" else int(d) for d in dims), element
    return None


class FunctionState:
    """The builtin side of one function under conversion.

    ``symbols`` holds the index values of the new function, in the order of its ``kiln.symbols`` attribute: affine
    expressions count them from ``s0``. New ops go to the current insertion point.
    """

    def __init__(self) -> None:
        self.symbols: list[ir.Value] = []
        self.symbol_names: list[str] = []
        self.values: dict[ir.Value, ir.Value] = {}  # torch tensor -> builtin tensor
        self.sizes: dict[ir.Value, Expr] = {}  # torch int -> expression
        self.infos: dict[ir.Value, TensorInfo] = {}  # builtin tensor -> what is known of it

    # -- symbols

    def add_symbol(self, name: str, value: ir.Value) -> Expr:
        """Make the index ``value`` known as the symbol ``name``; returns its expression."""
        self.symbols.append(value)
        self.symbol_names.append(name)
        return ir.AffineExpr.get_symbol(len(self.symbols) - 1)

    def pack(self, *groups: tuple[int, Sequence[Expr]]) -> tuple[list[ir.AffineMap], list[ir.Value]]:
        """Maps for groups of ``(number of dims, results)`` and the index operands that their symbols stand for."""
        maps, used = pack_symbols(*groups)
        return maps, [self.symbols[position] for position in used]

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

    def result_info(self, op: ir.Operation, number: int) -> TensorInfo | None:
        """Sizes and element type of a torch op's result, by its type and ``kiln.shapes``; None for another type.

        Raises ``InvalidIRError`` for a dynamic size without ``kiln.shapes``. An element type that Kiln does not
        compute gives None as well.
        """
        parsed = parse_tensor_type(str(op.results[number].type))
        if parsed is None:
            return None
        sizes, element = parsed
        dtype = dtype_from_torch(element)
        if dtype is None:
            return None
        return TensorInfo(self._sizes(op, number, sizes), dtype)

    def result_shape(self, op: ir.Operation, number: int) -> tuple[Expr, ...] | None:
        """Sizes of a torch op's tensor result of any element type; None when it is no ranked tensor."""
        parsed = parse_tensor_type(str(op.results[number].type))
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

    # -- integers of the torch dialect

    def int_expr(self, value: ir.Value) -> Expr | None:
        """A ``!torch.int`` as an expression over the symbols; None where it is not one (data-dependent, Max, ...)."""
        found = self.sizes.get(value)
        if found is None:
            found = torch_values.int_expr(value, self)
            if found is not None:
                self.sizes[value] = found
        return found
