# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes of each op's results from its operands: the rules of `kiln.dialects.shapes.SymbolicShapes`.

A rule takes the analysis, the op and the result's number, and gives one expression (or None) per dim.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln.base import DYNAMIC
from kiln.dialects.kiln.conv import conv_size, conv_transpose_size
from kiln.dialects.kiln.index import indexed_shape

if TYPE_CHECKING:
    from kiln.dialects.shapes import SymbolicShapes

Sizes = Sequence[ir.AffineExpr | None] | None
Rule = Callable[["SymbolicShapes", ir.Operation, int], Sizes]


def _attr(op: ir.Operation, name: str) -> Any:
    return op.attributes[name].value


def _ints(op: ir.Operation, name: str) -> list[int]:
    return list(op.attributes[name])


# ------------------------------------------------------------------------------------------------------- upstream ops


def destination(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    """A destination-passing op: result i has the sizes of the i-th `outs`."""
    return shapes.dims(op.operands[len(op.operands) - len(op.results) + number])


def _mixed(shapes: "SymbolicShapes", static: Sequence[int], dynamic: Sequence[ir.Value]) -> Sizes:
    """A static list whose dynamic entries are the operands `dynamic`, in order."""
    rest = iter(dynamic)
    return [shapes.expr(next(rest)) if s == DYNAMIC else ir.AffineExpr.get_constant(s) for s in static]


def _tensor_empty(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    return _mixed(shapes, list(ir.RankedTensorType(op.results[0].type).shape), list(op.operands))


def _expand_shape(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    return _mixed(shapes, _ints(op, "static_output_shape"), list(op.operands)[1:])


def _collapse_shape(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    dims = shapes.dims(op.operands[0])
    groups = [[ir.IntegerAttr(i).value for i in group] for group in op.attributes["reassociation"]]
    one = ir.AffineExpr.get_constant(1)
    return [affine.simplify(reduce(ir.AffineExpr.get_mul, (dims[i] for i in g), one)) for g in groups]


def _extract_slice(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    segments = list(op.attributes["operandSegmentSizes"])
    start = segments[0] + segments[1]
    sizes = _mixed(shapes, _ints(op, "static_sizes"), list(op.operands)[start : start + segments[2]])
    rank = ir.RankedTensorType(op.results[0].type).rank
    # Rank reduction drops unit dims; which ones is clear only when it drops all of them.
    kept = [s for s in sizes or () if s is None or affine.constant_of(s) != 1]
    return sizes if sizes is not None and len(sizes) == rank else kept if len(kept) == rank else None


def _same_as_first(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    return shapes.dims(op.operands[0])


def _same_as_second(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    return shapes.dims(op.operands[1])


def _tensor_pad(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    segments = list(op.attributes["operandSegmentSizes"])
    operands = list(op.operands)
    low = _mixed(shapes, _ints(op, "static_low"), operands[1 : 1 + segments[1]])
    high = _mixed(shapes, _ints(op, "static_high"), operands[1 + segments[1] :])
    parts = zip(low or (), shapes.dims(operands[0]), high or (), strict=True)
    return [None if a is None or c is None else affine.simplify(a + b + c) for a, b, c in parts]


def _concat(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    at = _attr(op, "dim")
    sizes = list(shapes.dims(op.operands[0]))
    for other in list(op.operands)[1:]:
        sizes[at] = sizes[at] + shapes.dims(other)[at]
    return [*sizes[:at], affine.simplify(sizes[at]), *sizes[at + 1 :]]


# ----------------------------------------------------------------------------------------------------------- kiln ops


def _shape_attribute(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    return shapes.map_results(op, _attr(op, "shape"))


def _aten(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    attribute = op.attributes["shapes"][number]
    if not isinstance(attribute, ir.AffineMapAttr):
        return None
    # The symbols are the index operands, then the sizes that the call itself finds: its index results.
    values = [v for v in (*op.operands, *op.results) if isinstance(v.type, ir.IndexType)]
    exprs = [shapes.expr(v) for v in values]
    return [affine.simplify(affine.substitute(e, (), exprs)) for e in attribute.value.results]


def _fusion(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    from kiln.dialects.shapes import SymbolicShapes

    inner = SymbolicShapes(op, shapes)
    terminator = list(inner.block.operations)[-1].operation
    dims = inner.dims(terminator.operands[number])
    known = [shapes.expr(v) for v in op.operands if isinstance(v.type, ir.IndexType)]
    return [
        affine.simplify(affine.substitute(e, (), known)) if max(affine.symbols_in(e), default=-1) < len(known) else None
        for e in dims
    ]


def _matmul(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    lhs, rhs = shapes.dims(op.operands[0]), shapes.dims(op.operands[1])
    m = lhs[-1] if _attr(op, "transpose_lhs") else lhs[-2]
    n = rhs[-2] if _attr(op, "transpose_rhs") else rhs[-1]
    return [*lhs[:-2], m, n]


def _attention(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    return [*shapes.dims(op.operands[0])[:-1], shapes.dims(op.operands[2])[-1]]


def _conv(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    x, weight = shapes.dims(op.operands[0]), shapes.dims(op.operands[1])
    stride, padding, dilation = _ints(op, "stride"), _ints(op, "padding"), _ints(op, "dilation")
    transposed, extra = _attr(op, "transposed"), _ints(op, "output_padding")
    spatial: list[ir.AffineExpr] = []
    for i, (size, kernel) in enumerate(zip(x[2:], weight[2:], strict=True)):
        if transposed:
            out = conv_transpose_size(size, kernel, stride[i], padding[i], dilation[i], extra[i])
        else:
            out = conv_size(size, kernel, stride[i], padding[i], dilation[i])
        spatial.append(affine.simplify(out))
    channels = affine.simplify(weight[1] * _attr(op, "groups")) if transposed else weight[0]
    return [x[0], channels, *spatial]


def _pool(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    x = shapes.dims(op.operands[0])
    kernel, stride = _ints(op, "kernel"), _ints(op, "stride")
    padding, dilation = _ints(op, "padding"), _ints(op, "dilation")
    spatial: list[ir.AffineExpr | None] = []
    for i, size in enumerate(x[2:]):
        # Rounding up drops a window that starts in the right padding: not affine (a minimum), so unknown.
        known = not _attr(op, "ceil")
        out = conv_size(size, kernel[i], stride[i], padding[i], dilation[i]) if known else None
        spatial.append(None if out is None else affine.simplify(out))
    return [*x[:2], *spatial]


def _embedding(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    return [*shapes.dims(op.operands[1]), shapes.dims(op.operands[0])[1]]


def _index_select(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    sizes = list(shapes.dims(op.operands[0]))
    sizes[_attr(op, "dim")] = shapes.dims(op.operands[1])[0]
    return sizes


def _index(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    x, *indices = (shapes.dims(v) for v in op.operands)
    return indexed_shape(x, _ints(op, "dims"), broadcast(indices))


def broadcast(shapes: Sequence[Sequence[ir.AffineExpr]]) -> list[ir.AffineExpr]:
    """Sizes of the broadcast of `shapes`; sizes that are not the constant 1 are taken to agree."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[ir.AffineExpr] = []
    for i in range(rank):
        sizes = [s[i - rank + len(s)] for s in shapes if i - rank + len(s) >= 0]
        out.append(next((s for s in sizes if affine.constant_of(s) != 1), sizes[0]))
    return out


def _topk(shapes: "SymbolicShapes", op: ir.Operation, number: int) -> Sizes:
    sizes = list(shapes.dims(op.operands[0]))
    sizes[_attr(op, "dim")] = ir.AffineExpr.get_constant(_attr(op, "k"))
    return sizes


RULES: dict[str, Rule] = {
    "tensor.empty": _tensor_empty,
    "tensor.expand_shape": _expand_shape,
    "tensor.collapse_shape": _collapse_shape,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _same_as_second,
    "tensor.insert": _same_as_second,
    "tensor.cast": _same_as_first,
    "tensor.pad": _tensor_pad,
    "tensor.concat": _concat,
    "kiln.view": _shape_attribute,
    "kiln.empty": _shape_attribute,
    "kiln.pad": _shape_attribute,
    "kiln.cat": _shape_attribute,
    "kiln.random": _shape_attribute,
    "kiln.aten": _aten,
    "kiln.fusion": _fusion,
    "kiln.matmul": _matmul,
    "kiln.attention": _attention,
    "kiln.conv": _conv,
    "kiln.pool": _pool,
    "kiln.gather": _same_as_second,
    "kiln.embedding": _embedding,
    "kiln.index_select": _index_select,
    "kiln.index": _index,
    "kiln.topk": _topk,
    "kiln.scatter_nd": _same_as_first,
    **dict.fromkeys(
        [
            f"kiln.{name}"
            for name in (
                ["softmax", "layer_norm", "rms_norm", "batch_norm", "group_norm", "scatter", "scan", "sort", "pack"]
            )
        ],
        _same_as_first,
    ),
}


# ---------------------------------------------------------------------------------------------------- index arithmetic


def index_expr(shapes: "SymbolicShapes", value: ir.Value) -> ir.AffineExpr | None:
    """An index or integer value as an expression, None if it is none."""
    if not isinstance(value.owner, ir.Operation | ir.OpView):
        return None
    op = value.owner.operation
    name = op.name
    if name == "arith.constant":
        attribute = op.attributes["value"]
        return ir.AffineExpr.get_constant(attribute.value) if isinstance(attribute, ir.IntegerAttr) else None
    if name == "tensor.dim":
        position = affine.constant_of(shapes.expr(op.operands[1]))
        return None if position is None else shapes.dims(op.operands[0])[position]
    if name in ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui"):
        return shapes.expr(op.operands[0])
    if name == "affine.apply":
        map_ = _attr(op, "map")
        operands = [shapes.expr(v) for v in op.operands]
        return affine.substitute(map_.results[0], operands[: map_.n_dims], operands[map_.n_dims :])
    build = _ARITHMETIC.get(name)
    if build is None:
        return None
    lhs, rhs = (shapes.expr(v) for v in op.operands)
    if name in _TRUNCATING and not (affine.nonnegative(lhs) and affine.nonnegative(rhs)):
        return None
    if name not in ("arith.addi", "arith.subi", "arith.muli") and affine.constant_of(rhs) == 0:
        return None
    return build(lhs, rhs)


_TRUNCATING = {"arith.divsi", "arith.remsi"}

_ARITHMETIC: dict[str, Callable[[ir.AffineExpr, ir.AffineExpr], ir.AffineExpr]] = {
    "arith.addi": ir.AffineExpr.get_add,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": ir.AffineExpr.get_mul,
    "arith.divsi": ir.AffineExpr.get_floor_div,
    "arith.divui": ir.AffineExpr.get_floor_div,
    "arith.floordivsi": ir.AffineExpr.get_floor_div,
    "arith.ceildivsi": ir.AffineExpr.get_ceil_div,
    "arith.ceildivui": ir.AffineExpr.get_ceil_div,
    "arith.remsi": ir.AffineExpr.get_mod,
    "arith.remui": ir.AffineExpr.get_mod,
}
