# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What rules emit ops with: the builder of ``linalg.generic``, PyTorch's element types, and its broadcasting."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from kiln.dialects.builder import Builder
from kiln.dialects.dtypes import DType
from kiln.functions import FnWith

from .function_state import FunctionState
from .scalars import Number, Scalar, ScalarBuilder, SizeNumber
from .sizes import Expr, as_expr, constant_of, dim

__all__ = ["Argument", "At", "Emitter", "broadcast_shapes"]

Size = int | Expr


@dataclass(frozen=True)
class At:
    """A tensor read at ``indices``, expressions over the loops, instead of by broadcasting."""

    value: ir.Value
    indices: tuple[Expr, ...]

    @staticmethod
    def dims(value: ir.Value, dims: Sequence[int]) -> "At":
        """``value`` read at the loops ``dims``, one for each of its dimensions."""
        return At(value, tuple(dim(k) for k in dims))


Argument = ir.Value | At | SizeNumber | int | float | bool
Body = FnWith[ScalarBuilder, Scalar | Sequence[Scalar], Scalar]


def broadcast_shapes(shapes: Sequence[Sequence[Expr]]) -> tuple[Expr, ...] | None:
    """PyTorch's broadcast of ``shapes``; None where two sizes differ and neither is 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [as_expr(1)] * rank
    for shape in shapes:
        for k, size in enumerate(shape, start=rank - len(shape)):
            known = constant_of(result[k])
            if known == 1:
                result[k] = size
            elif constant_of(size) != 1 and size != result[k]:
                # A constant and an expression, or two expressions, that a guard made equal: keep the constant.
                if known is not None and constant_of(size) is not None:
                    return None
                if known is None:
                    result[k] = size if constant_of(size) is not None else result[k]
    return tuple(result)


class Emitter:
    """Creates ops at the current insertion point and location, and records what is known of their results."""

    def __init__(self, state: FunctionState) -> None:
        self.state = state
        self.scalars = ScalarBuilder()
        self.builder = Builder(state)

    def shape(self, value: ir.Value) -> tuple[Expr, ...]:
        """Sizes of a builtin tensor, as expressions over the function's symbols."""
        return self.state.info(value).shape

    def dtype(self, value: ir.Value) -> DType:
        """Element type of a builtin tensor."""
        return self.state.info(value).dtype

    def rank(self, value: ir.Value) -> int:
        """Number of dimensions of a builtin tensor."""
        return len(ir.RankedTensorType(value.type).shape)

    def empty(self, shape: Sequence[Size], dtype: DType) -> ir.Value:
        """``kiln.empty``: an uninitialised tensor."""
        sizes = [as_expr(size) for size in shape]
        return self.state.set_info(self.builder.empty(dtype.type, sizes), sizes, dtype)

    def view(self, x: ir.Value, indices: Sequence[Size], shape: Sequence[Size]) -> ir.Value:
        """``kiln.view``: ``result[d0..] = x[indices]``; ``indices`` are over result dims and the symbols.

        An identity view gives ``x`` back.
        """
        exprs, sizes = [as_expr(index) for index in indices], [as_expr(size) for size in shape]
        info = self.state.info(x)
        if tuple(sizes) == info.shape and all(e == dim(k) for k, e in enumerate(exprs)):
            return x
        return self.state.set_info(self.builder.view(x, exprs, sizes), sizes, info.dtype)

    def generic(
        self,
        inputs: Sequence[ir.Value],
        maps: Sequence[Sequence[Expr]],
        outs: Sequence[ir.Value],
        out_maps: Sequence[Sequence[Expr]],
        iterators: str,
        body: Body,
    ) -> list[ir.Value]:
        """``linalg.generic``. ``iterators`` has one letter a loop: ``p`` parallel, ``r`` reduction.

        ``body(b, *inputs, *outs)`` gets :class:`Scalar` values of the tensors' own element types and returns one
        scalar per out, of the out's element type. ``maps`` are lists of results over the loops; no symbols.
        """
        dtypes = [self.dtype(value) for value in (*inputs, *outs)]

        def values(*arguments: ir.Value) -> list[ir.Value]:
            args = [Scalar(value, dtype) for value, dtype in zip(arguments, dtypes, strict=True)]
            returned = body(self.scalars, *args)
            scalars = [returned] if isinstance(returned, Scalar) else list(returned)
            for scalar, dtype in zip(scalars, dtypes[len(inputs) :], strict=True):
                if scalar.dtype.type != dtype.type:
                    raise TypeError(f"the body gives {scalar.dtype.name} for a result of {dtype.name}")
            return [scalar.value for scalar in scalars]

        results = self.builder.generic(inputs, maps, outs, out_maps, iterators, values)
        for result, out in zip(results, outs, strict=True):
            info = self.state.info(out)
            self.state.set_info(result, info.shape, info.dtype)
        return results

    def full(self, value: int | float | bool, shape: Sequence[Size], dtype: DType) -> ir.Value:
        """A tensor of one constant: a ``linalg.generic`` without inputs (also what inits reductions)."""
        identity = [dim(k) for k in range(len(shape))]
        out = self.empty(shape, dtype)
        return self.generic([], [], [out], [identity], "p" * len(shape), lambda b, _: b.const(value, dtype))[0]

    def operand_map(self, x: ir.Value, shape: Sequence[Expr]) -> list[Expr]:
        """The indexing map that broadcasts ``x`` to loops of sizes ``shape`` by PyTorch's rules."""
        own = self.shape(x)
        first = len(shape) - len(own)
        return [
            as_expr(0) if constant_of(size) == 1 and constant_of(shape[first + k]) != 1 else dim(first + k)
            for k, size in enumerate(own)
        ]

    def pointwise(
        self,
        inputs: Sequence[Argument],
        fn: Body,
        dtype: DType,
        *,
        compute: DType | None = None,
        shape: Sequence[Size] | None = None,
        extend: bool = True,
        round_numbers: bool = False,
    ) -> ir.Value:
        """One elementwise ``linalg.generic`` with PyTorch's broadcasting.

        ``inputs`` are builtin tensors, Python numbers or numbers made of sizes. ``fn(b, *scalars)`` gets a scalar per
        input, cast to ``compute`` first where that is given (numbers become constants of it; without it Python
        numbers stay so). Half types are extended to float32 unless ``extend`` is false; numbers then are exact in
        float32 (PyTorch's arithmetic kernels) or, with ``round_numbers``, rounded to the half type (its others).
        What ``fn`` returns is cast to ``dtype``. ``shape`` defaults to the broadcast of the inputs' sizes.
        """
        if shape is None:
            shape = broadcast_shapes([self.shape(x) for x in inputs if isinstance(x, ir.Value)])
            if shape is None:
                raise ValueError("the inputs do not broadcast")
        sizes = [as_expr(size) for size in shape]
        reads = self._reads(inputs, sizes)
        unique = list(dict.fromkeys(read for read in reads if read is not None))

        def body(b: ScalarBuilder, *args: Scalar) -> Scalar:
            loaded = dict(zip(unique, args, strict=False))
            scalars: list[Any] = []  # of `Number`: a body takes numbers wherever it takes scalars
            for x, read in zip(inputs, reads, strict=True):
                scalar: Number
                number_type = compute if round_numbers or not extend or compute is None else compute.compute
                if read is not None:
                    scalar = loaded[read]
                elif isinstance(x, SizeNumber):
                    scalar = b.size_number(x, self.state.symbol_value)
                    scalar = scalar if number_type is None else b.cast(scalar, number_type)
                elif number_type is not None and isinstance(x, int | float):
                    scalar = b.const(x, number_type)
                else:
                    assert isinstance(x, int | float)
                    scalar = x
                if isinstance(scalar, Scalar):
                    if compute is not None and (read is not None or scalar.dtype != compute.compute):
                        scalar = b.cast(scalar, compute)
                    if extend:
                        scalar = b.cast(scalar, scalar.dtype.compute)
                scalars.append(scalar)
            result = fn(b, *scalars)
            assert isinstance(result, Scalar)
            return b.cast(result, dtype)

        identity = [dim(k) for k in range(len(sizes))]
        out = self.empty(sizes, dtype)
        values = [read.value for read in unique]
        return self.generic(values, [r.indices for r in unique], [out], [identity], "p" * len(sizes), body)[0]

    def _reads(self, inputs: Sequence[Argument], sizes: Sequence[Expr]) -> list[At | None]:
        """Where each input is read in loops of ``sizes``; None for numbers."""
        reads: list[At | None] = []
        for x in inputs:
            if isinstance(x, ir.Value):
                reads.append(At(x, tuple(self.operand_map(x, sizes))))
            else:
                reads.append(x if isinstance(x, At) else None)
        return reads

    def cast(self, x: ir.Value, dtype: DType, *, asked: bool = False) -> ir.Value:
        """``x`` as ``dtype`` by PyTorch's cast; ``x`` itself if it has that type. ``asked``: by the program."""
        if self.dtype(x) == dtype:
            return x
        identity = [dim(k) for k in range(self.rank(x))]
        out = self.empty(self.shape(x), dtype)
        return self.generic(
            [x], [identity], [out], [identity], "p" * len(identity), lambda b, value, _: b.cast(value, dtype, asked)
        )[0]

    def reduce(
        self,
        inputs: Sequence[ir.Value | At],
        dims: Sequence[int],
        init: int | float | bool,
        combine: Callable[[ScalarBuilder, Scalar, Scalar], Scalar],
        dtype: DType,
        *,
        keepdim: bool = False,
        accumulate: DType | None = None,
        element: FnWith[ScalarBuilder, Scalar, Scalar] | None = None,
        convert: bool = True,
    ) -> ir.Value:
        """Reduction of the first input's ``dims`` (non-negative), loops in the order of its dimensions.

        Each step is ``acc = combine(b, acc, element(b, *scalars))``, begun with ``init``, in the type ``accumulate``
        (default: ``dtype``, float32 for half types). Scalars of all inputs (which broadcast to the first) are cast
        to it unless ``convert`` is false, and ``element`` defaults to the first of them. The result is cast to
        ``dtype``; ``keepdim`` keeps the reduced dimensions with size 1.
        """
        x = inputs[0]
        assert isinstance(x, ir.Value)
        sizes = self.shape(x)
        acc_type = accumulate or dtype.compute
        kept = [k for k in range(len(sizes)) if k not in set(dims)]
        reads = [read for read in self._reads(inputs, sizes) if read is not None]

        def body(b: ScalarBuilder, *args: Scalar) -> Scalar:
            *values, acc = args
            casts = [b.cast(value, acc_type if convert else value.dtype.compute) for value in values]
            return combine(b, acc, element(b, *casts) if element else casts[0])

        iterators = "".join("p" if k in kept else "r" for k in range(len(sizes)))
        start = self.full(init, [sizes[k] for k in kept], acc_type)
        values = [read.value for read in reads]
        maps = [read.indices for read in reads]
        result = self.generic(values, maps, [start], [[dim(k) for k in kept]], iterators, body)[0]
        result = self.cast(result, dtype)
        return self.keep_dims(result, dims) if keepdim else result

    def keep_dims(self, x: ir.Value, dims: Sequence[int]) -> ir.Value:
        """``x`` with dimensions of size 1 inserted so that they get the positions ``dims``."""
        rank = self.rank(x) + len(set(dims))
        kept = [k for k in range(rank) if k not in set(dims)]
        sizes = iter(self.shape(x))
        shape = [next(sizes) if k in kept else as_expr(1) for k in range(rank)]
        return self.view(x, [dim(k) for k in kept], shape)
