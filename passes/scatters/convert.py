# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One function per ATen op: what is written where, as a `kiln.scatter_nd` and pointwise ops in front of it."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

from torch_mlir import ir

from kiln.dialects import affine, kiln, scalar
from kiln.dialects.builder import Builder, dim, dims
from kiln.dialects.kiln.index import index_position
from kiln.dialects.shapes import SymbolicShapes
from kiln.errors import UnsupportedError
from kiln.passes.scatters.values import Values

__all__ = ["CONVERSIONS", "Call", "convert"]

_REDUCE = {"sum": "sum", "add": "sum", "amax": "amax", "amin": "amin"}


class Call:
    """A `kiln.aten` under conversion: its arguments by position or name."""

    def __init__(self, function: ir.OpView, op: ir.Operation, name: str, atomics: bool) -> None:
        self.op, self.name, self.atomics = op, name, atomics
        self.args = json.loads(ir.StringAttr(op.attributes["args"]).value)
        self.kwargs = json.loads(ir.StringAttr(op.attributes["kwargs"]).value)
        self.shapes = SymbolicShapes(function)
        self.b = Builder(self.shapes)
        self.values = Values(self.b, name.removesuffix(".default"))

    def unsupported(self, reason: str) -> NoReturn:
        """Leave it a call."""
        raise UnsupportedError(self.name, str(self.op.location), reason)

    def given(self, position: int, name: str, default: Any = None) -> Any:
        """An argument as JSON."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    def tensor(self, argument: Any) -> ir.Value:
        """The operand that an argument stands for."""
        if not isinstance(argument, dict) or "operand" not in argument:
            self.unsupported("an argument that is no tensor")
        return self.op.operands[cast(dict[str, int], argument)["operand"]]

    def number(self, argument: Any) -> float | int:
        """A number that is known now."""
        if isinstance(argument, dict) and "float" in argument:
            return float(cast(dict[str, Any], argument)["float"])
        if not isinstance(argument, int | float):
            self.unsupported("a number that is known only at run time")
        return argument

    def dim(self, x: ir.Value) -> int:
        """The argument `dim`, not negative."""
        rank = ir.RankedTensorType(x.type).rank
        if not rank:
            self.unsupported("a tensor without dims")
        return int(self.number(self.given(1, "dim"))) % rank

    def write(
        self,
        x: ir.Value,
        src: ir.Value,
        indices: Sequence[tuple[ir.Value, Sequence[ir.AffineExpr]]],
        at: Sequence[int],
        loops: Sequence[int],
        reduce: str,
        wrap: bool = False,
    ) -> ir.Value:
        """`x` with `src` written where `indices`, each with its map from the loops of `src`, say along dims `at`."""
        self._check(x, src, [v for v, _ in indices], at, reduce)
        sizes, space = self.b.sizes(x), self.b.sizes(src)
        placed = zip(indices, at, strict=True)
        named = [self.values.checked(index, map_, space, sizes[d], wrap) for (index, map_), d in placed]
        element = ir.RankedTensorType(x.type).element_type
        wide = ir.F32Type.get() if reduce != "none" and isinstance(element, ir.BF16Type | ir.F16Type) else element
        from_zero = reduce in ("sum", "none") and self.values.is_zero(x)
        start = self.b.empty(wide, sizes) if from_zero else self.b.cast(x, wide)
        if self.atomics and not from_zero and reduce in ("amax", "amin") and scalar.is_float(wide):
            start = self.values.one_nan(start, reduce)
        result = kiln.scatter_nd(start, self.b.cast(src, wide), named, at, loops, reduce, from_zero)
        return self.b.cast(result, element)

    def _check(self, x: ir.Value, src: ir.Value, indices: Sequence[ir.Value], at: Sequence[int], reduce: str) -> None:
        if "operand_dtypes" in self.op.attributes:
            self.unsupported("unsigned integers")
        element = ir.RankedTensorType(x.type).element_type
        if not isinstance(element, ir.FloatType | ir.IntegerType):
            self.unsupported(f"elements of type {element}")
        if ir.RankedTensorType(src.type).element_type != element:
            self.unsupported("values of another type than what they are written to")
        narrow = not isinstance(element, ir.BF16Type | ir.F16Type) and element.width < (32 if self.atomics else 8)
        if reduce != "none" and narrow:
            which = "atomic op for" if self.atomics else "sum of"
            self.unsupported(f"there is no {which} elements of type {element}")
        for index in indices:
            kind = ir.RankedTensorType(index.type).element_type
            if not isinstance(kind, ir.IntegerType) or kind.width < 32:
                self.unsupported(f"indices of type {kind}")
        for value in (x, src, *indices):
            if any(p >= len(self.shapes.symbols) for e in self.b.sizes(value) for p in affine.symbols_in(e)):
                self.unsupported("sizes that have no names")
        if any(affine.constant_of(self.b.sizes(x)[d]) == 0 for d in at):
            self.unsupported("the indexed dimension is empty")


def convert(function: ir.OpView, op: ir.Operation, name: str, atomics: bool = True) -> None:
    """Replace a call of an op in `CONVERSIONS`; `atomics` as in the pass. Raises UnsupportedError, with the reason,
    where it stays a call.
    """
    call = Call(function, op, name, atomics)
    before = op.block
    known = len(list(before.operations))
    with ir.InsertionPoint(op), op.location:
        try:
            result = CONVERSIONS[name](call)
        except UnsupportedError:
            _undo(op, len(list(before.operations)) - known)
            raise
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _undo(op: ir.Operation, count: int) -> None:
    """Erase the ops that were made right in front of `op`."""
    operations = [view.operation for view in op.block.operations]
    at = operations.index(op)
    for made in reversed(operations[at - count : at]):
        made.erase()


def _scatter(call: Call, src: ir.Value | float, reduce: str) -> ir.Value:
    """`x[.., index[d], ..] = src[d]` along one dim."""
    x, index = call.tensor(call.given(0, "self")), call.tensor(call.given(2, "index"))
    at = call.dim(x)
    sizes = call.b.sizes(index)
    rank = len(sizes)
    if rank != ir.RankedTensorType(x.type).rank:
        call.unsupported("an index of another rank")
    if isinstance(src, ir.Value):
        if call.b.sizes(src) != sizes:
            src = call.b.view(src, dims(rank), sizes)  # the part that there are indices for
    else:
        src = call.b.fill(ir.RankedTensorType(x.type).element_type, sizes, src)
    return call.write(x, src, [(index, dims(rank))], [at], [k for k in range(rank) if k != at], reduce)


def _scatter_src(call: Call) -> ir.Value:
    return _scatter(call, call.tensor(call.given(3, "src")), "none")


def _scatter_value(call: Call) -> ir.Value:
    return _scatter(call, call.number(call.given(3, "value")), "none")


def _scatter_add(call: Call) -> ir.Value:
    return _scatter(call, call.tensor(call.given(3, "src")), "sum")


def _reduction(call: Call, text: Any) -> str:
    if text not in _REDUCE:
        call.unsupported(f"no kernel combines by {text}" if not call.atomics else f"there is no atomic op for {text}")
    return _REDUCE[text]


def _scatter_reduce(call: Call) -> ir.Value:
    if not call.given(5, "include_self", True):
        call.unsupported("without the elements that are there")
    return _scatter(call, call.tensor(call.given(3, "src")), _reduction(call, call.given(4, "reduce")))


def _scatter_and(call: Call) -> ir.Value:
    """scatter(..., reduce="add")."""
    return _scatter(call, call.tensor(call.given(3, "src")), _reduction(call, call.given(4, "reduce")))


def _slices(call: Call, reduce: str) -> ir.Value:
    """index_add and index_copy: slices of `src` along one dim, one per index."""
    x, index, src = (call.tensor(call.given(k, n)) for k, n in ((0, "self"), (2, "index"), (3, "source")))
    at = call.dim(x)
    rank = ir.RankedTensorType(x.type).rank
    if ir.RankedTensorType(src.type).rank != rank or ir.RankedTensorType(index.type).rank != 1:
        call.unsupported("values or indices without dims")
    alpha = call.number(call.kwargs.get("alpha", 1))
    if alpha != 1:
        src = call.values.scaled(src, alpha)
    return call.write(x, src, [(index, [dim(at)])], [at], [k for k in range(rank) if k != at], reduce)


def _fill_slices(call: Call) -> ir.Value:
    """index_fill: one number in slices along one dim, one per index."""
    x, index = (call.tensor(call.given(k, n)) for k, n in ((0, "self"), (2, "index")))
    at = call.dim(x)
    if ir.RankedTensorType(index.type).rank != 1:
        call.unsupported("values or indices without dims")
    sizes = list(call.b.sizes(x))
    sizes[at] = call.b.sizes(index)[0]
    src = call.b.fill(ir.RankedTensorType(x.type).element_type, sizes, call.number(call.given(3, "value")))
    loops = [k for k in range(len(sizes)) if k != at]
    return call.write(x, src, [(index, [dim(at)])], [at], loops, "none", wrap=True)


def _index_put(call: Call) -> ir.Value:
    """`x[i, :, j] = values`: loops run along the broadcast indices, then along the dims that are not indexed."""
    x, values = call.tensor(call.given(0, "self")), call.tensor(call.given(2, "values"))
    given = call.given(1, "indices")
    at = [k for k, index in enumerate(given) if index is not None]
    indices = [call.tensor(given[k]) for k in at]
    if not indices:
        call.unsupported("no indices")
    b = call.b
    block = _broadcast(call, [b.sizes(i) for i in indices])
    rest = [k for k in range(ir.RankedTensorType(x.type).rank) if k not in at]
    first = index_position(at)
    around = [b.sizes(x)[k] for k in rest]
    space = [*around[:first], *block, *around[first:]]
    loops = [k if k < first else k + len(block) for k in range(len(rest))]
    maps = [_stretched(b.sizes(i), [dim(first + k) for k in range(len(block))]) for i in indices]
    sizes = b.sizes(values)
    if len(sizes) > len(space):
        call.unsupported("values of more dims than what they are written to")
    if sizes != space:
        values = b.view(values, _stretched(sizes, dims(len(space))), space)
    reduce = "sum" if call.given(3, "accumulate", False) else "none"
    return call.write(x, values, list(zip(indices, maps, strict=True)), at, loops, reduce, wrap=True)


def _broadcast(call: Call, shapes: Sequence[Sequence[ir.AffineExpr]]) -> list[ir.AffineExpr]:
    rank = max(len(s) for s in shapes)
    one = ir.AffineConstantExpr.get(1)
    found: list[ir.AffineExpr] = []
    for k in range(rank):
        sizes = [s[k - rank + len(s)] for s in shapes if k - rank + len(s) >= 0]
        longer = [n for n in sizes if n != one]
        if any(n != longer[0] for n in longer):
            call.unsupported("indices whose sizes are not known to agree")
        found.append(longer[0] if longer else one)
    return found


def _stretched(sizes: Sequence[ir.AffineExpr], point: Sequence[ir.AffineExpr]) -> list[ir.AffineExpr]:
    """The index of a tensor of these sizes that broadcasts to the loops of `point`."""
    zero = ir.AffineConstantExpr.get(0)
    lead = len(point) - len(sizes)
    return [zero if n == ir.AffineConstantExpr.get(1) else p for n, p in zip(sizes, point[lead:], strict=True)]


def _embedding_gradient(call: Call) -> ir.Value:
    """Rows of the gradient added up by the row of the table that they are of; those of `padding_idx` are left out."""
    gradient, index = call.tensor(call.given(0, "grad_output")), call.tensor(call.given(1, "indices"))
    if call.given(4, "scale_grad_by_freq"):
        call.unsupported("gradients scaled by how often a row is named")
    rank = ir.RankedTensorType(index.type).rank
    b = call.b
    padding = call.number(call.given(3, "padding_idx"))
    if padding >= 0:
        gradient = call.values.dropped(gradient, index, dims(rank), int(padding))
    sizes = list(call.shapes.dims(call.op.results[0]))
    table = b.fill(ir.RankedTensorType(gradient.type).element_type, sizes, 0)
    return call.write(table, gradient, [(index, dims(rank))], [0], [rank], "sum")


CONVERSIONS: dict[str, Callable[[Call], ir.Value]] = {
    "aten.scatter.src": _scatter_src,
    "aten.scatter.value": _scatter_value,
    "aten.scatter_add.default": _scatter_add,
    "aten.scatter_reduce.two": _scatter_reduce,
    "aten.scatter.reduce": _scatter_and,
    "aten.index_add.default": lambda call: _slices(call, "sum"),
    "aten.index_copy.default": lambda call: _slices(call, "none"),
    "aten.index_fill.int_Scalar": _fill_slices,
    "aten.index_put.default": _index_put,
    "aten._unsafe_index_put.default": _index_put,
    "aten.embedding_dense_backward.default": _embedding_gradient,
}
"""By the name of the ATen op."""
