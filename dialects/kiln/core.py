# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops that say what makes a kernel: fusions, and calls to ATen between them."""

import json
from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import affine
from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import PureUnless
from kiln.dialects.kiln.family import Family, name_of
from kiln.dialects.kiln.fusion_attributes import check_attributes
from kiln.dialects.kiln.table import Role, Shapes, Sizes, define

Symbols = Sequence[ir.Value]


def _holds_random(fusion: Any) -> bool:
    """A fusion is impure when an op in its body is."""
    return any(op.operation.name == "kiln.random" for op in fusion.operation.regions[0].blocks[0].operations)


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
    @override
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


def _aten_shape(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    attribute = ir.ArrayAttr(op.attributes["shapes"])[number]
    if not isinstance(attribute, ir.AffineMapAttr):
        return None
    # The symbols are the index operands, then the sizes that the call itself finds: its index results.
    values = [v for v in (*op.operands, *op.results) if isinstance(v.type, ir.IndexType)]
    exprs = [shapes.expr(v) for v in values]
    return [affine.simplify(affine.substitute(e, (), exprs)) for e in attribute.value.results]


define(AtenOp, Role.OPAQUE, shape=_aten_shape, takes_any_sizes=True)


class FusionOp(Family):
    """A region that becomes exactly one kernel.  Its body sees only its block arguments, one per operand.

    `kind` says which lowering takes it (pointwise, reduction, matmul, attention, ...), `name` what the kernel is
    called.  Discardable attributes, which the verifier knows (docs/fusion-attributes.md): `shapes`, one map per tensor
    operand over the fusion's own symbols, present when an operand is dynamic; `layouts` and `offsets`, where the elements
    of each tensor lie; `schedule`, how to tile and vectorise; `parts`, `waits`, `in_place`, `writes`, `unaligned`,
    `narrow`, `software_float8`.

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
    @override
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
        check_attributes(op)

    @property
    def body(self) -> ir.Region:
        """The region; its one block has an argument per operand."""
        return self.regions[0]

    @property
    def block(self) -> ir.Block:
        """The body's only block."""
        return self.regions[0].blocks[0]


def _fusion_shape(shapes: Any, op: ir.Operation, number: int) -> Sizes:
    from kiln.dialects.shapes import SymbolicShapes

    inner = SymbolicShapes(op, shapes)
    terminator = list(inner.block.operations)[-1].operation
    dims = inner.dims(terminator.operands[number])
    known = [shapes.expr(v) for v in op.operands if isinstance(v.type, ir.IndexType)]
    return [
        affine.simplify(affine.substitute(e, (), known)) if max(affine.symbols_in(e), default=-1) < len(known) else None
        for e in dims
    ]


define(FusionOp, Role.OPAQUE, shape=_fusion_shape)


class YieldOp(Family):
    """The results of a `kiln.fusion` or `kiln.kernel`, or what a `kiln.recurrence` combines two elements to.

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
    @override
    def check(op: Any) -> None:
        from kiln.dialects.kiln.kernel import KernelOp
        from kiln.dialects.kiln.recurrence import RecurrenceOp

        parent = op.operation.parent
        name = name_of(parent) if parent is not None else "nothing"
        if name == RecurrenceOp.PLAIN_NAME:
            return  # whose own check knows the types
        ends_in_yield = name in (FusionOp.PLAIN_NAME, KernelOp.PLAIN_NAME)
        checks.require(ends_in_yield, "parent op", "kiln.fusion, kiln.kernel or kiln.recurrence", name)
        for i, value in enumerate(op.operands):
            is_tensor = isinstance(value.type, ir.RankedTensorType)
            checks.require(is_tensor, f"operand {i}", "a ranked tensor", value.type)


define(YieldOp, Role.OPAQUE)


# --------------------------------------------------------------------------------------------------------- builders


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
