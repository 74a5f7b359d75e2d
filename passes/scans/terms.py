# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elements of tensors as terms over the elements of others, one position along a dim at a time.

Views, concatenations and pads only say which element it is, so terms of equal computations are equal whatever way data
was moved. Terms are numbers in a table; equal terms have one number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.dialects.kiln.recurrence import carried_type
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import indexing_maps, output_map, reduction_dims

__all__ = ["Element", "NoTerm", "Node", "Terms", "along"]

Element = tuple[int, ...]
"""An index: a position for each dim, or `along(k)` for a dim that goes along dim k of the scan's result."""

_ALONG = -(1 << 40)

_At = Callable[[Element], int]


class NoTerm(Exception):
    """A value that is no term: a reduction, a call, an index that depends on several dims."""


@dataclass(frozen=True)
class Node:
    """A term: an element of a leaf (`leaf` and its position), or an op on terms."""

    type: ir.Type
    op: ir.Operation | None = None
    children: tuple[int, ...] = ()
    leaf: int = -1
    position: int = -1
    signature: tuple[object, ...] = ()


def along(dim: int) -> int:
    """What stands for all positions along a dim of the result."""
    return _ALONG - dim


class Terms:
    """Terms over the elements of `leaves`, tensors of one rank, of which dim `dim` has positions.

    Roundings to 16 bits are left out: what is carried along a scan has more digits.
    """

    def __init__(self, leaves: Sequence[ir.Value], dim: int) -> None:
        self.leaves = {leaf: i for i, leaf in enumerate(leaves)}
        self.dim = dim
        self.nodes: list[Node] = []
        self._known: dict[object, int] = {}
        self._elements: dict[tuple[ir.Value, Element], int] = {}
        self._moves: dict[ir.Operation, list[_At]] = {}
        self._signatures: dict[ir.Operation, tuple[object, ...]] = {}

    def element(self, value: ir.Value, at: Element) -> int:
        """The term of an element. Raises NoTerm."""
        key = (value, at)
        found = self._elements.get(key)
        if found is None:
            leaf = self.leaves.get(value)
            found = self._elements[key] = self._element(value, at) if leaf is None else self._leaf(leaf, value, at)
        return found

    def _leaf(self, leaf: int, value: ir.Value, at: Element) -> int:
        position, sizes = at[self.dim], ir.RankedTensorType(value.type).shape
        whole = (n == 1 or x == along(k) for k, (x, n) in enumerate(zip(at, sizes, strict=True)) if k != self.dim)
        if position < 0 or not all(whole):
            raise NoTerm("another element of an operand")
        type_ = carried_type(ir.RankedTensorType(value.type).element_type)
        return self._node((leaf, position), Node(type_, leaf=leaf, position=position))

    def _node(self, key: object, node: Node) -> int:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.nodes)
            self.nodes.append(node)
        return found

    # -- where elements come from ------------------------------------------------------------------------------------

    def _element(self, value: ir.Value, at: Element) -> int:
        op = defining_op(value)
        name = "" if op is None else name_of(op)
        if op is None:
            raise NoTerm("an argument")
        if name == "kiln.view":
            return self.element(op.operands[0], self._moved(op, at))
        if name == "kiln.cat":
            return self._joined(op, at)
        if name == "kiln.pad":
            return self._padded(op, at)
        if name == "linalg.generic" and not reduction_dims(op.opview):
            return self._computed(op, value, at)
        raise NoTerm(name)

    def _moved(self, op: ir.Operation, at: Element) -> Element:
        moves = self._moves.get(op)
        if moves is None:
            map_ = ir.AffineMapAttr(op.attributes["map"]).value
            moves = self._moves[op] = [_compiled(e) for e in map_.results]
        return tuple(move(at) for move in moves)

    def _joined(self, op: ir.Operation, at: Element) -> int:
        dim = ir.IntegerAttr(op.attributes["dim"]).value
        position = at[dim]
        if position < 0:
            raise NoTerm("all of a concatenation")
        for piece in op.operands:
            size = ir.RankedTensorType(piece.type).shape[dim]
            if size < 0:
                break
            if position < size:
                return self.element(piece, (*at[:dim], position, *at[dim + 1 :]))
            position -= size
        raise NoTerm("a concatenation of unknown sizes")

    def _padded(self, op: ir.Operation, at: Element) -> int:
        found = list(at)
        sizes = ir.RankedTensorType(op.operands[0].type).shape
        ends = zip(*(ir.AffineMapAttr(op.attributes[k]).value.results for k in ("low", "high")), strict=True)
        for k, (low, high) in enumerate(ends):
            before, behind = affine.constant_of(low), affine.constant_of(high)
            if (before, behind) != (0, 0):
                if before is None or found[k] < before or found[k] - before >= sizes[k]:
                    raise NoTerm("padding")
                found[k] -= before
        return self.element(op.operands[0], tuple(found))

    # -- what elements are computed from -----------------------------------------------------------------------------

    def _computed(self, op: ir.Operation, value: ir.Value, at: Element) -> int:
        loops: dict[int, int] = {}
        for e, x in zip(output_map(op.opview).results, at, strict=True):
            if isinstance(e, ir.AffineDimExpr):
                loops[e.position] = x
        point = tuple(loops.get(i, 0) for i in range(indexing_maps(op.opview)[0].n_dims))
        block = op.regions[0].blocks[0]
        env: dict[ir.Value, int] = {}
        inputs = len(op.operands) - len(op.results)
        maps = indexing_maps(op.opview)[:inputs]
        for argument, operand, map_ in zip(block.arguments, op.operands, maps, strict=False):
            if isinstance(operand.type, ir.RankedTensorType):
                env[argument] = self.element(operand, tuple(_compiled(e)(point) for e in map_.results))
        for inner in block.operations:
            operation = inner.operation
            if operation.name == "linalg.yield":
                return self._term(operation.operands[ir.OpResult(value).result_number], env)
            if operation.name.startswith(("linalg.", "tensor.")) or len(operation.regions):
                raise NoTerm(operation.name)
            env[inner.results[0]] = self._applied(operation, [self._term(v, env) for v in operation.operands])
        raise NoTerm("a body without linalg.yield")

    def _term(self, value: ir.Value, env: dict[ir.Value, int]) -> int:
        if value in env:
            return env[value]
        op = defining_op(value)
        if op is None or op.name != "arith.constant":
            raise NoTerm("a number from outside")
        return self._applied(op, [])

    def _applied(self, op: ir.Operation, children: list[int]) -> int:
        types = [self.nodes[c].type for c in children]
        result = op.results[0].type
        is_cast = op.name in ("arith.extf", "arith.truncf") and len(children) == 1
        if is_cast and types[0] == carried_type(result) == carried_type(op.operands[0].type):
            return children[0]
        if types != [v.type for v in op.operands] or len(op.results) != 1:
            raise NoTerm(f"{op.name} of narrow floats")
        signature = self._signatures.get(op)
        if signature is None:
            attributes = tuple(f"{name}={op.attributes[name]}" for name in op.attributes)
            signature = self._signatures[op] = (op.name, attributes, str(result))
        key = (*signature, *children)
        return self._node(key, Node(result, op, tuple(children), signature=signature))


def _compiled(expr: ir.AffineExpr) -> _At:
    """An index expression as a function; where it depends on a dim that goes along, it is that dim alone."""
    expr = expr.maybe_downcast()
    if isinstance(expr, ir.AffineDimExpr):
        position = expr.position
        return lambda at: at[position]
    if isinstance(expr, ir.AffineConstantExpr):
        number = expr.value
        return lambda _: number
    if isinstance(expr, ir.AffineSymbolExpr):
        raise NoTerm("a position known at run time")
    left, right = _compiled(expr.lhs), _compiled(expr.rhs)
    operator = _OPERATORS[type(expr)]

    def combined(at: Element) -> int:
        x, y = left(at), right(at)
        if min(x, y) < _ALONG // 2:
            raise NoTerm("an index that several dims give")
        return operator(x, y)

    return combined


_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ir.AffineAddExpr: lambda x, y: x + y,
    ir.AffineMulExpr: lambda x, y: x * y,
    ir.AffineModExpr: lambda x, y: x % y,
    ir.AffineFloorDivExpr: lambda x, y: x // y,
    ir.AffineCeilDivExpr: lambda x, y: -(-x // y),
}
