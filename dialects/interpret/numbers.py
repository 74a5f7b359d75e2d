# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What values are to the interpreter, and how they are computed with: plain torch tensors.

The interpreter computes by the methods of a `Numbers` alone, so that a subclass can carry more than a tensor with
each value (a bound of its error).  A value of it is anything; its `parts` are tensors of one shape, and moving data
moves all of them.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch_mlir import ir

from kiln.dialects.interpret.estimates import Call
from kiln.dialects.interpret.scalar_ops import FLOAT_OPS, INTEGER_OPS, OTHER_OPS
from kiln.dialects.interpret.types import Precision, as_element, dtype_of, is_float
from kiln.errors import UnsupportedError
from kiln.functions import Fn

__all__ = ["Numbers", "element_type"]

Value = Any
Tensor = torch.Tensor


class Numbers:
    """Values that are tensors of the dtypes that `precision` gives."""

    def __init__(self, precision: Precision) -> None:
        self.precision = precision

    # ------------------------------------------------------------------------------------------------------- values

    def lift(self, x: Tensor, element: ir.Type) -> Value:
        """A tensor of the element type, or of the working dtype, as a value."""
        return as_element(x, element).to(self.precision.dtype(element))

    def exact(self, x: Tensor) -> Value:
        """A tensor of integers or booleans as a value."""
        return x

    def lower(self, value: Value) -> Tensor:
        """The tensor that a value is."""
        return value

    def parts(self, value: Value) -> tuple[Tensor, ...]:
        """The tensors that make up a value, its own first."""
        return (value,)

    def of_parts(self, parts: Sequence[Tensor]) -> Value:
        """The value that has these tensors as its parts: the inverse of `parts`."""
        return parts[0]

    def move(self, function: Fn[Tensor, Tensor], *values: Value) -> Value:
        """Elements put elsewhere: `function` of the tensors, part by part."""
        return self.of_parts([function(*parts) for parts in zip(*map(self.parts, values), strict=True)])

    def store(self, out: Value, value: Value, place: Callable[[Tensor], Tensor]) -> Value:
        """`out` with `value` written to `place` of it, a view."""
        view = place(out)
        view.copy_(value.expand(view.shape))
        return out

    # ---------------------------------------------------------------------------------------------------- arithmetic

    def scalar(self, op: Any, operands: Sequence[Value]) -> list[Value]:
        """The results of an op of `arith` or `math`, element by element."""
        name = op.operation.name
        if name in OTHER_OPS:
            found = OTHER_OPS[name](op, self.precision, *operands)
            return cast(list[Value], found) if isinstance(found, list) else [found]
        return [self.apply(name, element_type(op), *operands)]

    def apply(self, name: str, element: ir.Type, *operands: Value) -> Value:
        """The op `name` from values of an element type to one of the same type.

        Raises UnsupportedError for an op that is not known.
        """
        if name in INTEGER_OPS:
            return INTEGER_OPS[name](*operands)
        if name not in FLOAT_OPS:
            raise UnsupportedError(name, "", "the interpreter has no such op")
        compute = self.precision.arithmetic(element)
        return FLOAT_OPS[name](*(x.to(compute) for x in operands)).to(self.precision.dtype(element))

    def where(self, condition: Any, a: Value, b: Value) -> Value:
        """`a` where a condition holds, a value or a tensor of booleans, else `b`."""
        return self.move(lambda x, y: torch.where(condition, x, y), a, b)

    def reduce(self, name: str, value: Value, dims: Sequence[int], element: ir.Type) -> Value:
        """The elements along `dims`, of which there are some, combined by the op `name`; the dims stay, of size 1."""
        if name == "arith.addf":
            dtype = self.precision.dtype(element)
            return value.to(self.precision.arithmetic(element)).sum(dims, keepdim=True).to(dtype)
        if name == "arith.addi" and value.dtype != torch.bool:
            return value.sum(dims, keepdim=True, dtype=value.dtype)
        if name in ("arith.maximumf", "arith.minimumf", "arith.maxsi", "arith.minsi") and value.dtype != torch.bool:
            return (torch.amax if "max" in name else torch.amin)(value, tuple(dims), keepdim=True)
        for d in dims:
            value = _halve(lambda a, b: self.apply(name, element, a, b), value, d)
        return value

    def bilinear(
        self, function: Callable[[Tensor, Tensor], Tensor], a: Value, b: Value, terms: int, element: ir.Type
    ) -> Value:
        """`function`, which sums up `terms` products of an element of `a` and one of `b` for each result.

        element: the type of the sums.
        """
        return function(a, b)

    def scan(self, kind: str, value: Value, dim: int, element: ir.Type) -> Value:
        """Running sums, products or logarithms of sums of exponentials."""
        function = {"sum": torch.cumsum, "prod": torch.cumprod, "logsumexp": torch.logcumsumexp}[kind]
        if not is_float(element):
            return function(value, dim).to(value.dtype)
        return function(value.to(self.precision.arithmetic(element)), dim).to(value.dtype)

    def read_at(self, value: Value, indices: Sequence[Value]) -> Value:
        """What was read at indices that are values, too."""
        return value

    def dependent(self, value: Value) -> Value:
        """A value whose elements may have been rounded alike, for what adds up their errors step by step."""
        return value

    def scatter_sum(self, base: Value, position: Tensor, source: Value, element: ir.Type) -> Value:
        """`base` with the elements of `source` added at the positions, all of one dim."""
        return base.scatter_add(0, position, source)

    def scatter_reduce(self, base: Value, position: Tensor, source: Value, reduce: str) -> Value:
        """The same combined by "sum" of booleans, "prod", "amax" or "amin"."""
        if base.dtype == torch.bool:
            named = {"sum": "amax"}.get(reduce, reduce)
            return base.byte().scatter_reduce(0, position, source.byte(), named).bool()
        return base.scatter_reduce(0, position, source, reduce)

    def cast(self, value: Value, source: ir.Type, target: ir.Type) -> Value:
        """Floats of one element type as those of another."""
        return value.to(self.precision.dtype(target))

    def maybe_rounded(self, value: Value, element: ir.Type) -> Value:
        """Floats that a kernel may round to an element type where the IR does not say so."""
        return value

    def call(
        self, wide: Call, own: Call, operands: Sequence[Value], given: Sequence[ir.Type], results: Sequence[ir.Type]
    ) -> list[Any]:
        """What a call of ATen returns: a value for each type in `results`, then numbers.

        wide, own: the call in the precision of these numbers, and as it is.
        given, results: element types of the operands and of the tensors that are returned.
        """
        found = wide([self.lower(v) for v in operands])
        tensors = [self.lift(x, element) for x, element in zip(found, results, strict=False)]
        return [*tensors, *found[len(results) :]]

    def constant(self, number: Any, element: ir.Type) -> Value:
        """A number as a value of rank 0, on the CPU."""
        dtype = self.precision.dtype(element)
        if dtype.is_floating_point and dtype.itemsize == 1:
            return torch.tensor(float(number)).to(dtype)
        if dtype_of(element) == torch.bool:
            number = bool(number)
        return torch.tensor(number, dtype=dtype)


def element_type(op: Any) -> ir.Type:
    """The element type of an op's first result."""
    type_ = op.operation.results[0].type
    return type_.element_type if isinstance(type_, ir.RankedTensorType) else type_


def _halve(combine: Callable[[Value, Value], Value], x: Tensor, dim: int) -> Tensor:
    """The elements along a dim combined pairwise, neighbours first, so that their order stays; the dim stays."""
    while x.shape[dim] > 1:
        pairs = x.shape[dim] // 2 * 2
        index = torch.arange(0, pairs, 2, device=x.device)
        a, b = x.index_select(dim, index), x.index_select(dim, index + 1)
        rest = x.narrow(dim, pairs, x.shape[dim] - pairs)
        x = torch.cat([combine(a, b), rest], dim)
    return x
