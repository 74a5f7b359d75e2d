# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops that say where data is and what makes a kernel: views, empty, pad, cat, fusions, calls to ATen."""

import json
from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import Dim, Index, PureUnless, Tensor
from kiln.dialects.kiln.family import Family

Symbols = Sequence[ir.Value]


def _holds_random(fusion: Any) -> bool:
    """A fusion is impure when an op in its body is."""
    return any(op.operation.name == "kiln.random" for op in fusion.operation.regions[0].blocks[0].operations)


class ViewOp(base.Operation, name="view", traits=[base.Pure]):
    """`result[d...] = x[map(d...)]`: transpose, expand, slice, reshape, flip, unsqueeze, diagonal are all this one op.

    `map` takes one dim per result dimension and gives one index per dimension of `x`; `shape` gives the result's
    sizes.  Both are over the trailing index operands, `s_i` being the i-th.  Every index must be in bounds.

    ```mlir
    func.func @transpose(%x: tensor<4x?xf32>, %n: index) -> tensor<?x4xf32> {
      %0 = "kiln.view"(%x, %n) {map = affine_map<(d0, d1)[s0] -> (d1, d0)>, shape = affine_map<()[s0] -> (s0, 4)>}
        : (tensor<4x?xf32>, index) -> tensor<?x4xf32>
      return %0 : tensor<?x4xf32>
    }
    func.func @collapse(%x: tensor<4x8xf32>) -> tensor<32xf32> {
      %0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 floordiv 8, d0 mod 8)>, shape = affine_map<() -> (32)>}
        : (tensor<4x8xf32>) -> tensor<32xf32>
      return %0 : tensor<32xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    symbols: Sequence[ir.Value[Index]]
    result: base.Result[Tensor]
    map: ir.AffineMapAttr
    shape: ir.AffineMapAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        checks.same_element("result", self.result, self.x)
        rank, n = self.result.type.rank, len(self.symbols)
        checks.map_of(self, "map", rank, self.x.type.rank, n)
        checks.shape_matches("result", checks.map_of(self, "shape", 0, rank, n), self.result)
        checks.reads_in_bounds(self)


class EmptyOp(base.Operation, name="empty", traits=[base.Pure]):
    """An uninitialised tensor of sizes `shape`: a destination for `linalg` ops, or a carrier of a window's shape.

    ```mlir
    func.func @empty(%n: index) -> tensor<?x8xf32> {
      %0 = "kiln.empty"(%n) {shape = affine_map<()[s0] -> (s0, 8)>} : (index) -> tensor<?x8xf32>
      return %0 : tensor<?x8xf32>
    }
    ```
    """

    symbols: Sequence[ir.Value[Index]]
    result: base.Result[Tensor]
    shape: ir.AffineMapAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        shape = checks.map_of(self, "shape", 0, self.result.type.rank, len(self.symbols))
        checks.shape_matches("result", shape, self.result)


class PadOp(base.Operation, name="pad", traits=[base.Pure]):
    """`x` with `low` elements before and `high` after it along each dimension, all equal to the scalar `value`.

    Negative amounts crop.  `shape` is the size of the result: `low + size + high`.

    ```mlir
    func.func @pad(%x: tensor<4xf32>) -> tensor<7xf32> {
      %zero = arith.constant 0.0 : f32
      %0 = "kiln.pad"(%x, %zero) {low = affine_map<() -> (1)>, high = affine_map<() -> (2)>,
        shape = affine_map<() -> (7)>} : (tensor<4xf32>, f32) -> tensor<7xf32>
      return %0 : tensor<7xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    value: ir.Value[Any]
    symbols: Sequence[ir.Value[Index]]
    result: base.Result[Tensor]
    low: ir.AffineMapAttr
    high: ir.AffineMapAttr
    shape: ir.AffineMapAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        checks.same_element("result", self.result, self.x)
        element = self.x.type.element_type
        checks.require(self.value.type == element, "value type", element, self.value.type)
        rank, n = self.x.type.rank, len(self.symbols)
        checks.rank_is("result", self.result, rank)
        low, high = checks.map_of(self, "low", 0, rank, n), checks.map_of(self, "high", 0, rank, n)
        shape = checks.map_of(self, "shape", 0, rank, n)
        checks.shape_matches("result", shape, self.result)
        sizes = zip(low.results, checks.sizes_of(self.x), high.results, checks.sizes_of(self.result), strict=True)
        for i, (before, size, after, total) in enumerate(sizes):
            known = [n for n in (affine.constant_of(before), size, affine.constant_of(after)) if n is not None]
            if len(known) == 3 and total is not None:
                checks.require(sum(known) == total, f"result size of dim {i}", sum(known), total)


class CatOp(Family):
    """Concatenation of `inputs` along `dim` (0-based); `shape` gives the result's sizes.

    ```mlir
    func.func @cat(%x: tensor<4x?xf32>, %y: tensor<4x2xf32>, %n: index) -> tensor<4x?xf32> {
      %0 = "kiln.cat"(%x, %y, %n) {dim = 1, shape = affine_map<()[s0] -> (4, s0 + 2)>} : (tensor<4x?xf32>, tensor<4x2xf32>, index) -> tensor<4x?xf32>
      return %0 : tensor<4x?xf32>
    }
    ```
    """

    NAME = "cat"
    ATTRIBUTES = {"dim": "#builtin.integer", "shape": "#builtin.affine_map"}

    @staticmethod
    def check(op: Any) -> None:
        checks.tensors_then_indices(op.operands)
        checks.require(len(op.inputs) > 0, "tensor operands", "at least 1", 0)
        checks.require(len(op.results) == 1, "results", 1, len(op.results))
        result = op.results[0]
        rank = result.type.rank
        dim = checks.dim_in_range(op, "dim", rank)
        shape = checks.map_of(op, "shape", 0, rank, len(op.symbols))
        checks.shape_matches("result", shape, result)
        rest = checks.sizes_of(result)
        for i, x in enumerate(op.inputs):
            checks.same_element(f"operand {i}", x, result)
            checks.same_sizes(f"operand {i}", [None if d == dim else n for d, n in enumerate(rest)], x)
        along = [n for n in (checks.sizes_of(x)[dim] for x in op.inputs) if n is not None]
        if len(along) == len(op.inputs) and rest[dim] is not None:
            checks.require(sum(along) == rest[dim], f"result size of dim {dim}", sum(along), rest[dim])


class AtenOp(Family):
    """A call to the ATen op `op` through PyTorch's dispatcher: the way for whatever Kiln does not compile itself.

    `args` and `kwargs` are JSON with PyTorch's own argument order: null, booleans, numbers, strings, lists, and
    `{"operand": i}` the i-th tensor operand (with `"strides": [...]` beside it copied where it has others: for ops that
    read memory by themselves), `{"sym": k}` the k-th trailing index operand, `{"expr": "s0 * 2"}` an
    affine expression over these, `{"dtype": "float32"}`, `{"device": "cpu"}`, `{"layout": "strided"}`,
    `{"memory_format": "contiguous_format"}`.  `shapes` and `strides` (elements; `unit` for a row-major result) have
    one map per result over the symbols; results are tensors or, for data-dependent sizes, `index`: these follow the
    operands as symbols of the maps.  `pure = false` keeps the call's place among the others of its kind.

    ```mlir
    func.func @sort(%x: tensor<?xf32>, %n: index) -> tensor<?xf32> {
      %0:2 = "kiln.aten"(%x, %n) {op = "aten.sort.default", args = "[{\\22operand\\22: 0}]", kwargs = "{}",
        shapes = [affine_map<()[s0] -> (s0)>, affine_map<()[s0] -> (s0)>], strides = [unit, unit], pure = true} : (tensor<?xf32>, index) -> (tensor<?xf32>, tensor<?xi64>)
      return %0#0 : tensor<?xf32>
    }
    ```
    """

    NAME = "aten"
    ATTRIBUTES = {
        "op": "#builtin.string",
        "args": "#builtin.string",
        "kwargs": "#builtin.string",
        "shapes": "#builtin.array",
        "strides": "#builtin.array",
        "pure": "#builtin.integer",
    }
    TRAITS = (PureUnless(lambda op: not op.attributes["pure"].value),)

    @staticmethod
    def check(op: Any) -> None:
        checks.tensors_then_indices(op.operands)
        for i, result in enumerate(op.results):
            good = isinstance(result.type, ir.RankedTensorType | ir.IndexType)
            checks.require(good, f"result {i}", "a ranked tensor or index", result.type)
        checks.flag(op, "pure")
        for name in ("args", "kwargs"):
            try:
                json.loads(op.attributes[name].value)
            except ValueError as error:
                raise checks.InvalidOp(f"attribute {name}: expected JSON, found {error}") from None
        for name in ("shapes", "strides"):
            entries = list(op.attributes[name])
            checks.require(
                len(entries) == len(op.results), f"attribute {name}", f"{len(op.results)} entries", len(entries)
            )
            for i, (entry, result) in enumerate(zip(entries, op.results, strict=True)):
                if isinstance(entry, ir.AffineMapAttr) and isinstance(result.type, ir.RankedTensorType):
                    what = f"attribute {name} entry {i}"
                    own = sum(isinstance(r.type, ir.IndexType) for r in op.results)
                    checks.check_map(what, entry.value, 0, result.type.rank, len(op.symbols) + own)
                    if name == "shapes":
                        checks.shape_matches(f"result {i}", entry.value, result)
                else:
                    checks.require(
                        isinstance(entry, ir.UnitAttr | ir.AffineMapAttr),
                        f"attribute {name} entry {i}",
                        "a map or unit",
                        entry,
                    )


class FusionOp(Family):
    """A region that becomes exactly one kernel.  Its body sees only its block arguments, one per operand.

    `kind` says which lowering takes it (pointwise, reduction, matmul, attention, ...), `name` what the kernel is
    called.  Discardable attributes: `shapes`, one map per tensor operand over the fusion's own symbols, present when
    an operand is dynamic; `layouts`, the linear element offset of each tensor operand, then each result;
    `schedule`, how to tile and vectorise.

    ```mlir
    func.func @relu(%x: tensor<?xf32>, %n: index) -> tensor<?xf32> {
      %0 = "kiln.fusion"(%x, %n) ({
      ^bb0(%a: tensor<?xf32>, %s: index):
        %e = "kiln.empty"(%s) {shape = affine_map<()[s0] -> (s0)>} : (index) -> tensor<?xf32>
        %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
            iterator_types = ["parallel"]} ins(%a : tensor<?xf32>) outs(%e : tensor<?xf32>) {
        ^bb0(%in: f32, %out: f32):
          %zero = arith.constant 0.0 : f32
          %m = arith.maximumf %in, %zero : f32
          linalg.yield %m : f32
        } -> tensor<?xf32>
        "kiln.yield"(%r) : (tensor<?xf32>) -> ()
      }) {kind = "pointwise", name = "relu", shapes = [affine_map<()[s0] -> (s0)>]} : (tensor<?xf32>, index) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }
    ```
    """

    NAME = "fusion"
    ATTRIBUTES = {"kind": "#builtin.string", "name": "#builtin.string"}
    TRAITS = (PureUnless(_holds_random), ir.IsIsolatedFromAboveTrait)
    REGIONS = 1

    @staticmethod
    def check(op: Any) -> None:
        checks.require(len(op.regions[0].blocks) == 1, "body", "one block", f"{len(op.regions[0].blocks)} blocks")
        checks.tensors_then_indices(op.operands)
        block = op.regions[0].blocks[0]
        found, expected = [a.type for a in block.arguments], [v.type for v in op.operands]
        checks.require(len(found) == len(expected), "block arguments", f"{len(expected)}, one per operand", len(found))
        for i, (a, v) in enumerate(zip(found, expected, strict=True)):
            checks.require(a == v, f"block argument {i} type", v, a)
        operations = list(block.operations)
        last = operations[-1].operation.name if operations else "nothing"
        checks.require(last.startswith("kiln.yield"), "last op of the body", "kiln.yield", last)
        given = [v.type for v in operations[-1].operation.operands]
        checks.require(
            len(given) == len(op.results), "kiln.yield operands", f"{len(op.results)}, one per result", len(given)
        )
        for i, (value, result) in enumerate(zip(given, op.results, strict=True)):
            checks.require(value == result.type, f"kiln.yield operand {i} type", result.type, value)
        if "shapes" in op.attributes:
            maps = list(op.attributes["shapes"])
            checks.require(len(maps) == len(op.inputs), "attribute shapes", f"{len(op.inputs)} maps", len(maps))
            for i, (m, x) in enumerate(zip(maps, op.inputs, strict=True)):
                checks.check_map(f"attribute shapes entry {i}", m.value, 0, x.type.rank, len(op.symbols))
                checks.shape_matches(f"operand {i}", m.value, x)

    @property
    def body(self) -> ir.Region:
        """The region; its one block has an argument per operand."""
        return self.regions[0]

    @property
    def block(self) -> ir.Block:
        """The body's only block."""
        return self.regions[0].blocks[0]


class YieldOp(Family):
    """The results of a `kiln.fusion`.

    ```mlir
    func.func @identity(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "kiln.fusion"(%x) ({
      ^bb0(%a: tensor<4xf32>):
        "kiln.yield"(%a) : (tensor<4xf32>) -> ()
      }) {kind = "pointwise", name = "identity"}
        : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```
    """

    NAME = "yield"
    TRAITS = (base.Pure, ir.IsTerminatorTrait)

    @staticmethod
    def check(op: Any) -> None:
        parent = op.operation.parent
        name = parent.name if parent is not None else "nothing"
        checks.require(name.startswith("kiln.fusion"), "parent op", "kiln.fusion", name)
        for i, value in enumerate(op.operands):
            is_tensor = isinstance(value.type, ir.RankedTensorType)
            checks.require(is_tensor, f"operand {i}", "a ranked tensor", value.type)


# --------------------------------------------------------------------------------------------------------- builders


def view(
    x: Any, map: ir.AffineMap | Sequence[Dim], shape: ir.AffineMap | Sequence[Dim], symbols: Symbols = ()
) -> ir.Value:
    """Build a `kiln.view`: `map` has one index expression per dim of `x`, over result dims and `symbols`."""
    x = base.value_of(x)
    shape = base.as_map(shape, 0, len(symbols))
    map = base.as_map(map, len(shape.results), len(symbols))
    (map, shape), symbols = base.compress_symbols([map, shape], symbols)
    attributes = {"map": ir.AffineMapAttr.get(map), "shape": ir.AffineMapAttr.get(shape)}
    return ViewOp.create([x, *symbols], [base.tensor_type(x.type.element_type, shape)], attributes).result


def empty(element_type: ir.Type, shape: ir.AffineMap | Sequence[Dim], symbols: Symbols = ()) -> ir.Value:
    """Build a `kiln.empty`."""
    (shape,), symbols = base.compress_symbols([base.as_map(shape, 0, len(symbols))], symbols)
    attributes = {"shape": ir.AffineMapAttr.get(shape)}
    return EmptyOp.create(list(symbols), [base.tensor_type(element_type, shape)], attributes).result


def pad(
    x: Any,
    value: Any,
    low: ir.AffineMap | Sequence[Dim],
    high: ir.AffineMap | Sequence[Dim],
    shape: ir.AffineMap | Sequence[Dim],
    symbols: Symbols = (),
) -> ir.Value:
    """Build a `kiln.pad`; `value` is a scalar of the element type."""
    x = base.value_of(x)
    three = [base.as_map(m, 0, len(symbols)) for m in (low, high, shape)]
    three, symbols = base.compress_symbols(three, symbols)
    attributes = {k: ir.AffineMapAttr.get(m) for k, m in zip(("low", "high", "shape"), three, strict=True)}
    result = base.tensor_type(x.type.element_type, three[2])
    return PadOp.create([x, base.value_of(value), *symbols], [result], attributes).result


def cat(inputs: Sequence[Any], dim: int, shape: ir.AffineMap | Sequence[Dim], symbols: Symbols = ()) -> ir.Value:
    """Build a `kiln.cat` along the non-negative `dim`."""
    tensors = [base.value_of(x) for x in inputs]
    (shape,), symbols = base.compress_symbols([base.as_map(shape, 0, len(symbols))], symbols)
    attributes = {"dim": base.i64(dim), "shape": ir.AffineMapAttr.get(shape)}
    result = base.tensor_type(tensors[0].type.element_type, shape)
    return CatOp.create([*tensors, *symbols], [result], attributes).result


def aten(
    op: str,
    inputs: Sequence[Any],
    args: Sequence[Any] | str,
    kwargs: dict[str, Any] | str,
    results: Sequence[ir.Type],
    shapes: Sequence[ir.AffineMap | None],
    strides: Sequence[ir.AffineMap | None],
    symbols: Symbols = (),
    pure: bool = True,
    reason: str = "",
) -> AtenOp:
    """Build a `kiln.aten`; `args` and `kwargs` are JSON values or text.  Symbols are kept as given: the JSON counts them."""
    attributes: dict[str, ir.Attribute] = {
        "op": base.string(op),
        "args": base.string(args if isinstance(args, str) else json.dumps(args)),
        "kwargs": base.string(kwargs if isinstance(kwargs, str) else json.dumps(kwargs, sort_keys=True)),
        "shapes": base.maps(shapes),
        "strides": base.maps(strides),
        "pure": base.boolean(pure),
    }
    if reason:
        attributes["reason"] = base.string(reason)
    return AtenOp.create([*map(base.value_of, inputs), *symbols], results, attributes)


def fusion(inputs: Sequence[Any], results: Sequence[ir.Type], kind: str, name: str, symbols: Symbols = ()) -> FusionOp:
    """Build a `kiln.fusion` with an entry block of matching arguments and no terminator: fill `op.body.blocks[0]`."""
    operands = [*map(base.value_of, inputs), *symbols]
    attributes = {"kind": base.string(kind), "name": base.string(name)}
    op = FusionOp.create(operands, results, attributes)
    op.regions[0].blocks.append(*[v.type for v in operands], arg_locs=[v.location for v in operands])
    return op


def yield_(values: Sequence[Any]) -> YieldOp:
    """Build a `kiln.yield`."""
    return YieldOp.create([base.value_of(v) for v in values], [], {})
