# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Concatenations that put together what was taken apart, slices of concatenations, and sums of scattered slices."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.passes.torch_to_kiln.aten_fallback import op_strides
from kiln.passes.torch_to_kiln.sizes import share_memory
from kiln.passes.torch_to_kiln.torch_values import NOT_CONSTANT, list_elements, op_name, python_value

from .expressions import Match, NoMatch
from .rules import Safety, rule
from .values import dtype_of, escapes, is_integral, size_exprs, sizes_of, splat_of

T = "concatenations"
EXACT = Safety.EXACT

_NO_END = (1 << 63) - 1
_SCATTERS = {f"torch.aten.{name}": name for name in ("slice_scatter", "select_scatter")}
_SPLITS = frozenset(f"torch.aten.{name}" for name in ("split.Tensor", "split_with_sizes", "chunk"))


@dataclass(frozen=True)
class _Piece:
    """Elements ``start`` to ``end`` of ``source`` along ``dim``; ``end`` is None for all that follows."""

    source: ir.Value
    dim: int
    start: int
    end: int | None


def _piece(value: ir.Value) -> _Piece | None:
    """What a slice, or a member of a split, takes; None for anything else or bounds known at run time only."""
    op = defining_op(value)
    if op is None:
        return None
    if op_name(op) == "torch.aten.slice.Tensor":
        return _slice(op, value)
    split = defining_op(op.operands[0]) if op.name == "torch.prim.ListUnpack" else None
    if split is None or op_name(split) not in _SPLITS:
        return None
    dim = python_value(split.operands[2])
    rank = len(sizes_of(split.operands[0]) or ())
    lengths = [(sizes_of(result) or ())[dim % rank] for result in op.results] if isinstance(dim, int) and rank else []
    number = ir.OpResult(value).result_number
    before = lengths[:number]
    if not lengths or not all(isinstance(length, int) for length in before):
        return None
    start = sum(length for length in before if isinstance(length, int))
    own = lengths[number]
    if isinstance(own, int):
        return _Piece(split.operands[0], dim % rank, start, start + own)
    return _Piece(split.operands[0], dim % rank, start, None) if number == len(lengths) - 1 else None


def _slice(op: ir.Operation, value: ir.Value) -> _Piece | None:
    """(self, dim, start, end, step)."""
    whole, taken = sizes_of(op.operands[0]), sizes_of(value)
    dim, start, step = (python_value(op.operands[k]) for k in (1, 2, 4))
    if whole is None or taken is None or step != 1 or not isinstance(dim, int):
        return None
    start = 0 if start is None else start
    size, length = whole[dim % len(whole)], taken[dim % len(whole)]
    if start is NOT_CONSTANT or not isinstance(start, int):
        return None
    if start < 0:
        if not isinstance(size, int):
            return None
        start = max(0, start + size)
    if isinstance(length, int):
        return _Piece(op.operands[0], dim % len(whole), start, start + length)
    # Of a dynamic size: all that follows, if it says so.
    end = python_value(op.operands[3])
    return _Piece(op.operands[0], dim % len(whole), start, None) if end in (None, _NO_END) else None


@rule("cat-one", "cat(xs)", "x  (one tensor)", EXACT, "a list of one tensor", T)
def cat_one(m: Match) -> ir.Value:
    """A concatenation of one tensor is that tensor."""
    elements = list_elements(m["xs"])
    if elements is None or len(elements) != 1:
        raise NoMatch("")
    return m.like_root(elements[0])


@rule(
    "cat-slices",
    "cat(xs, d)",
    "x  (all its slices, in order)",
    EXACT,
    "slices or members of a split, put together as they were taken apart",
    T,
)
def cat_slices(m: Match) -> ir.Value:
    """A concatenation of adjacent slices of one tensor is a slice of it."""
    elements = list_elements(m["xs"])
    if elements is None or len(elements) < 2:
        raise NoMatch("")
    pieces = [_piece(element) for element in elements]
    first = pieces[0]
    if first is None or any(piece is None or piece.source != first.source for piece in pieces):
        raise NoMatch("")
    dim = m.const("d") % len(sizes_of(first.source) or (1,))
    end: int | None = 0
    for piece in pieces:
        if piece is None or piece.dim != dim or piece.start != end:
            raise NoMatch("the slices do not follow each other")
        end = piece.end
    # Whether they are all of it: the sizes tell.
    return m.like_root(first.source)


@rule("stack-unbind", "stack(xs, d)", "x  (all it was unbound into)", EXACT, "put together as taken apart", T)
def stack_unbind(m: Match) -> ir.Value:
    """A stack of all that `unbind` gives along the same dim is the tensor."""
    elements = list_elements(m["xs"])
    unpacked = defining_op(elements[0]) if elements else None
    if elements is None or unpacked is None or unpacked.name != "torch.prim.ListUnpack":
        raise NoMatch("")
    unbound = defining_op(unpacked.operands[0])
    if unbound is None or op_name(unbound) != "torch.aten.unbind.int" or list(unpacked.results) != list(elements):
        raise NoMatch("")
    rank = len(sizes_of(unbound.operands[0]) or (1,))
    if m.const_of(unbound.operands[1], "a dimension") % rank != m.const("d") % rank:
        raise NoMatch("put together along another dimension")
    return m.like_root(unbound.operands[0])


@rule("slice-cat", "slice(cat(xs, e), d)", "a slice of one of xs, or all of it", EXACT, "nothing else is read", T)
def slice_cat(m: Match) -> ir.Value:
    """A slice of a concatenation that is one of the parts is that part."""
    elements, sizes = list_elements(m["xs"]), sizes_of(m.operand(0))
    piece = _piece(m.result)
    if elements is None or sizes is None or piece is None or piece.end is None:
        raise NoMatch("")
    if m.const("e") % len(sizes) != piece.dim:
        raise NoMatch("")
    m.need(not escapes(m.result), "the result is returned: it would share memory with a part")
    begin = 0
    for element in elements:
        part = sizes_of(element)
        if part is None or len(part) != len(sizes) or dtype_of(element) != dtype_of(m.result):
            raise NoMatch("a part of another element type or rank")
        length = part[piece.dim]
        if not isinstance(length, int):
            raise NoMatch("a part of dynamic size comes before the slice")
        if begin <= piece.start and piece.end <= begin + length:
            if (begin, begin + length) == (piece.start, piece.end):
                return m.like_root(element)
            bounds = [m.number(n) for n in (piece.dim, piece.start - begin, piece.end - begin, 1)]
            return m.build("slice.Tensor", element, *bounds)
        begin += length
    raise NoMatch("the slice holds parts of several tensors")


@rule(
    "add-scatters",
    "add(write(x, a), write(y, b))",
    "write(write(x, a + 0), b + 0)  (x, y = 0)",
    EXACT,
    "`slice_scatter` and `select_scatter` into zeros, disjoint, as gradients of slices; + 0, since -0.0 + 0.0 is +0.0",
    T,
)
def add_scatters(m: Match) -> ir.Value:
    """The sum of disjoint slices, written into zeros each, is one tensor into which all of them are written."""
    whole = sizes_of(m.result)
    writes, other = list(_writes(m.operand(0))), list(_writes(m.operand(1)))
    if whole is None or not writes or not other:
        raise NoMatch("")
    bases = [m.like_root(chain[-1].operands[0]) for chain in (writes, other)]
    zeros = [splat_of(base) for base in bases]
    m.need(all(z == 0 and math.copysign(1, z) == 1 for z in zeros if z is not None) and None not in zeros, "not zeros")
    m.need(all(len(list(op.results[0].uses)) == 1 for op in (*writes, *other)), "a summand is read elsewhere")
    places = [[_written(op, whole) for op in chain] for chain in (writes, other)]
    for one in places[0]:
        for two in places[1]:
            m.need(_are_disjoint(one, two), "the slices may overlap")
    found = bases[0]
    for op in (*reversed(writes), *reversed(other)):
        found = m.build(_SCATTERS[op_name(op)], found, _plus_zero(m, op.operands[1]), *list(op.operands)[2:])
    return found


@rule("writes-cat", "write(write(x, a), b)", "cat([a, b])  (all of x)", EXACT, "nothing that x had is left", T)
def writes_cat(m: Match) -> ir.Value:
    """Writes of slices, next to each other, that leave nothing of what is written to are a concatenation."""
    whole, writes = sizes_of(m.result), list(_writes(m.result))
    if whole is None or any(op_name(use.owner.operation) in _SCATTERS for use in m.result.uses):
        raise NoMatch("")
    strides, shape = op_strides(m.root, 0), size_exprs(m.result)
    if strides is not None and shape is not None:
        m.need(not share_memory(strides, shape[0]), "what is written to one element changes others")
    places = sorted(((*_written(op, whole), op) for op in writes), key=lambda place: place[1].start)
    dim, end = places[0][0], 0
    for other, indices, _ in places:
        m.need(other == dim and indices.step == 1 and indices.start == end, "the slices do not follow each other")
        end = indices.stop
    m.need(end == whole[dim], "they leave some of what is written to")
    pieces = [_at_rank(m, op.operands[1], dim, len(whole)) for _, _, op in places]
    elements = ir.Operation.create(
        "torch.prim.ListConstruct", results=[ir.Type.parse("!torch.list<vtensor>")], operands=pieces
    )
    return m.build("cat", elements.result, m.number(dim))


def _at_rank(m: Match, piece: ir.Value, dim: int, rank: int) -> ir.Value:
    """What is written at a single index, as a slice of one."""
    shape = size_exprs(piece)
    if shape is None or dtype_of(piece) != dtype_of(m.result):
        raise NoMatch("a slice of unknown sizes, or of another element type")
    exprs, symbols = shape
    if len(exprs) == rank:
        return piece
    one = ir.AffineConstantExpr.get(1)
    return m.build_shaped("unsqueeze", [piece, m.number(dim)], [*exprs[:dim], one, *exprs[dim:]], symbols)


def _writes(value: ir.Value) -> Iterator[ir.Operation]:
    """The scatters of slices and single indices that make a value, the last first."""
    op = defining_op(value)
    while op is not None and op_name(op) in _SCATTERS:
        yield op
        op = defining_op(op.operands[0])


def _written(op: ir.Operation, whole: tuple[int | str, ...]) -> tuple[int, range]:
    """The dim and the indices along it that a scatter writes; those of a dynamic size end nowhere.

    (self, src, dim, start, end, step), or (self, src, dim, index).
    """
    bounds = [python_value(x) for x in list(op.operands)[2:]]
    if _SCATTERS[op_name(op)] == "select_scatter":
        bounds = [*bounds, bounds[1] + 1 if isinstance(bounds[1], int) and bounds[1] != -1 else None, 1]
    dim, start, end, step = bounds
    start, end = 0 if start is None else start, _NO_END if end is None else end
    if not (isinstance(dim, int) and isinstance(start, int) and isinstance(end, int) and isinstance(step, int)):
        raise NoMatch("bounds are known only at run time")
    size = whole[dim % len(whole)]
    if isinstance(size, int):
        return dim % len(whole), range(*slice(start, end, step).indices(size))
    if start < 0 or end < 0:
        raise NoMatch("bounds are counted from an end that is known only at run time")
    return dim % len(whole), range(start, end, step)


def _are_disjoint(one: tuple[int, range], two: tuple[int, range]) -> bool:
    (dim, a), (other, b) = one, two
    if dim != other:
        return False
    if not a or not b or a[-1] < b[0] or b[-1] < a[0]:
        return True
    return (a.start - b.start) % math.gcd(a.step, b.step) != 0


def _plus_zero(m: Match, piece: ir.Value) -> ir.Value:
    op, shape = defining_op(piece), size_exprs(piece)
    is_sum = op is not None and op_name(op) == "torch.aten.add.Scalar" and splat_of(op.operands[1]) == 0
    if is_sum or is_integral(piece):
        return piece
    if shape is None:
        raise NoMatch("a slice of unknown sizes")
    return m.build_shaped("add.Scalar", [piece, m.number(0), m.number(1)], *shape)
