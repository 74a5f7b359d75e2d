# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a lowering rule gets: one torch op, its operands as builtin values or Python values, and the builders."""

from collections.abc import Sequence
from typing import Any, NoReturn, cast

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.dtypes import BOOL, F32, I64, DType, promote
from kiln.errors import UnsupportedError

from . import torch_values
from .emitter import Argument, At, Body, Emitter, Size
from .float8 import CARRY_FLOAT8
from .function_state import FunctionState, TensorInfo
from .scalars import SizeNumber
from .sizes import Expr, as_expr, constant_of
from .torch_values import NOT_CONSTANT, op_name

__all__ = ["LoweringContext"]

_MISSING: Any = object()


class LoweringContext(Emitter):
    """One torch op under conversion. Operands are addressed by position, in the order of PyTorch's schema.

    Every accessor raises ``UnsupportedError`` when the operand is not what the rule asks for, which sends the op to
    the next choice (torch-mlir, then ATen) with that reason. New ops get the op's location.
    """

    def __init__(self, op: ir.Operation, state: FunctionState) -> None:
        super().__init__(state)
        self.op = op
        self.name = op_name(op)

    def unsupported(self, reason: str) -> NoReturn:
        """Give the op to the next choice; ``reason`` shows up in the report."""
        raise UnsupportedError(self.name, str(self.op.location), reason)

    # -- operands

    @property
    def num_operands(self) -> int:
        """Number of operands of the torch op."""
        return len(self.op.operands)

    def torch_operand(self, i: int) -> ir.Value:
        """The operand in the torch dialect."""
        if i >= len(self.op.operands):
            self.unsupported(f"it has no operand {i}")
        return self.op.operands[i]

    def lookup(self, value: ir.Value) -> ir.Value | None:
        """The builtin tensor that a torch value was converted to; None if there is none."""
        return self.state.values.get(value)

    def tensor(self, i: int) -> ir.Value:
        """Operand ``i`` as a builtin tensor."""
        operand = self.torch_operand(i)
        if torch_values.number_of(operand) is not None:
            info = self.state.result_info(operand.owner, 0)
            assert info is not None
            argument = self.argument(i)
            return self.pointwise([argument], lambda b, x: x, info.dtype, compute=info.dtype, shape=())
        return self._computed(self.lookup(operand), i)

    def _computed(self, value: ir.Value | None, i: int) -> ir.Value:
        if value is None or not self._computes(self.dtype(value)):
            self.unsupported(f"operand {i} of type {self.torch_operand(i).type} is no tensor that Kiln computes")
        return value

    def _computes(self, dtype: DType) -> bool:
        """Whether Kiln does what this op does on elements of this type."""
        return not dtype.is_opaque or (dtype.is_float8 and self.name in CARRY_FLOAT8)

    def optional_tensor(self, i: int) -> ir.Value | None:
        """Operand ``i`` as a builtin tensor, None for ``None``."""
        return None if self.is_none(i) else self.tensor(i)

    def tensors(self, i: int) -> list[ir.Value]:
        """Operand ``i``, a list of tensors."""
        return [value for value in self.optional_tensors(i) if value is not None or self.unsupported("a None tensor")]

    def optional_tensors(self, i: int) -> list[ir.Value | None]:
        """Operand ``i``, a list of tensors and Nones."""
        operand = self.torch_operand(i)
        if operand in self.state.lists:
            return [None if v is None else self._computed(v, i) for v in self.state.lists[operand]]
        elements = torch_values.list_elements(operand)
        if elements is None:
            self.unsupported(f"operand {i} is no list that is built in the graph")
        return [
            None if torch_values.python_value(element) is None else self._computed(self.lookup(element), i)
            for element in elements
        ]

    def is_none(self, i: int) -> bool:
        """True if operand ``i`` is the constant None, or is missing."""
        return i >= len(self.op.operands) or torch_values.python_value(self.op.operands[i]) is None

    def const(self, i: int, default: Any = _MISSING) -> Any:
        """Operand ``i`` as a Python value; ``default``, where given, stands in for None."""
        if self.is_none(i) and default is not _MISSING:
            return default
        value = torch_values.python_value(self.torch_operand(i))
        if value is NOT_CONSTANT:
            self.unsupported(f"operand {i} is known only at run time")
        return value

    def const_int(self, i: int, default: Any = _MISSING) -> int:
        """Operand ``i`` as an int."""
        value = self.const(i, default)
        if isinstance(value, int) or value is default:
            return value
        self.unsupported(f"operand {i}: expected an int constant, found {value!r}")

    def const_float(self, i: int, default: Any = _MISSING) -> float:
        """Operand ``i`` as a float."""
        value = self.const(i, default)
        if value is default:
            return value
        if isinstance(value, int | float):
            return float(value)
        self.unsupported(f"operand {i}: expected a float constant, found {value!r}")

    def const_bool(self, i: int, default: Any = _MISSING) -> bool:
        """Operand ``i`` as a bool."""
        value = self.const(i, default)
        if isinstance(value, int) or value is default:
            return bool(value) if isinstance(value, int) else value
        self.unsupported(f"operand {i}: expected a bool constant, found {value!r}")

    def const_str(self, i: int, default: Any = _MISSING) -> str:
        """Operand ``i`` as a string."""
        value = self.const(i, default)
        if isinstance(value, str) or value is default:
            return value
        self.unsupported(f"operand {i}: expected a string constant, found {value!r}")

    def const_list(self, i: int, default: Any = _MISSING) -> list[Any]:
        """Operand ``i`` as a list of constants; a bare number counts as a list of one."""
        value = self.const(i, default)
        if isinstance(value, list) or value is default:
            return cast(list[Any], value)
        return [value]

    def number(self, i: int) -> int | float | bool:
        """Operand ``i`` as a constant Python number (a ``Scalar`` argument)."""
        value = self.const(i)
        if isinstance(value, int | float):
            return value
        self.unsupported(f"operand {i}: expected a number, found {value!r}")

    def argument(self, i: int) -> Argument:
        """Operand ``i`` as an input of :meth:`pointwise`: a builtin tensor or a number.

        A 0-d tensor that the importer made from a number is that number.
        """
        operand = self.torch_operand(i)
        number = torch_values.number_of(operand)
        if number is None and self.lookup(operand) is not None:
            return self.tensor(i)
        number = operand if number is None else number
        value = torch_values.python_value(number)
        if isinstance(value, int | float):
            return value
        size = self.state.size_number(number)
        if size is None:
            self.unsupported(f"operand {i} of type {operand.type} is no tensor and no number made of sizes")
        return size

    def index(self, i: int, default: Any = _MISSING) -> Expr:
        """Operand ``i``, an int or SymInt, as an expression over the symbols; ``default`` stands in for None."""
        if default is not _MISSING and self.is_none(i):
            return default if default is None else as_expr(default)  # type: ignore[return-value] - None comes back as it was given
        return self.index_of(self.torch_operand(i))

    def index_of(self, value: ir.Value) -> Expr:
        """A ``!torch.int`` as an expression over the symbols."""
        expr = self.state.int_expr(value)
        if expr is None:
            self.unsupported(f"the integer {value.get_name()} is no affine expression of sizes")
        return expr

    def indices(self, i: int) -> list[Expr]:
        """Operand ``i``, a list of ints and SymInts, as expressions over the symbols."""
        elements = torch_values.list_elements(self.torch_operand(i))
        if elements is None:
            self.unsupported(f"operand {i} is no list that is built in the graph")
        return [self.index_of(element) for element in elements]

    def dim(self, i: int, rank: int) -> int:
        """Operand ``i`` as a dimension of a tensor of ``rank``, made non-negative."""
        return self.normalize_dim(self.const_int(i), rank)

    def normalize_dim(self, dim: int, rank: int) -> int:
        """``dim`` made non-negative; a 0-d tensor has the dimensions 0 and -1 for PyTorch."""
        span = max(rank, 1)
        if not -span <= dim < span:
            self.unsupported(f"dimension {dim} is out of range for rank {rank}")
        return dim % span

    def dims(self, i: int, rank: int) -> list[int]:
        """Operand ``i`` as dimensions to reduce, ascending; None or an empty list means all of them."""
        given = self.const_list(i, None)
        if not given or rank == 0:
            return list(range(rank))
        return sorted({self.normalize_dim(d, rank) for d in given})

    # -- results

    @property
    def num_results(self) -> int:
        """Number of results of the torch op."""
        return len(self.op.results)

    def result_used(self, k: int) -> bool:
        """Whether anything uses result ``k``."""
        return next(iter(self.op.results[k].uses), None) is not None

    def result_info(self, k: int = 0) -> TensorInfo:
        """Sizes and element type of result ``k``."""
        info = self.state.result_info(self.op, k)
        if info is None or not self._computes(info.dtype):
            self.unsupported(f"result {k} has the type {self.op.results[k].type}, which Kiln does not compute")
        return info

    def result_shape(self, k: int = 0) -> tuple[Expr, ...]:
        """Sizes of result ``k``."""
        return self.result_info(k).shape

    def result_dtype(self, k: int = 0) -> DType:
        """Element type of result ``k``."""
        return self.result_info(k).dtype

    # -- type promotion

    def elementwise(
        self, inputs: Sequence[Argument], fn: Body, *, compute: DType | None = None, round_numbers: bool = True
    ) -> ir.Value:
        """:meth:`pointwise` to result 0's sizes and element type, computed in ``compute`` (default: that type)."""
        info = self.result_info()
        return self.pointwise(
            inputs, fn, info.dtype, compute=compute or info.dtype, shape=info.shape, round_numbers=round_numbers
        )

    def named(self, value: ir.Value, shape: Sequence[Size], dtype: DType) -> ir.Value:
        """Record what is known of the result of a named op; returns it."""
        return self.state.set_info(value, shape, dtype)

    def common_dtype(self, inputs: Sequence[Argument]) -> DType:
        """PyTorch's ``result_type``: tensors with dimensions first, then 0-d tensors, then numbers.

        A lower class counts only if its category (bool, integer, float) is higher.
        """
        classes: list[DType | None] = [None, None, None]
        for x in inputs:
            if isinstance(x, At):
                x = x.value
            if isinstance(x, ir.Value):
                level, dtype = (0 if self.rank(x) else 1), self.dtype(x)
            else:
                level, dtype = 2, _number_dtype(x)
            known = classes[level]
            joined = dtype if known is None else promote(known, dtype)
            if joined is None:
                self.unsupported(f"PyTorch has no common type of {dtype.name} and {known.name if known else ''}")
            classes[level] = joined
        result: DType | None = None
        for dtype in classes:
            if dtype is not None and (result is None or _category(dtype) > _category(result)):
                result = dtype if result is None else (promote(result, dtype) or dtype)
        assert result is not None
        return result

    def is_non_negative(self, expr: Expr) -> bool:
        """Whether ``expr`` cannot be negative, as its symbols, sizes of tensors, are not: ``n // 2 + 3``."""
        shapes = [size for info in self.state.infos.values() for size in info.shape]
        sizes = {size.position for e in shapes if isinstance(size := e.maybe_downcast(), ir.AffineSymbolExpr)}
        return affine.symbols_in(expr) <= sizes and affine.nonnegative(expr)

    def is_one(self, size: Expr) -> bool:
        """Whether a size is the constant 1."""
        return constant_of(size) == 1


def _category(dtype: DType) -> int:
    return 2 if dtype.is_float else 1 if dtype.is_int else 0


def _number_dtype(value: SizeNumber | int | float | bool) -> DType:
    if isinstance(value, SizeNumber):
        return F32 if value.is_float else I64
    if isinstance(value, bool):
        return BOOL
    return I64 if isinstance(value, int) else F32
