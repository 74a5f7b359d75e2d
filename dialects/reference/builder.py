# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Building reference lowerings: `linalg.generic` and `kiln` data movement, with sizes as expressions.

One convention for reductions, which the code generator knows: the `outs` operand of a reduction is a `linalg.generic`
without inputs that yields the initial constant, on a `kiln.empty`.  Pointwise ops have a `kiln.empty` there.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, linalg, tensor

from kiln.dialects import affine, kiln
from kiln.dialects.reference import scalar
from kiln.dialects.shapes import SymbolicShapes

Expr = ir.AffineExpr | int
Body = Callable[..., Any]


def dim(position: int) -> ir.AffineExpr:
    return ir.AffineExpr.get_dim(position)


def dims(count: int) -> list[ir.AffineExpr]:
    return [ir.AffineExpr.get_dim(i) for i in range(count)]


def _expr(e: Expr) -> ir.AffineExpr:
    return ir.AffineExpr.get_constant(e) if isinstance(e, int) else e


class Builder:
    """Builds at the current insertion point; sizes are expressions over the symbols of `shapes`."""

    def __init__(self, shapes: SymbolicShapes) -> None:
        self.shapes = shapes

    def sizes(self, value: ir.Value) -> list[ir.AffineExpr]:
        """Sizes of a tensor."""
        return list(self.shapes.dims(value))

    def _symbols(self, exprs: Sequence[Expr]) -> list[ir.Value]:
        used = set().union(*(affine.symbols_in(_expr(e)) for e in exprs)) if exprs else set()
        return self.shapes.values(used)

    # ------------------------------------------------------------------------------------------------ data movement

    def empty(self, type_: ir.Type, sizes: Sequence[Expr]) -> ir.Value:
        return kiln.empty(type_, sizes, self._symbols(sizes))

    def view(self, x: ir.Value, index: Sequence[Expr], sizes: Sequence[Expr]) -> ir.Value:
        return kiln.view(x, index, sizes, self._symbols([*index, *sizes]))

    def pad(self, x: ir.Value, value: float | int, low: Sequence[Expr], high: Sequence[Expr]) -> ir.Value:
        """`x` padded; the sizes follow."""
        parts = zip(low, self.sizes(x), high, strict=True)
        sizes = [affine.simplify(_expr(a) + b + _expr(c)) for a, b, c in parts]
        filler = scalar.constant(x.type.element_type, value)
        return kiln.pad(x, filler, low, high, sizes, self._symbols([*low, *high, *sizes]))

    def fill(self, type_: ir.Type, sizes: Sequence[Expr], value: float | int) -> ir.Value:
        """A tensor of one constant."""
        return self.generic(
            [],
            [self.empty(type_, sizes)],
            [dims(len(sizes))],
            "p" * len(sizes),
            [lambda _: scalar.constant(type_, value)],
        )[0]

    # ------------------------------------------------------------------------------------------------ computation

    def generic(
        self,
        inputs: Sequence[ir.Value],
        outs: Sequence[ir.Value],
        index: Sequence[Sequence[Expr]],
        iterators: str,
        body: Sequence[Body] | Body,
    ) -> list[ir.Value]:
        """A `linalg.generic`; `index` has one list per input, then out; `iterators` is a string of "p" and "r".

        `body` takes one scalar per input and out and returns the scalars to yield: a tuple, one, or several functions
        of one result each.  `linalg.generic` maps have no symbols, so `index` must be over dims alone.
        """
        maps = [ir.AffineMap.get(len(iterators), 0, [_expr(e) for e in exprs]) for exprs in index]
        kinds = {"p": "parallel", "r": "reduction"}
        op = linalg.GenericOp(
            [o.type for o in outs],
            list(inputs),
            list(outs),
            ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kinds[i]}>") for i in iterators]),
        )
        types = [v.type.element_type for v in [*inputs, *outs]]
        block = op.regions[0].blocks.append(*types)
        with ir.InsertionPoint(block):
            arguments = list(block.arguments)
            results = body(*arguments) if callable(body) else [f(*arguments) for f in body]
            linalg.YieldOp(list(results) if isinstance(results, tuple | list) else [results])
        return list(op.operation.results)

    def map(
        self,
        inputs: Sequence[tuple[ir.Value, Sequence[Expr]]],
        sizes: Sequence[Expr],
        type_: ir.Type,
        body: Body,
    ) -> ir.Value:
        """A pointwise op: `result[d..] = body(input[index(d)]..)`."""
        out = self.empty(type_, sizes)
        index = [*[i for _, i in inputs], dims(len(sizes))]
        return self.generic([v for v, _ in inputs], [out], index, "p" * len(sizes), lambda *a: body(*a[:-1]))[0]

    def reduce(
        self,
        inputs: Sequence[tuple[ir.Value, Sequence[Expr]]],
        index: Sequence[Expr],
        sizes: Sequence[Expr],
        iterators: str,
        type_: ir.Type,
        init: float | int,
        body: Body,
    ) -> ir.Value:
        """A reduction into `result[index]` of `sizes`; `body(*inputs, accumulator)` gives the new accumulator."""
        out = self.fill(type_, sizes, init)
        maps = [*[i for _, i in inputs], index]
        return self.generic([v for v, _ in inputs], [out], maps, iterators, body)[0]

    def cast(self, x: ir.Value, type_: ir.Type) -> ir.Value:
        """`x` converted elementwise."""
        if x.type.element_type == type_:
            return x
        sizes = self.sizes(x)
        return self.map([(x, dims(len(sizes)))], sizes, type_, lambda a: scalar.cast(a, type_))

    # ------------------------------------------------------------------------------------------------ inside bodies

    def size_value(self, e: Expr, type_: ir.Type | None = None) -> ir.Value:
        """A size as an SSA value, of index type or another.  Call outside of bodies: it may make `tensor.dim` ops."""
        value = index_value(_expr(e), [], self._symbols([e]))
        return value if type_ is None else scalar.cast(value, type_)

    def product_value(self, sizes: Sequence[ir.AffineExpr], type_: ir.Type) -> ir.Value:
        """The product of sizes, of a float or integer type."""
        product = _expr(1)
        for s in sizes:
            product = product * s
        product = affine.simplify(product)
        known = affine.constant_of(product)
        return scalar.constant(type_, known) if known is not None else self.size_value(product, type_)


def index_value(e: ir.AffineExpr, dim_values: Sequence[ir.Value], symbol_values: Sequence[ir.Value]) -> ir.Value:
    """`e` as index arithmetic at the current insertion point; divisors are positive."""
    e = e.maybe_downcast()
    if isinstance(e, ir.AffineConstantExpr):
        return arith.constant(ir.IndexType.get(), e.value)
    if isinstance(e, ir.AffineDimExpr):
        return dim_values[e.position]
    if isinstance(e, ir.AffineSymbolExpr):
        return symbol_values[e.position]
    lhs = index_value(e.lhs, dim_values, symbol_values)
    rhs = index_value(e.rhs, dim_values, symbol_values)
    if isinstance(e, ir.AffineAddExpr):
        return arith.addi(lhs, rhs)
    if isinstance(e, ir.AffineMulExpr):
        return arith.muli(lhs, rhs)
    if isinstance(e, ir.AffineFloorDivExpr):
        return arith.floordivsi(lhs, rhs)
    if isinstance(e, ir.AffineCeilDivExpr):
        return arith.ceildivsi(lhs, rhs)
    quotient = arith.floordivsi(lhs, rhs)
    return arith.subi(lhs, arith.muli(quotient, rhs))


def here(position: int) -> ir.Value:
    """`linalg.index` of a loop, inside a body."""
    return linalg.IndexOp(position).result


def extract(x: ir.Value, indices: Sequence[ir.Value]) -> ir.Value:
    """`tensor.extract`, inside a body."""
    return tensor.extract(x, list(indices))
