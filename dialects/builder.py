# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Building `linalg.generic` ops and `kiln` data movement, with sizes as expressions.

Reference lowerings and the conversion of the torch dialect share this builder; the latter adds PyTorch's element types
and broadcasting (`passes/torch_to_kiln/emitter.py`).

One convention for reductions, which the code generator knows: the `outs` operand of a reduction is a `linalg.generic`
without inputs that yields the initial constant, on a `kiln.empty`.  Pointwise ops have a `kiln.empty` there.
"""

from collections.abc import Sequence
from typing import Any, Protocol, cast

from torch_mlir import ir
from torch_mlir.dialects import linalg, tensor

from kiln.dialects import affine, kiln, scalar
from kiln.dialects.kiln.base import tensor_type
from kiln.functions import Fn

Expr = ir.AffineExpr | int
Body = Fn[ir.Value, Any]
Groups = tuple[int, Sequence[ir.AffineExpr]]


def dim(position: int) -> ir.AffineExpr:
    """The expression of one dim: `d<position>`."""
    return ir.AffineExpr.get_dim(position)


def dims(count: int) -> list[ir.AffineExpr]:
    """The expressions `d0` to `d<count - 1>`."""
    return [ir.AffineExpr.get_dim(i) for i in range(count)]


def _expr(e: Expr) -> ir.AffineExpr:
    return ir.AffineExpr.get_constant(e) if isinstance(e, int) else e


def _exprs(exprs: Sequence[Expr]) -> list[ir.AffineExpr]:
    return [_expr(e) for e in exprs]


class Sizes(Protocol):
    """What the builder asks about sizes: `SymbolicShapes` of a function, or the state of a conversion."""

    def dims(self, value: ir.Value, /) -> Sequence[ir.AffineExpr]:
        """Sizes of a tensor, over the symbols of the function."""
        ...

    def pack(self, *groups: Groups) -> tuple[list[ir.AffineMap], list[ir.Value]]:
        """A map for each group of `(number of dims, results)`, and the index values of the symbols that these use."""
        ...


class Builder:
    """Builds at the current insertion point; sizes are expressions over the symbols of `shapes`."""

    def __init__(self, shapes: Sizes) -> None:
        self.shapes = shapes
        self._iterators: dict[str, ir.Attribute] = {}

    def sizes(self, value: ir.Value) -> list[ir.AffineExpr]:
        """Sizes of a tensor."""
        return list(self.shapes.dims(value))

    # ------------------------------------------------------------------------------------------------ data movement

    def empty(self, type_: ir.Type, sizes: Sequence[Expr]) -> ir.Value:
        """A `kiln.empty` of an element type."""
        (shape,), symbols = self.shapes.pack((0, _exprs(sizes)))
        attributes = {"shape": ir.AffineMapAttr.get(shape)}
        result = tensor_type(type_, shape)
        return ir.Operation.create("kiln.empty", results=[result], operands=symbols, attributes=attributes).results[0]

    def view(self, x: ir.Value, index: Sequence[Expr], sizes: Sequence[Expr]) -> ir.Value:
        """A `kiln.view`: `result[d..] = x[index]`, the indices over the result's dims and the symbols."""
        (map_, shape), symbols = self.shapes.pack((len(sizes), _exprs(index)), (0, _exprs(sizes)))
        attributes = {"map": ir.AffineMapAttr.get(map_), "shape": ir.AffineMapAttr.get(shape)}
        result = tensor_type(ir.RankedTensorType(x.type).element_type, shape)
        op = ir.Operation.create("kiln.view", results=[result], operands=[x, *symbols], attributes=attributes)
        return op.results[0]

    def pad(self, x: ir.Value, value: float | int, low: Sequence[Expr], high: Sequence[Expr]) -> ir.Value:
        """`x` padded; the sizes follow."""
        parts = zip(low, self.sizes(x), high, strict=True)
        sizes = [affine.simplify(_expr(a) + b + _expr(c)) for a, b, c in parts]
        filler = scalar.constant(ir.RankedTensorType(x.type).element_type, value)
        (low_map, high_map, shape), symbols = self.shapes.pack((0, _exprs(low)), (0, _exprs(high)), (0, sizes))
        return kiln.pad(x, filler, low_map, high_map, shape, symbols)

    def fill(self, type_: ir.Type, sizes: Sequence[Expr], value: float | int) -> ir.Value:
        """A tensor of one constant."""
        out = self.empty(type_, sizes)
        loops = "p" * len(sizes)
        return self.generic([], [], [out], [dims(len(sizes))], loops, lambda _: scalar.constant(type_, value))[0]

    # ------------------------------------------------------------------------------------------------ computation

    def generic(
        self,
        inputs: Sequence[ir.Value],
        maps: Sequence[Sequence[Expr]],
        outs: Sequence[ir.Value],
        out_maps: Sequence[Sequence[Expr]],
        iterators: str,
        body: Body,
    ) -> list[ir.Value]:
        """A `linalg.generic`; `iterators` has one letter a loop: `p` parallel, `r` reduction.

        `maps` and `out_maps` have one list of results per tensor, over the loops alone: these maps have no symbols.
        `body` takes one scalar per input and out and returns the scalar to yield, or several.
        """
        operands = [*inputs, *outs]
        of_loops = [ir.AffineMap.get(len(iterators), 0, _exprs(exprs)) for exprs in (*maps, *out_maps)]
        attributes = {
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in of_loops]),
            "iterator_types": self._iterator_types(iterators),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(outs)]),
        }
        op = ir.Operation.create(
            "linalg.generic", results=[o.type for o in outs], operands=operands, attributes=attributes, regions=1
        )
        types = [ir.RankedTensorType(v.type).element_type for v in operands]
        block = ir.Block.create_at_start(op.regions[0], types, [op.location] * len(types))
        with ir.InsertionPoint(block):
            returned = body(*block.arguments)
            results: list[ir.Value] = [cast(ir.Value, returned)] if isinstance(returned, ir.Value) else list(returned)
            ir.Operation.create("linalg.yield", operands=results)
        return list(op.results)

    def _iterator_types(self, letters: str) -> ir.Attribute:
        found = self._iterators.get(letters)
        if found is None:
            kinds = ["parallel" if letter == "p" else "reduction" for letter in letters]
            parsed = [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]
            found = self._iterators[letters] = ir.ArrayAttr.get(parsed)
        return found

    def map(
        self,
        inputs: Sequence[tuple[ir.Value, Sequence[Expr]]],
        sizes: Sequence[Expr],
        type_: ir.Type,
        body: Body,
    ) -> ir.Value:
        """A pointwise op: `result[d..] = body(input[index(d)]..)`."""
        out = self.empty(type_, sizes)
        values, maps = [v for v, _ in inputs], [i for _, i in inputs]
        loops = "p" * len(sizes)

        def without_out(*arguments: ir.Value) -> Any:
            return body(*arguments[:-1])

        return self.generic(values, maps, [out], [dims(len(sizes))], loops, without_out)[0]

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
        values, maps = [v for v, _ in inputs], [i for _, i in inputs]
        return self.generic(values, maps, [out], [index], iterators, body)[0]

    def cast(self, x: ir.Value, type_: ir.Type) -> ir.Value:
        """`x` converted elementwise."""
        if ir.RankedTensorType(x.type).element_type == type_:
            return x
        sizes = self.sizes(x)
        return self.map([(x, dims(len(sizes)))], sizes, type_, lambda a: scalar.cast(a, type_))

    # ------------------------------------------------------------------------------------------------ inside bodies

    def size_value(self, e: Expr, type_: ir.Type | None = None) -> ir.Value:
        """A size as an SSA value, of index type or another.  Call outside of bodies: it may make `tensor.dim` ops."""
        (map_,), symbols = self.shapes.pack((0, [_expr(e)]))
        value = scalar.index_value(map_.results[0], [], symbols.__getitem__)
        return value if type_ is None else scalar.cast(value, type_)

    def product_value(self, sizes: Sequence[ir.AffineExpr], type_: ir.Type) -> ir.Value:
        """The product of sizes, of a float or integer type."""
        product = _expr(1)
        for s in sizes:
            product = product * s
        product = affine.simplify(product)
        known = affine.constant_of(product)
        return scalar.constant(type_, known) if known is not None else self.size_value(product, type_)


def here(position: int) -> ir.Value:
    """`linalg.index` of a loop, inside a body."""
    return linalg.IndexOp(position).result


def extract(x: ir.Value, indices: Sequence[ir.Value]) -> ir.Value:
    """`tensor.extract`, inside a body."""
    return tensor.extract(x, list(indices))
