# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From linalg and tensor ops, as upstream conversions write them, to what Kiln's code generation takes.

Integers computed from sizes (``tensor.dim`` and arithmetic on it) turn into expressions over the function's symbols;
reshapes, slices, pads and casts into ``kiln.view`` and ``kiln.pad``; ``linalg.generic`` is copied, with what its body
captures. Anything else raises UnsupportedError with the op's name.
"""

from collections.abc import Callable

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects.dtypes import DType, dtype_from_builtin
from kiln.errors import UnsupportedError

from .emitter import Emitter
from .shape_ops import cat, pad
from .sizes import Expr, as_expr, constant_of, dim
from .views import reshape_to

__all__ = ["LinalgImporter"]

_DYNAMIC = -(1 << 63)
_FOLDED: dict[str, Callable[[Expr, Expr], Expr]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    # The operands are sizes, and sizes divided by sizes: not negative.
    "arith.floordivsi": ir.AffineExpr.get_floor_div,
    "arith.divsi": ir.AffineExpr.get_floor_div,
    "arith.divui": ir.AffineExpr.get_floor_div,
    "arith.ceildivsi": ir.AffineExpr.get_ceil_div,
    "arith.remsi": ir.AffineExpr.get_mod,
    "arith.remui": ir.AffineExpr.get_mod,
}
# Checks of shapes, which tracing has made already.
_DROPPED = frozenset({"cf.assert"})
_BODY_DIALECTS = ("arith.", "math.", "linalg.index", "linalg.yield", "tensor.extract")


class LinalgImporter:
    """Re-emits ops one by one through an :class:`Emitter`.

    ``values`` maps old tensors and scalars to new ones, ``sizes`` old index and i64 values to expressions. Tensors
    that come from outside must be put into ``values`` first.
    """

    def __init__(self, emitter: Emitter, name: str = "", location: str = "") -> None:
        self.emitter, self.name, self.location = emitter, name, location
        self.values: dict[ir.Value, ir.Value] = {}
        self.sizes: dict[ir.Value, Expr] = {}
        self.scalars: dict[ir.Value, ir.Operation] = {}  # scalar constants, copied to where they are used

    def unsupported(self, reason: str) -> UnsupportedError:
        """The error that gives up."""
        return UnsupportedError(self.name, self.location, reason)

    def convert(self, op: ir.Operation) -> None:
        """Re-emit one op at the current insertion point."""
        if op.name in _DROPPED:
            return
        if op.name == "arith.constant":
            return self._constant(op)
        if self._fold(op):
            return
        handler = _HANDLERS.get(op.name)
        if handler is None:
            raise self.unsupported(f"it needs {op.name}")
        self.values[op.results[0]] = handler(self, op)

    # -- scalars and sizes

    def _constant(self, op: ir.Operation) -> None:
        result = op.results[0]
        if isinstance(result.type, ir.RankedTensorType):
            copied = op.clone().operation
            self.values[result] = copied.results[0]
            return
        self.scalars[result] = op
        if isinstance(result.type, ir.IndexType | ir.IntegerType):
            self.sizes[result] = as_expr(ir.IntegerAttr(op.attributes["value"]).value)

    def _fold(self, op: ir.Operation) -> bool:
        """Integer arithmetic on sizes; True if ``op`` was such."""
        if op.name == "tensor.dim":
            position = constant_of(self.size(op.operands[1]))
            if position is None:
                raise self.unsupported("tensor.dim of a dimension that is not constant")
            self.sizes[op.results[0]] = self.emitter.shape(self.values[op.operands[0]])[position]
            return True
        if op.name in ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.trunci"):
            if op.operands[0] not in self.sizes:
                return False
            self.sizes[op.results[0]] = self.size(op.operands[0])
            return True
        fold = _FOLDED.get(op.name)
        if fold is not None and all(operand in self.sizes for operand in op.operands):
            a, b = (self.size(operand) for operand in op.operands)
            self.sizes[op.results[0]] = fold(a, b).maybe_downcast()
            return True
        if op.name in ("arith.cmpi", "arith.select", "arith.maxsi", "arith.minsi", "arith.andi"):
            return self._fold_constant(op)
        return False

    def _fold_constant(self, op: ir.Operation) -> bool:
        values = [constant_of(self.sizes[o]) if o in self.sizes else None for o in op.operands]
        if op.name == "arith.cmpi":
            if None not in values:
                predicate: int = ir.IntegerAttr(op.attributes["predicate"]).value
                a, b = values
                assert a is not None and b is not None
                holds = [a == b, a != b, a < b, a <= b, a > b, a >= b]
                if predicate < len(holds):
                    self.sizes[op.results[0]] = as_expr(int(holds[predicate]))
                    return True
            self.sizes.pop(op.results[0], None)
            return all(o in self.sizes for o in op.operands)  # left for an assertion, which is dropped
        if op.name == "arith.select" and values[0] is not None:
            chosen = op.operands[1 if values[0] else 2]
            if chosen in self.sizes:
                self.sizes[op.results[0]] = self.sizes[chosen]
                return True
        elif None not in values:
            a, b = (v for v in values if v is not None)
            pick = {"arith.maxsi": max(a, b), "arith.minsi": min(a, b), "arith.andi": a & b}
            self.sizes[op.results[0]] = as_expr(pick[op.name])
            return True
        return False

    def size(self, value: ir.Value) -> Expr:
        """An index or i64 value as an expression over the symbols."""
        found = self.sizes.get(value)
        if found is None:
            raise self.unsupported("a size that is computed from data")
        return found

    def static_or_dynamic(self, static: ir.Attribute, dynamic: list[ir.Value]) -> list[Expr]:
        """The mixed lists of tensor ops: constants, and operands where the constant is the dynamic marker."""
        rest = iter(dynamic)
        return [as_expr(v) if v != _DYNAMIC else self.size(next(rest)) for v in ir.DenseI64ArrayAttr(static)]

    # -- tensors

    def tensor(self, value: ir.Value) -> ir.Value:
        """The new tensor for an old one."""
        found = self.values.get(value)
        if found is None:
            raise self.unsupported(f"a value of type {value.type} has no place here")
        return found

    def dtype(self, tensor: ir.Value) -> DType:
        """Element type; raises for one that Kiln does not compute."""
        found = dtype_from_builtin(ir.RankedTensorType(tensor.type).element_type)
        if found is None or found.is_opaque:
            raise self.unsupported(f"elements of type {ir.RankedTensorType(tensor.type).element_type}")
        return found

    def empty(self, op: ir.Operation) -> ir.Value:
        """`tensor.empty` as `kiln.empty`."""
        dynamic = iter(op.operands)
        type_ = ir.RankedTensorType(op.results[0].type)
        marker = ir.ShapedType.get_dynamic_size()
        sizes = [self.size(next(dynamic)) if s == marker else as_expr(s) for s in type_.shape]
        return self.emitter.empty(sizes, self.dtype(op.results[0]))

    def cast(self, op: ir.Operation) -> ir.Value:
        """`tensor.cast` is its operand: Kiln's sizes are expressions."""
        return self.tensor(op.operands[0])

    def collapse(self, op: ir.Operation) -> ir.Value:
        """`tensor.collapse_shape` as a view."""
        x = self.tensor(op.operands[0])
        sizes = self.emitter.shape(x)
        groups = [[ir.IntegerAttr(i).value for i in group] for group in op.attributes["reassociation"]]
        shape: list[ir.AffineExpr] = []
        for group in groups:
            total = as_expr(1)
            for k in group:
                total = total * sizes[k]
            shape.append(total.maybe_downcast())
        return reshape_to(self.emitter, x, shape)

    def expand(self, op: ir.Operation) -> ir.Value:
        """`tensor.expand_shape` as a view."""
        x = self.tensor(op.operands[0])
        shape = self.static_or_dynamic(op.attributes["static_output_shape"], list(op.operands)[1:])
        return reshape_to(self.emitter, x, shape)

    def extract_slice(self, op: ir.Operation) -> ir.Value:
        """`tensor.extract_slice` as a view; dims that the result lacks are dropped."""
        x = self.tensor(op.operands[0])
        offsets, sizes, strides = self._slice(op, 1)
        rank = len(offsets)
        kept = self._kept(sizes, ir.RankedTensorType(op.results[0].type))
        position = {k: dim(i) for i, k in enumerate(kept)}
        indices = [offsets[k] + position[k] * strides[k] if k in position else offsets[k] for k in range(rank)]
        return self.emitter.view(x, indices, [sizes[k] for k in kept])

    def _slice(self, op: ir.Operation, first: int) -> tuple[list[Expr], list[Expr], list[Expr]]:
        """Offsets, sizes and strides of a slice op whose operands before ``first`` are tensors."""
        segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))[first:]
        out: list[list[ir.AffineExpr]] = []
        operands = list(op.operands)[first:]
        for count, name in zip(segments, ("static_offsets", "static_sizes", "static_strides"), strict=True):
            out.append(self.static_or_dynamic(op.attributes[name], operands[:count]))
            operands = operands[count:]
        return out[0], out[1], out[2]

    def _kept(self, sizes: list[Expr], result: ir.RankedTensorType) -> list[int]:
        """The dims that a rank-reducing slice keeps: dims of size 1 are dropped from the front as needed."""
        excess = len(sizes) - result.rank
        kept: list[int] = []
        for k, size in enumerate(sizes):
            if excess and constant_of(size) == 1:
                excess -= 1
            else:
                kept.append(k)
        if excess:
            raise self.unsupported("a slice that drops a dimension of dynamic size")
        return kept

    def insert_slice(self, op: ir.Operation) -> ir.Value:
        """Into one dim, with step 1: a concatenation. Anything else is not supported."""
        source, target = self.tensor(op.operands[0]), self.tensor(op.operands[1])
        offsets, sizes, strides = self._slice(op, 2)
        whole = self.emitter.shape(target)
        if len(self.emitter.shape(source)) != len(whole) or any(constant_of(s) != 1 for s in strides):
            raise self.unsupported("tensor.insert_slice of another rank or with a step")
        partial = [k for k in range(len(whole)) if constant_of(offsets[k]) != 0 or sizes[k] != whole[k]]
        if not partial:
            return source
        if len(partial) > 1:
            raise self.unsupported("tensor.insert_slice into several dimensions")
        at = partial[0]
        parts = [source]
        if constant_of(offsets[at]) != 0:
            parts.insert(0, self._part(target, at, as_expr(0), offsets[at]))
        end = (offsets[at] + sizes[at]).maybe_downcast()
        if end != whole[at]:
            parts.append(self._part(target, at, end, whole[at] - end))
        return cat(self.emitter, parts, at, whole)

    def _part(self, x: ir.Value, at: int, start: Expr, count: Expr) -> ir.Value:
        shape = list(self.emitter.shape(x))
        indices: list[Expr] = [dim(k) for k in range(len(shape))]
        indices[at], shape[at] = dim(at) + start, count
        return self.emitter.view(x, indices, shape)

    def pad(self, op: ir.Operation) -> ir.Value:
        """`tensor.pad` as `kiln.pad`. Raises UnsupportedError for a filler that is computed."""
        x = self.tensor(op.operands[0])
        body = op.regions[0].blocks[0]
        value = body.operations[len(body.operations) - 1].operation.operands[0]
        owner = value.owner
        constant = self.scalars.get(value) or (owner.operation if not isinstance(owner, ir.Block) else None)
        if constant is None or constant.name != "arith.constant":
            raise self.unsupported("padding with a computed value")
        number = _number(constant.attributes["value"])
        segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        operands = list(op.operands)[1:]
        low = self.static_or_dynamic(op.attributes["static_low"], operands[: segments[1]])
        high = self.static_or_dynamic(op.attributes["static_high"], operands[segments[1] :])
        return pad(self.emitter, x, number, low, high)

    def concat(self, op: ir.Operation) -> ir.Value:
        """`tensor.concat` as pads and selects."""
        inputs = [self.tensor(operand) for operand in op.operands]
        at = ir.IntegerAttr(op.attributes["dim"]).value
        shape = list(self.emitter.shape(inputs[0]))
        for x in inputs[1:]:
            shape[at] = shape[at] + self.emitter.shape(x)[at]
        return cat(self.emitter, inputs, at, shape)

    # -- linalg.generic

    def generic(self, op: ir.Operation) -> ir.Value:
        """A copy without scalar operands (constants go into the body), with what the body captures."""
        if len(op.results) != 1:
            raise self.unsupported("linalg.generic with several results")
        inputs, outs = _segments(op)
        maps = [attribute.value for attribute in op.attributes["indexing_maps"]]
        body = op.regions[0].blocks[0]
        is_tensor = [isinstance(v.type, ir.RankedTensorType) for v in inputs]
        kept = [k for k, tensor in enumerate(is_tensor) if tensor] + list(range(len(inputs), len(maps)))
        if not _is_projection(maps[len(inputs)]):
            raise self.unsupported("a result map that is no projection")
        operands = [self.tensor(([*inputs, *outs])[k]) for k in kept]
        types = [ir.RankedTensorType(v.type).element_type for v in operands]
        self._check_types(body, types)
        created = ir.Operation.create(
            "linalg.generic",
            results=[operands[-1].type],
            operands=operands,
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(maps[k]) for k in kept]),
                "iterator_types": op.attributes["iterator_types"],
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(kept) - 1, 1]),
            },
            regions=1,
        )
        block = ir.Block.create_at_start(created.regions[0], types, [created.location] * len(types))
        table: dict[ir.Value, ir.Value] = {
            body.arguments[k]: argument for k, argument in zip(kept, block.arguments, strict=True)
        }
        with ir.InsertionPoint(block):
            for k, tensor in enumerate(is_tensor):
                if not tensor:
                    table[body.arguments[k]] = self._captured(inputs[k])
            for inner in body.operations:
                self._copy_body_op(inner.operation, table)
        created.verify()
        info = self.emitter.state.info(operands[-1])
        return self.emitter.state.set_info(created.results[0], info.shape, info.dtype)

    def _check_types(self, body: ir.Block, types: list[ir.Type]) -> None:
        """No arithmetic in half types (PyTorch computes in float32), and no float64 in an op on narrower types."""
        texts = {str(t) for t in types}
        if texts & {"f16", "bf16"}:
            raise self.unsupported("arithmetic in a 16-bit float type")
        inner = {str(r.type) for op in body.operations for r in op.operation.results}
        if "f64" in inner and "f64" not in texts:
            raise self.unsupported("float64 arithmetic on narrower types")

    def _captured(self, value: ir.Value) -> ir.Value:
        """A value from outside of a body, made inside of it: constants and sizes; tensors as they are."""
        if value in self.scalars:
            return self.scalars[value].clone().operation.results[0]
        if value in self.sizes:
            scalar = self.emitter.scalars.size(self.sizes[value], self.emitter.state.symbol_value).value
            if isinstance(value.type, ir.IndexType):
                return arith.index_cast(ir.IndexType.get(), scalar)
            return scalar if scalar.type == value.type else arith.trunci(value.type, scalar)
        return self.tensor(value)

    def _copy_body_op(self, op: ir.Operation, table: dict[ir.Value, ir.Value]) -> None:
        if not op.name.startswith(_BODY_DIALECTS) or len(op.regions):
            raise self.unsupported(f"a body with {op.name}")
        if op.name == "tensor.extract" and any(_from_data(v, op.block) for v in list(op.operands)[1:]):
            raise self.unsupported("indices computed from data, which nothing keeps in bounds")
        operands: list[ir.Value] = []
        for operand in op.operands:
            if operand not in table:
                table[operand] = self._captured(operand)
            operands.append(table[operand])
        created = ir.Operation.create(
            op.name,
            results=[r.type for r in op.results],
            operands=operands,
            attributes={name: op.attributes[name] for name in op.attributes},
        )
        table.update(zip(op.results, created.results, strict=True))


def _segments(op: ir.Operation) -> tuple[list[ir.Value], list[ir.Value]]:
    inputs, _ = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    operands = list(op.operands)
    return operands[:inputs], operands[inputs:]


def _is_projection(map_: ir.AffineMap) -> bool:
    positions = [e.position for e in map_.results if isinstance(e, ir.AffineDimExpr)]
    return len(positions) == len(map_.results) and len(set(positions)) == len(positions)


def _from_data(value: ir.Value, block: ir.Block) -> bool:
    """Whether a value in a body depends on the elements of a tensor."""
    if isinstance(value, ir.BlockArgument):
        return value.owner == block
    op = value.owner.operation if isinstance(value.owner, ir.OpView) else value.owner
    if op.name == "tensor.extract":
        return True
    return any(_from_data(operand, block) for operand in op.operands)


def _number(attribute: ir.Attribute) -> int | float:
    return ir.FloatAttr(attribute).value if isinstance(attribute, ir.FloatAttr) else ir.IntegerAttr(attribute).value


_HANDLERS: dict[str, Callable[[LinalgImporter, ir.Operation], ir.Value]] = {
    "tensor.empty": LinalgImporter.empty,
    "tensor.cast": LinalgImporter.cast,
    "tensor.collapse_shape": LinalgImporter.collapse,
    "tensor.expand_shape": LinalgImporter.expand,
    "tensor.extract_slice": LinalgImporter.extract_slice,
    "tensor.insert_slice": LinalgImporter.insert_slice,
    "tensor.pad": LinalgImporter.pad,
    "tensor.concat": LinalgImporter.concat,
    "linalg.generic": LinalgImporter.generic,
}
