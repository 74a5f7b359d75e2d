# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""View ops of PyTorch that permute, reshape or broadcast: each becomes one ``kiln.view``.

Only values matter here. Whether a view costs a copy is decided when layouts are assigned.
"""

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering import paths

from .context import LoweringContext
from .emitter import Emitter
from .registry import lowers
from .reshape import reshape_map
from .sizes import Expr, as_expr, constant_of, dim
from .torch_values import op_name

PLACES = paths.group("any places", "slice by sizes", "roll by sizes")

# Ops whose result may share memory with their operand in eager mode.
ALIASING = frozenset(
    f"torch.aten.{name}"
    for name in (
        "alias detach view reshape _unsafe_view _reshape_alias expand permute transpose.int t unsqueeze squeeze "
        "squeeze.dim squeeze.dims slice.Tensor select.int diagonal unfold contiguous narrow movedim.intlist "
        "movedim.int numpy_T flatten.using_ints unflatten.int view_as expand_as swapaxes swapdims lift_fresh"
    ).split()
)


def reshape_to(cx: Emitter, x: ir.Value, shape: "tuple[Expr, ...] | list[Expr]") -> ir.Value:
    """``x`` with its elements in row-major order under the sizes ``shape``."""
    index_map = reshape_map(cx.shape(x), shape, len(cx.state.symbols))
    return cx.view(x, list(index_map.results), shape)


def permute(cx: Emitter, x: ir.Value, dims: list[int]) -> ir.Value:
    """Result dim ``k`` is dim ``dims[k]`` of ``x``; ``dims`` are non-negative."""
    sizes = cx.shape(x)
    indices: list[Expr] = [as_expr(0)] * len(dims)
    for k, source in enumerate(dims):
        indices[source] = dim(k)
    return cx.view(x, indices, [sizes[source] for source in dims])


def broadcast_to(cx: Emitter, x: ir.Value, shape: "tuple[Expr, ...] | list[Expr]") -> ir.Value:
    """PyTorch's ``expand``: new dims in front, dims of size 1 repeated."""
    return cx.view(x, cx.operand_map(x, list(shape)), shape)


def copy(cx: Emitter, x: ir.Value) -> ir.Value:
    """The values of ``x`` in a tensor that shares no memory with it."""
    identity = [dim(k) for k in range(cx.rank(x))]
    out = cx.empty(cx.shape(x), cx.dtype(x))
    return cx.generic([x], [identity], [out], [identity], "p" * len(identity), lambda b, value, _: value)[0]


def reaches_return(value: ir.Value) -> bool:
    """Whether ``value``, or a view of it, is returned from the function."""
    stack, seen = [value], set[ir.Value]()
    while stack:
        for use in stack.pop().uses:
            user = use.owner.operation
            if user.name == "func.return":
                return True
            if op_name(user) in ALIASING and user.results[0] not in seen:
                seen.add(user.results[0])
                stack.append(user.results[0])
    return False


@lowers(
    "torch.aten.view",
    "torch.aten._unsafe_view",
    "torch.aten.reshape",
    "torch.aten._reshape_alias",
    "torch.aten.flatten.using_ints",
    "torch.aten.unflatten.int",
    "torch.aten.view_as",
    "torch.aten.reshape_as",
    "torch.aten.ravel",
    "torch.aten.view_copy",
    "torch.prims.collapse",
    "torch.prims.split_dim",
    "torch.prims.collapse_view",
    "torch.prims.reshape",
)
def lower_reshape(cx: LoweringContext) -> ir.Value:
    """The requested sizes are the result's, so -1 needs no care."""
    return reshape_to(cx, cx.tensor(0), cx.result_shape())


@lowers("torch.aten.expand", "torch.aten.expand_as", "torch.aten.broadcast_to", "torch.aten.expand_copy")
def lower_expand(cx: LoweringContext) -> ir.Value:
    """`aten.expand` as a view that repeats dims of size 1."""
    return broadcast_to(cx, cx.tensor(0), cx.result_shape())


@lowers("torch.aten.permute", "torch.aten.permute_copy", "torch.prims.transpose")
def lower_permute(cx: LoweringContext) -> ir.Value:
    """`aten.permute` as a view."""
    x = cx.tensor(0)
    return permute(cx, x, [cx.normalize_dim(d, cx.rank(x)) for d in cx.const_list(1)])


@lowers("torch.aten.transpose.int", "torch.aten.swapaxes", "torch.aten.swapdims", "torch.aten.transpose_copy.int")
def lower_transpose(cx: LoweringContext) -> ir.Value:
    """`aten.transpose.int` as a view; a tensor without dims stays."""
    x = cx.tensor(0)
    rank = cx.rank(x)
    if rank == 0:
        return x
    order = list(range(rank))
    a, b = cx.dim(1, rank), cx.dim(2, rank)
    order[a], order[b] = b, a
    return permute(cx, x, order)


@lowers("torch.aten.t", "torch.aten.numpy_T", "torch.aten.t_copy", "torch.aten.mT", "torch.aten.adjoint")
def lower_t(cx: LoweringContext) -> ir.Value:
    """``t`` takes at most two dims, ``numpy_T`` reverses all, ``mT`` the last two."""
    x = cx.tensor(0)
    rank = cx.rank(x)
    order = list(range(rank))
    if cx.name in ("torch.aten.mT", "torch.aten.adjoint"):
        return permute(cx, x, [*order[:-2], order[-1], order[-2]])
    return permute(cx, x, order[::-1])


@lowers("torch.aten.movedim.intlist", "torch.aten.movedim.int")
def lower_movedim(cx: LoweringContext) -> ir.Value:
    """`aten.movedim.intlist` as a view; the other dims keep their order."""
    x = cx.tensor(0)
    rank = cx.rank(x)
    source = [cx.normalize_dim(d, rank) for d in cx.const_list(1)]
    target = [cx.normalize_dim(d, rank) for d in cx.const_list(2)]
    order: list[int | None] = [None] * rank
    for s, t in zip(source, target, strict=True):
        order[t] = s
    rest = iter(k for k in range(rank) if k not in source)
    return permute(cx, x, [next(rest) if k is None else k for k in order])


@lowers("torch.aten.unsqueeze", "torch.aten.unsqueeze_copy")
def lower_unsqueeze(cx: LoweringContext) -> ir.Value:
    """`aten.unsqueeze` as a view with one more dim of size 1."""
    x = cx.tensor(0)
    return cx.keep_dims(x, [cx.dim(1, cx.rank(x) + 1)])


@lowers(
    "torch.aten.squeeze",
    "torch.aten.squeeze.dim",
    "torch.aten.squeeze.dims",
    "torch.aten.squeeze_copy",
    "torch.aten.squeeze_copy.dim",
    "torch.aten.squeeze_copy.dims",
    "torch.prims.squeeze",
)
def lower_squeeze(cx: LoweringContext) -> ir.Value:
    """Drops the named dims (all without a list) whose size is 1."""
    x = cx.tensor(0)
    sizes, rank = cx.shape(x), cx.rank(x)
    given = cx.const_list(1) if cx.num_operands > 1 else list(range(rank))
    named = {cx.normalize_dim(d, rank) for d in given}
    kept = [k for k in range(rank) if k not in named or constant_of(sizes[k]) != 1]
    if len(kept) != len(cx.result_shape()):
        cx.unsupported("a dimension is squeezed whose size is 1 only by a guard")
    position = {k: dim(i) for i, k in enumerate(kept)}
    return cx.view(x, [position.get(k, as_expr(0)) for k in range(rank)], [sizes[k] for k in kept])


@lowers(
    "torch.aten.alias",
    "torch.aten.detach",
    "torch.aten.contiguous",
    "torch.aten.lift",
    "torch.aten.lift_fresh",
    "torch.aten.positive",
    "torch.prims.view_of",
)
def lower_identity(cx: LoweringContext) -> ir.Value:
    """The same values."""
    return cx.tensor(0)


@lowers(
    "torch.aten.clone",
    "torch.aten.lift_fresh_copy",
    "torch.aten.alias_copy",
    "torch.aten.detach_copy",
    "torch.prims.clone",
)
def lower_clone(cx: LoweringContext) -> ir.Value:
    """A copy only where it can be told from the original: when the caller gets it. All else has value semantics."""
    x = cx.tensor(0)
    return copy(cx, x) if reaches_return(cx.op.results[0]) else x


@lowers("torch.aten.diagonal", "torch.aten.diagonal_copy")
def lower_diagonal(cx: LoweringContext) -> ir.Value:
    """``diagonal(x, offset, dim1, dim2)``: the diagonal becomes the last dim."""
    x = cx.tensor(0)
    rank = cx.rank(x)
    offset, a, b = cx.const_int(1), cx.dim(2, rank), cx.dim(3, rank)
    along = dim(rank - 2)
    rest = iter(range(rank))
    indices: list[ir.AffineExpr] = []
    for k in range(rank):
        if k == a:
            indices.append(along + max(-offset, 0))
        elif k == b:
            indices.append(along + max(offset, 0))
        else:
            indices.append(dim(next(rest)))
    return cx.view(x, indices, cx.result_shape())


@lowers("torch.aten.flip", "torch.aten.fliplr", "torch.aten.flipud", "torch.prims.rev")
def lower_flip(cx: LoweringContext) -> ir.Value:
    """`aten.flip`, `fliplr` and `flipud` as a view that reads backwards."""
    x = cx.tensor(0)
    sizes, rank = cx.shape(x), cx.rank(x)
    fixed = {"torch.aten.fliplr": [1], "torch.aten.flipud": [0]}.get(cx.name)
    flipped = {cx.normalize_dim(d, rank) for d in (fixed if fixed is not None else cx.const_list(1))}
    return cx.view(x, [sizes[k] - 1 - dim(k) if k in flipped else dim(k) for k in range(rank)], sizes)


@lowers("torch.aten.roll")
def lower_roll(cx: LoweringContext) -> ir.Value:
    """``roll(x, shifts, dims)``; without dims the flattened tensor rolls."""
    x = cx.tensor(0)
    shifts, given = cx.indices(1), cx.const_list(2)
    sizes, rank = cx.shape(x), cx.rank(x)
    if not given:
        flat = reshape_to(cx, x, [_numel(sizes)])
        rolled = cx.view(flat, [_rolled(cx, dim(0), shifts[0], cx.shape(flat)[0])], cx.shape(flat))
        return reshape_to(cx, rolled, sizes)
    indices: list[Expr] = [dim(k) for k in range(rank)]
    for shift, position in zip(shifts, given, strict=True):
        k = cx.normalize_dim(position, rank)
        indices[k] = _rolled(cx, indices[k], shift, sizes[k])
    return cx.view(x, indices, sizes)


def _numel(sizes: "tuple[Expr, ...]") -> Expr:
    total = as_expr(1)
    for size in sizes:
        total = total * size
    return total


def _rolled(cx: LoweringContext, index: Expr, by: Expr, size: Expr) -> Expr:
    """``(index - by) mod size`` with a dividend that is never negative."""
    known, shift = constant_of(size), constant_of(by)
    if known == 0:
        return index
    if shift is None:
        if not _is_at_most(cx, by, size):
            cx.unsupported(f"the shift {by} may be larger than the size {size}")
        PLACES("roll by sizes")
        return ir.AffineExpr.get_mod(index + size - by, size)
    if known is not None:
        back = -shift % known
        return ir.AffineExpr.get_mod(index + back, size) if back else index
    if shift <= 0:
        return ir.AffineExpr.get_mod(index - shift, size)
    if shift == 1:
        return ir.AffineExpr.get_mod(index + size - 1, size)
    turns = ir.AffineExpr.get_ceil_div(as_expr(shift), size)
    return ir.AffineExpr.get_mod(index + turns * size - shift, size)


def _is_at_most(cx: LoweringContext, by: Expr, size: Expr) -> bool:
    """Whether `by` is not larger than a size that is not 0: ``(n + 1) // 2`` of ``n``."""
    by, symbol, divisor = by.maybe_downcast(), size.maybe_downcast(), 1
    if isinstance(by, ir.AffineFloorDivExpr) and (constant_of(by.rhs) or 0) > 0:
        divisor, by = constant_of(by.rhs) or 1, by.lhs
    rest = size * divisor - by
    if isinstance(symbol, ir.AffineSymbolExpr):
        rest = affine.substitute(rest, {}, {symbol.position: symbol + 1})
    return cx.is_non_negative(affine.simplify(rest))


@lowers("torch.aten.repeat", "torch.aten.tile")
def lower_repeat(cx: LoweringContext) -> ir.Value:
    """``repeat(x, repeats)``: result dims run over the source dims again and again."""
    x = cx.tensor(0)
    shape, sizes = cx.result_shape(), cx.shape(x)
    first = len(shape) - len(sizes)
    indices: list[ir.AffineExpr] = []
    for k, size in enumerate(sizes):
        if size == shape[first + k]:
            indices.append(dim(first + k))
        elif constant_of(size) in (0, 1):
            indices.append(as_expr(0))
        else:
            indices.append(ir.AffineExpr.get_mod(dim(first + k), size))
    return cx.view(x, indices, shape)


@lowers("torch.aten.repeat_interleave.self_int")
def lower_repeat_interleave(cx: LoweringContext) -> ir.Value:
    """``repeat_interleave(x, repeats, dim)`` with one constant count."""
    x, count = cx.tensor(0), cx.const_int(1)
    if cx.is_none(2):
        x = reshape_to(cx, x, [_numel(cx.shape(x))])
    at = 0 if cx.is_none(2) else cx.dim(2, cx.rank(x))
    indices = [dim(k) for k in range(cx.rank(x))]
    if count > 1:
        indices[at] = ir.AffineExpr.get_floor_div(dim(at), as_expr(count))
    return cx.view(x, indices, cx.result_shape())


@lowers("torch.aten.pixel_shuffle", "torch.aten.pixel_unshuffle")
def lower_pixel_shuffle(cx: LoweringContext) -> ir.Value:
    """``[*, C*r*r, H, W] <-> [*, C, H*r, W*r]`` with the factor ``r``."""
    x, factor = cx.tensor(0), cx.const_int(1)
    shape = cx.result_shape()
    rank = len(shape)
    lead = [dim(k) for k in range(rank - 3)]
    c, h, w = (dim(k) for k in range(rank - 3, rank))
    r = as_expr(factor)
    if cx.name == "torch.aten.pixel_shuffle":
        channel = c * (factor * factor) + ir.AffineExpr.get_mod(h, r) * factor + ir.AffineExpr.get_mod(w, r)
        inner = [channel, ir.AffineExpr.get_floor_div(h, r), ir.AffineExpr.get_floor_div(w, r)]
    else:
        inner = [
            ir.AffineExpr.get_floor_div(c, as_expr(factor * factor)),
            h * factor + ir.AffineExpr.get_mod(ir.AffineExpr.get_floor_div(c, r), r),
            w * factor + ir.AffineExpr.get_mod(c, r),
        ]
    return cx.view(x, [*lead, *inner], shape)


@lowers("torch.aten.channel_shuffle", "torch.aten.native_channel_shuffle")
def lower_channel_shuffle(cx: LoweringContext) -> ir.Value:
    """``[N, C, ...]``: channels as ``[groups, C/groups]``, transposed."""
    x, groups = cx.tensor(0), cx.const_int(1)
    sizes = cx.shape(x)
    per_group = ir.AffineExpr.get_floor_div(sizes[1], as_expr(groups))
    c = dim(1)
    source = ir.AffineExpr.get_mod(c, as_expr(groups)) * per_group + ir.AffineExpr.get_floor_div(c, as_expr(groups))
    return cx.view(x, [dim(0), source, *(dim(k) for k in range(2, len(sizes)))], sizes)
