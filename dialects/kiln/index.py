# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads and writes at positions given by tensors: gather, index_select, embedding, index, scatter."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import affine
from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import Tensor
from kiln.dialects.kiln.family import Family
from kiln.dialects.kiln.table import Role, Shapes, Sizes, define, same_as_first, same_as_second


class GatherOp(base.Operation, name="gather", traits=[base.Pure]):
    """`result[.., i, ..] = x[.., index[.., i, ..], ..]` at `dim`; `index` has the rank of `x` and the result's sizes.

    Indices are in `[0, size)`; others are undefined behaviour.  As `torch.gather`.

    ```mlir
    func.func @gather(%x: tensor<8x?xf32>, %i: tensor<8x4xi64>) -> tensor<8x4xf32> {
      %0 = "kiln.gather"(%x, %i) {dim = 1} : (tensor<8x?xf32>, tensor<8x4xi64>) -> tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    index: ir.Value[Tensor]
    result: base.Result[Tensor]
    dim: ir.IntegerAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that `index` has the rank of `x` and the result the sizes of `index`."""
        checks.is_integer("index", self.index)
        checks.rank_is("index", self.index, self.x.type.rank)
        checks.dim_in_range(self, "dim", self.x.type.rank)
        checks.same_element("result", self.result, self.x)
        checks.same_sizes("result", checks.sizes_of(self.index), self.result)


define(
    GatherOp, Role.GATHER, shape=same_as_second, reference="kiln.dialects.reference.index:gather", takes_any_sizes=True
)


class IndexSelectOp(base.Operation, name="index_select", traits=[base.Pure]):
    """The slices of `x` along `dim` at the positions in the one-dimensional `index`.  As `torch.index_select`.

    ```mlir
    func.func @index_select(%x: tensor<8x?xf32>, %i: tensor<3xi64>) -> tensor<3x?xf32> {
      %0 = "kiln.index_select"(%x, %i) {dim = 0} : (tensor<8x?xf32>, tensor<3xi64>) -> tensor<3x?xf32>
      return %0 : tensor<3x?xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    index: ir.Value[Tensor]
    result: base.Result[Tensor]
    dim: ir.IntegerAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that `index` has rank 1 and that the result has its size along `dim`."""
        checks.is_integer("index", self.index)
        checks.rank_is("index", self.index, 1)
        dim = checks.dim_in_range(self, "dim", self.x.type.rank)
        checks.same_element("result", self.result, self.x)
        sizes = checks.sizes_of(self.x)
        sizes[dim] = checks.sizes_of(self.index)[0]
        checks.same_sizes("result", sizes, self.result)


def _index_select_shape(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    sizes = list(shapes.dims(op.operands[0]))
    sizes[ir.IntegerAttr(op.attributes["dim"]).value] = shapes.dims(op.operands[1])[0]
    return sizes


define(
    IndexSelectOp,
    Role.GATHER,
    shape=_index_select_shape,
    reference="kiln.dialects.reference.index:index_select",
    takes_any_sizes=True,
)


class EmbeddingOp(base.Operation, name="embedding", traits=[base.Pure]):
    """Rows of `weight` `[V, E]` at `index` `[*i]`: the result is `[*i, E]`.  As `torch.nn.functional.embedding`.

    ```mlir
    func.func @embedding(%w: tensor<100x16xf32>, %i: tensor<2x?xi64>) -> tensor<2x?x16xf32> {
      %0 = "kiln.embedding"(%w, %i) : (tensor<100x16xf32>, tensor<2x?xi64>) -> tensor<2x?x16xf32>
      return %0 : tensor<2x?x16xf32>
    }
    ```
    """

    weight: ir.Value[Tensor]
    index: ir.Value[Tensor]
    result: base.Result[Tensor]

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that `weight` has rank 2 and that the result is `[*index, width]`."""
        checks.rank_is("weight", self.weight, 2)
        checks.is_integer("index", self.index)
        checks.same_element("result", self.result, self.weight)
        checks.same_sizes("result", [*checks.sizes_of(self.index), checks.sizes_of(self.weight)[1]], self.result)


def _embedding_shape(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    return [*shapes.dims(op.operands[1]), shapes.dims(op.operands[0])[1]]


define(
    EmbeddingOp,
    Role.GATHER,
    shape=_embedding_shape,
    reference="kiln.dialects.reference.index:embedding",
    takes_any_sizes=True,
)


class IndexOp(Family):
    """Advanced indexing of the first operand by the others, one index tensor for each dim in `dims` (ascending).

    Index tensors are of an integer type and broadcast with each other; negative positions count from the end.  Their
    broadcast dims replace the indexed dims where these are adjacent, and otherwise come first.  As `x[i, :, j]` in
    PyTorch; boolean masks are not covered, since they make data-dependent sizes.

    ```mlir
    func.func @index(%x: tensor<4x8x?xf32>, %i: tensor<3x1xi64>, %j: tensor<5xi64>) -> tensor<3x5x?xf32> {
      %0 = "kiln.index"(%x, %i, %j) {dims = array<i64: 0, 1>}
        : (tensor<4x8x?xf32>, tensor<3x1xi64>, tensor<5xi64>) -> tensor<3x5x?xf32>
      return %0 : tensor<3x5x?xf32>
    }
    ```
    """

    NAME = "index"
    ATTRIBUTES = {"dims": "#builtin.dense_array"}

    @staticmethod
    @override
    def check(op: Any) -> None:
        checks.require(len(op.results) == 1, "results", 1, len(op.results))
        checks.require(len(op.operands) > 1, "operands", "at least 2", len(op.operands))
        checks.tensors_then_indices([*op.operands, *op.results])
        x, *indices = list(op.operands)
        dims = checks.ints(op, "dims", len(indices), 0)
        ascending = bool(dims) and dims == sorted({*dims}) and dims[-1] < x.type.rank
        checks.require(ascending, "attribute dims", f"dims of rank {x.type.rank}, ascending", dims)
        for i, value in enumerate(indices):
            checks.is_integer(f"index operand {i}", value)
        checks.same_element("result", op.results[0], x)
        sizes = broadcast_sizes([checks.sizes_of(i) for i in indices])
        checks.same_sizes("result", indexed_shape(checks.sizes_of(x), dims, sizes), op.results[0])


def _index_shape(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    x, *indices = (shapes.dims(v) for v in op.operands)
    return indexed_shape(x, list(ir.DenseI64ArrayAttr(op.attributes["dims"])), broadcast_dims(indices))


def broadcast_dims(shapes: Sequence[Sequence[ir.AffineExpr]]) -> list[ir.AffineExpr]:
    """Sizes of the broadcast of `shapes`; sizes that are not the constant 1 are taken to agree."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[ir.AffineExpr] = []
    for i in range(rank):
        sizes = [s[i - rank + len(s)] for s in shapes if i - rank + len(s) >= 0]
        out.append(next((s for s in sizes if affine.constant_of(s) != 1), sizes[0]))
    return out


define(IndexOp, Role.GATHER, shape=_index_shape, reference="kiln.dialects.reference.index:index", takes_any_sizes=True)


class ScatterOp(base.Operation, name="scatter", traits=[base.Pure]):
    """`x` with `src[.., i, ..]` put at position `index[.., i, ..]` of `dim`; `index` and `src` have the same sizes.

    `reduce` combines with what is there: "none" (of several, the last), "sum", "prod", "amax", "amin".  Indices are
    in `[0, size)`.  As `torch.scatter`, `torch.scatter_add` and `torch.scatter_reduce` with `include_self=True`.

    ```mlir
    func.func @scatter_add(%x: tensor<8x4xf32>, %i: tensor<8x2xi64>, %s: tensor<8x2xf32>) -> tensor<8x4xf32> {
      %0 = "kiln.scatter"(%x, %i, %s) {dim = 1, reduce = "sum"}
        : (tensor<8x4xf32>, tensor<8x2xi64>, tensor<8x2xf32>) -> tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    index: ir.Value[Tensor]
    src: ir.Value[Tensor]
    result: base.Result[Tensor]
    dim: ir.IntegerAttr
    reduce: ir.StringAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that `src` has the sizes of `index`, the result the type of `x`, and `reduce` is known."""
        checks.same_type("result", self.result, self.x)
        checks.is_integer("index", self.index)
        checks.rank_is("index", self.index, self.x.type.rank)
        checks.same_element("src", self.src, self.x)
        checks.same_sizes("src", checks.sizes_of(self.index), self.src)
        dim = checks.dim_in_range(self, "dim", self.x.type.rank)
        checks.one_of(self, "reduce", ["none", "sum", "prod", "amax", "amin"])
        for i, (n, m) in enumerate(zip(checks.sizes_of(self.x), checks.sizes_of(self.index), strict=True)):
            if i != dim and n is not None and m is not None:
                checks.require(m <= n, f"index size of dim {i}", f"at most {n}", m)


define(ScatterOp, Role.SCATTER, shape=same_as_first, reference="kiln.dialects.reference.index:scatter")


class ScatterNdOp(Family):
    """`x` with `src` put where index tensors say: operands are `x`, `src`, and an index tensor for each dim in `dims`.

    Index tensors have the sizes of `src`, which is walked as one loop nest: at `d`, `src[d]` goes to the position of `x`
    that has `index_k[d]` along dim `dims[k]` (ascending), and `d[loops[j]]` along the j-th of the other dims.  `reduce`
    combines with what is there: "none" (of several, any), "sum", "amax", "amin"; sums of floats are added in any order.
    Indices are in `[0, size)`.  With `from_zero` all of `x` is zero, and `x` a `kiln.empty` that gives the sizes.

    ```mlir
    func.func @rows(%x: tensor<50x16xf32>, %s: tensor<4x7x16xf32>, %i: tensor<4x7x16xi64>) -> tensor<50x16xf32> {
      %0 = "kiln.scatter_nd"(%x, %s, %i) {dims = array<i64: 0>, loops = array<i64: 2>, reduce = "sum", from_zero = false}
        : (tensor<50x16xf32>, tensor<4x7x16xf32>, tensor<4x7x16xi64>) -> tensor<50x16xf32>
      return %0 : tensor<50x16xf32>
    }
    ```
    """

    NAME = "scatter_nd"
    ATTRIBUTES = {
        "dims": "#builtin.dense_array",
        "loops": "#builtin.dense_array",
        "reduce": "#builtin.string",
        "from_zero": "#builtin.integer",
    }

    @staticmethod
    @override
    def check(op: Any) -> None:
        checks.require(len(op.results) == 1, "results", 1, len(op.results))
        checks.require(len(op.operands) > 2, "operands", "at least 3", len(op.operands))
        checks.tensors_then_indices([*op.operands, *op.results])
        x, src, *indices = list(op.operands)
        checks.same_type("result", op.results[0], x)
        checks.same_element("src", src, x)
        dims = checks.ints(op, "dims", len(indices), 0)
        ascending = dims == sorted({*dims}) and dims[-1] < x.type.rank
        checks.require(ascending, "attribute dims", f"dims of rank {x.type.rank}, ascending", dims)
        loops = checks.ints(op, "loops", x.type.rank - len(dims), 0)
        inside = len({*loops}) == len(loops) and all(k < src.type.rank for k in loops)
        checks.require(inside, "attribute loops", f"distinct dims of src, of rank {src.type.rank}", loops)
        checks.one_of(op, "reduce", ["none", "sum", "amax", "amin"])
        checks.flag(op, "from_zero")
        for k, value in enumerate(indices):
            checks.is_integer(f"index operand {k}", value)
            checks.same_sizes(f"index operand {k}", checks.sizes_of(src), value)
        rest = [d for d in range(x.type.rank) if d not in dims]
        for d, k in zip(rest, loops, strict=True):
            n, m = checks.sizes_of(x)[d], checks.sizes_of(src)[k]
            if n is not None and m is not None:
                checks.require(m <= n, f"src size of dim {k}", f"at most {n}", m)


define(
    ScatterNdOp,
    Role.SCATTER,
    shape=same_as_first,
    reference="kiln.dialects.reference.index:scatter_nd",
    has_kernel=True,
)


def gather(x: Any, dim: int, index: Any) -> ir.Value:
    """Build a `kiln.gather`."""
    x, index = base.value_of(x), base.value_of(index)
    result = base.ranked(base.static_shape(index.type), x.type.element_type)
    return GatherOp.create([x, index], [result], {"dim": base.i64(dim)}).result


def index_select(x: Any, dim: int, index: Any) -> ir.Value:
    """Build a `kiln.index_select`."""
    x, index = base.value_of(x), base.value_of(index)
    shape = base.static_shape(x.type)
    shape[dim] = base.static_shape(index.type)[0]
    result = base.ranked(shape, x.type.element_type)
    return IndexSelectOp.create([x, index], [result], {"dim": base.i64(dim)}).result


def embedding(weight: Any, index: Any) -> ir.Value:
    """Build a `kiln.embedding`."""
    weight, index = base.value_of(weight), base.value_of(index)
    shape = [*base.static_shape(index.type), base.static_shape(weight.type)[1]]
    result = base.ranked(shape, weight.type.element_type)
    return EmbeddingOp.create([weight, index], [result], {}).result


def indexed_shape(shape: Sequence[Any], dims: Sequence[int], broadcast: Sequence[Any]) -> list[Any]:
    """Sizes of `kiln.index`'s result, of any kind of size: `broadcast` is the shape of the index tensors together."""
    rest = [s for d, s in enumerate(shape) if d not in dims]
    at = index_position(dims)
    return [*rest[:at], *broadcast, *rest[at:]]


def index_position(dims: Sequence[int]) -> int:
    """Where the index tensors' dims stand in the result of `kiln.index`."""
    adjacent = all(b == a + 1 for a, b in zip(dims, dims[1:], strict=False))
    return dims[0] if adjacent else 0


def broadcast_sizes(shapes: Sequence[Sequence[int | None]]) -> list[int | None]:
    """Broadcast of static shapes; None is an unknown size, and a known one other than 1 wins over it."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[int | None] = []
    for i in range(rank):
        sizes = [s[i - rank + len(s)] for s in shapes if i - rank + len(s) >= 0]
        known = [s for s in sizes if s is not None and s != 1]
        out.append(known[0] if known else None if None in sizes else 1)
    return out


def index(x: Any, dims: Sequence[int], indices: Sequence[Any]) -> ir.Value:
    """Build a `kiln.index`: `indices[k]` indexes dim `dims[k]` of `x`."""
    operands = [base.value_of(x), *map(base.value_of, indices)]
    broadcast = broadcast_sizes([base.static_shape(i.type) for i in operands[1:]])
    shape = indexed_shape(base.static_shape(operands[0].type), dims, broadcast)
    result = base.ranked(shape, operands[0].type.element_type)
    return IndexOp.create(operands, [result], {"dims": base.i64s(dims)}).result


def scatter(x: Any, dim: int, index: Any, src: Any, reduce: str = "none") -> ir.Value:
    """Build a `kiln.scatter`."""
    operands = [base.value_of(v) for v in (x, index, src)]
    attributes = {"dim": base.i64(dim), "reduce": base.string(reduce)}
    return ScatterOp.create(operands, [operands[0].type], attributes).result


def scatter_nd(
    x: Any,
    src: Any,
    indices: Sequence[Any],
    dims: Sequence[int],
    loops: Sequence[int],
    reduce: str = "none",
    from_zero: bool = False,
) -> ir.Value:
    """Build a `kiln.scatter_nd`."""
    operands = [base.value_of(v) for v in (x, src, *indices)]
    attributes = {
        "dims": base.i64s(dims),
        "loops": base.i64s(loops),
        "reduce": base.string(reduce),
        "from_zero": base.boolean(from_zero),
    }
    return ScatterNdOp.create(operands, [operands[0].type], attributes).result
