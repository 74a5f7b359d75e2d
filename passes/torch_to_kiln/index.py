# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reading with indices from a tensor: ``linalg.generic`` that extracts from a captured table.

Bounds. Eager PyTorch raises IndexError on an index out of range. A kernel cannot raise, and it must never read memory
that is not the table's: indices are clamped to the table (after a negative one has wrapped, where PyTorch wraps). The
clamp's last op has the attribute ``kiln.checked``, the op's name: kernels of the CPU tell the executor when it changed
an index, and the call raises (``lowering/cpu/tile/bounds.py``); those of a GPU end with an assertion, as eager's do. A
table with no elements along an indexed dim has nothing to clamp to: that stays ATen's.

Writing with indices (``index_put``, ``scatter`` and their kin) is left to ``convert-scatters``, masks to
``mask_writes.py``.
"""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.dtypes import I64

from .context import LoweringContext
from .registry import lowers
from .scalars import Scalar, ScalarBuilder
from .sizes import Expr, constant_of, dim


def size_scalar(cx: LoweringContext, b: ScalarBuilder, size: Expr) -> Scalar:
    """A size as an int64 scalar in a body: a constant, or arithmetic on the captured symbols."""
    known = constant_of(size)
    return b.const(known, I64) if known is not None else b.size(size, cx.state.symbol_value)


def bounded(cx: LoweringContext, b: ScalarBuilder, index: Scalar, size: Expr, wrap: bool) -> Scalar:
    """``index`` as int64 in ``[0, size)``: wrapped once if negative (``wrap``), then clamped."""
    value = b.cast(index, I64)
    last = b.sub(size_scalar(cx, b, size), 1)
    if wrap:
        wrapped = b.add(value, size_scalar(cx, b, size))
        value = b.select(b.cmp("lt", value, 0), wrapped, value)
    result = b.minimum(b.maximum(value, 0), last)
    if "unsafe" not in cx.name:
        owner = result.value.owner
        assert isinstance(owner, ir.Operation | ir.OpView)
        owner.operation.attributes["kiln.checked"] = ir.StringAttr.get(cx.name.removeprefix("torch."))
    return result


def check_table(cx: LoweringContext, table: ir.Value, dims: Sequence[int]) -> None:
    """The indexed dims must not be empty."""
    if any(constant_of(cx.shape(table)[d]) == 0 for d in dims):
        cx.unsupported("the indexed dimension is empty")


def check_index(cx: LoweringContext, index: ir.Value) -> None:
    """Indices are integers; a mask has a data-dependent number of results."""
    if not cx.dtype(index).is_int or cx.dtype(index).name == "uint8":
        cx.unsupported(f"indices of type {cx.dtype(index).name}")


def table_rows(
    cx: LoweringContext,
    table: ir.Value,
    at: int,
    index: ir.Value,
    index_map: list[Expr],
    source: list[int | None],
    shape: Sequence[Expr] | None = None,
) -> ir.Value:
    """``result[d..] = table[.., index[index_map(d)], ..]`` with the index at table dim ``at``.

    ``source[k]`` is the result dim that runs along table dim ``k`` (None at ``at``). ``shape``: the op's result's if
    not given.
    """
    shape = cx.result_shape() if shape is None else shape
    check_table(cx, table, [at])
    check_index(cx, index)
    dtype, size = cx.dtype(table), cx.shape(table)[at]

    def body(b: ScalarBuilder, value: Scalar, _: Scalar) -> Scalar:
        row = bounded(cx, b, value, size, wrap=False)
        return b.extract(table, [row if s is None else b.index(s) for s in source], dtype)

    out = cx.empty(shape, dtype)
    identity = [dim(k) for k in range(len(shape))]
    return cx.generic([index], [index_map], [out], [identity], "p" * len(shape), body)[0]


@lowers("torch.aten.embedding")
def lower_embedding(cx: LoweringContext) -> ir.Value:
    """``embedding(weight [V, E], indices [..])``: padding_idx and the rest matter to the gradient only."""
    weight, index = cx.tensor(0), cx.tensor(1)
    rank = cx.rank(index)
    lead = [dim(k) for k in range(rank)]
    return table_rows(cx, weight, 0, index, lead, [None, *range(rank, rank + cx.rank(weight) - 1)])


@lowers("torch.aten.index_select")
def lower_index_select(cx: LoweringContext) -> ir.Value:
    """``index_select(x, dim, index)`` with a 1-d (or 0-d) index."""
    x, index = cx.tensor(0), cx.tensor(2)
    if cx.rank(x) == 0:
        return x
    at = cx.dim(1, cx.rank(x))
    index_map = [dim(at)] if cx.rank(index) else []
    return table_rows(cx, x, at, index, index_map, [None if k == at else k for k in range(cx.rank(x))])


@lowers("torch.aten.gather", "torch.aten.take_along_dim")
def lower_gather(cx: LoweringContext) -> ir.Value:
    """``gather(x, dim, index)``: one index per result element; the index may be smaller than ``x`` in other dims."""
    if cx.name == "torch.aten.gather":
        x, index, at = cx.tensor(0), cx.tensor(2), cx.dim(1, cx.rank(cx.tensor(0)))
    else:
        x, index = cx.tensor(0), cx.tensor(1)
        if cx.is_none(2):
            cx.unsupported("take_along_dim of a flattened tensor")
        at = cx.dim(2, cx.rank(x))
        if cx.shape(index) != cx.result_shape():
            cx.unsupported("take_along_dim with broadcasting")
    if cx.rank(x) == 0 or cx.rank(index) == 0:
        cx.unsupported("gather on a 0-d tensor")
    identity = [dim(k) for k in range(cx.rank(index))]
    return table_rows(cx, x, at, index, identity, [None if k == at else k for k in range(cx.rank(x))])


@lowers("torch.aten.take")
def lower_take(cx: LoweringContext) -> ir.Value:
    """``take(x, index)``: positions in the flattened tensor, negative ones from the end."""
    from .views import reshape_to

    x, index = cx.tensor(0), cx.tensor(1)
    total = cx.shape(x)[0] if cx.rank(x) else None
    for size in cx.shape(x)[1:]:
        total = total * size if total is not None else size
    if total is None:
        cx.unsupported("take from a 0-d tensor")
    return _advanced(cx, reshape_to(cx, x, [total]), [index])


@lowers("torch.aten.index.Tensor", "torch.aten._unsafe_index.Tensor", "torch.aten.index.Tensor_hacked_twin")
def lower_index(cx: LoweringContext) -> ir.Value:
    """``x[i, :, j]``: advanced indexing; the indices broadcast together."""
    return _advanced(cx, cx.tensor(0), cx.optional_tensors(1))


@lowers("torch.aten._unsafe_masked_index")
def lower_masked_index(cx: LoweringContext) -> ir.Value:
    """``_unsafe_masked_index(x, mask, indices, fill)``: clamped indices, ``fill`` where the mask is false."""
    mask, fill = cx.tensor(1), cx.number(3)
    values = _advanced(cx, cx.tensor(0), cx.optional_tensors(2), wrap=False)
    return cx.pointwise([mask, values], lambda b, keep, x: b.select(keep, x, fill), cx.dtype(values))


def _advanced(cx: LoweringContext, x: ir.Value, given: Sequence[ir.Value | None], wrap: bool = True) -> ir.Value:
    """Result dims of the broadcast indices stand where the first index is, or in front if a ``:`` parts the indices."""
    positions = [k for k, index in enumerate(given) if index is not None]
    indices = [index for index in given if index is not None]
    if not indices:
        return x
    for index in indices:
        check_index(cx, index)
    check_table(cx, x, positions)
    shape, dtype = cx.result_shape(), cx.dtype(x)
    block = max(cx.rank(index) for index in indices)
    adjacent = positions == list(range(positions[0], positions[-1] + 1))
    first = positions[0] if adjacent else 0
    block_dims = list(range(first, first + block))
    rest = iter(k for k in range(len(shape)) if k not in block_dims)
    source = [None if k in positions else next(rest) for k in range(cx.rank(x))]
    block_shape = [shape[d] for d in block_dims]
    maps: list[list[ir.AffineExpr]] = []
    for index in indices:
        own = cx.shape(index)
        lead = block - len(own)
        # A size-1 dim of an index repeats along the block; a symbolic one is as long as the block.
        maps.append(
            [
                dim(block_dims[lead + k]) if constant_of(size) != 1 else dim(block_dims[lead + k]) * 0
                for k, size in enumerate(own)
            ]
        )
    table_sizes = cx.shape(x)

    def body(b: ScalarBuilder, *args: Scalar) -> Scalar:
        chosen = iter(
            bounded(cx, b, value, table_sizes[k], wrap) for k, value in zip(positions, args[:-1], strict=True)
        )
        return b.extract(x, [next(chosen) if s is None else b.index(s) for s in source], dtype)

    assert len(block_shape) == block
    out = cx.empty(shape, dtype)
    identity = [dim(k) for k in range(len(shape))]
    return cx.generic(indices, maps, [out], [identity], "p" * len(shape), body)[0]


__all__ = ["bounded", "size_scalar"]
