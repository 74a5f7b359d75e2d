# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The dataflow of a function as fusion sees it: compute ops, what is free to copy, who reads whom at which index."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import Role, name_of, opdef
from kiln.dialects.shapes import SymbolicShapes
from kiln.dialects.walk import defining_op
from kiln.lowering.target import ALONE
from kiln.lowering.tile.body import OP_COST, indexing_maps, invert, output_map, reduction_dims

if TYPE_CHECKING:
    from kiln.passes.fusion.order import Schedule

Point = tuple[ir.AffineExpr | None, ...]


def _computes(op: ir.Operation) -> bool:
    """Whether `op` is computed in some kernel, unless it is free."""
    return op.name == "linalg.generic" or opdef(op).is_guarded or opdef(op).has_kernel


@dataclass(frozen=True)
class Read:
    """`consumer` reads `value` at `index` (over the consumer's space; None where it isn't affine in it).

    guarded: through a pad or concatenation, so that some indices are out of bounds.
    whole: as a matrix operand or a gathered table, which has to be in memory.
    """

    consumer: ir.Operation
    value: ir.Value
    index: tuple[ir.AffineExpr, ...]
    guarded: bool = False
    whole: bool = False


def _calls_in_order(operations: list[ir.Operation]) -> dict[ir.Operation, ir.Operation]:
    """Calls with effects (random numbers, what is written to) stay in their order: each one to the one behind it."""
    calls = [op for op in operations if name_of(op) == "kiln.aten" and not ir.BoolAttr(op.attributes["pure"]).value]
    return dict(itertools.pairwise(calls))


class FusionGraph:
    """Reads between the compute ops of one function. Valid until the function is changed."""

    def __init__(self, function: ir.OpView):
        self.function = function
        self.block = function.regions[0].blocks[0]
        self.shapes = SymbolicShapes(function)
        self.operations = [op.operation for op in self.block.operations]
        self.position = {op: i for i, op in enumerate(self.operations)}
        self._free: dict[ir.Operation, bool] = {}
        self.compute = [op for op in self.operations if _computes(op) and not self.is_free(op)]
        self._compute_set = set(self.compute)
        self._spaces: dict[ir.Operation, tuple[ir.AffineExpr, ...]] = {}
        self._users: dict[ir.Operation, list[int]] = {}
        self._contracted: dict[ir.Operation, list[ir.Value]] = {}
        self._read_values: dict[ir.Operation, list[ir.Value]] = {}
        self.readers: dict[ir.Value, list[Read]] = {}
        self.reads: dict[ir.Operation, list[Read]] = {}
        self.external: set[ir.Value] = set()
        self.next_call = _calls_in_order(self.operations)
        self.schedule: Schedule | None = None
        for op in self.operations:
            if op in self._compute_set:
                self.reads[op] = list(self._reads_of(op))
                for read in self.reads[op]:
                    self.readers.setdefault(read.value, []).append(read)
            elif not self.is_free(op):
                for v in op.operands:
                    self.external.add(self.source(v))

    # -- classification ----------------------------------------

    def is_free(self, op: ir.Operation) -> bool:
        """Ops that cost nothing to repeat in every kernel that wants them: views, splats, fills, iotas, scalars."""
        found = self._free.get(op)
        if found is None:
            found = self._free[op] = self._is_free(op)
        return found

    def _is_free(self, op: ir.Operation) -> bool:
        if opdef(op).is_free:
            return True
        if op.name == "arith.constant":
            value = op.attributes["value"]
            return not isinstance(value, ir.DenseElementsAttr) or value.is_splat
        if op.name.startswith("arith."):
            return not isinstance(op.results[0].type, ir.RankedTensorType)
        if op.name == "linalg.generic":
            inputs = len(op.operands) - len(op.results)
            tensors = [v for v in list(op.operands)[:inputs] if isinstance(v.type, ir.RankedTensorType)]
            return not tensors and not reduction_dims(op.opview) and not captured(op) and len(op.results) == 1
        return False

    def source(self, value: ir.Value) -> ir.Value:
        """`value` without the views on top of it."""
        op = defining_op(value)
        while op is not None and op.name == "kiln.view":
            value = op.operands[0]
            op = defining_op(value)
        return value

    def dims(self, value: ir.Value) -> tuple[ir.AffineExpr, ...]:
        """Sizes over the function's symbols."""
        return tuple(self.shapes.dims(value))

    def space(self, op: ir.Operation) -> tuple[ir.AffineExpr, ...]:
        """Iteration space: the result's sizes, a reduction's loops, or for a scatter the sizes of what it writes."""
        found = self._spaces.get(op)
        if found is None:
            found = self._spaces[op] = self._space(op)
        return found

    def _space(self, op: ir.Operation) -> tuple[ir.AffineExpr, ...]:
        if name_of(op) == "kiln.scatter_nd":
            return self.dims(op.operands[1])
        if op.name != "linalg.generic":
            return self.dims(op.results[0])
        maps = indexing_maps(op.opview)
        extents: list[ir.AffineExpr | None] = [None] * maps[0].n_dims
        for value, m in zip(op.operands, maps, strict=True):
            if isinstance(value.type, ir.RankedTensorType):
                for size, e in zip(self.dims(value), m.results, strict=True):
                    if isinstance(e, ir.AffineDimExpr) and (
                        extents[e.position] is None or isinstance(size, ir.AffineConstantExpr)
                    ):
                        extents[e.position] = size
        one = ir.AffineConstantExpr.get(1)
        return tuple(one if e is None else e for e in extents)

    def reduces(self, op: ir.Operation) -> bool:
        """Whether `op` is a reduction."""
        return bool(reduction_dims(op.opview))

    def cost(self, op: ir.Operation) -> int:
        """Elementary operations per element."""
        if op.name != "linalg.generic":
            return 1
        return sum(OP_COST.get(o.operation.name, 1) for o in op.regions[0].blocks[0].operations)

    def innermost(self, value: ir.Value) -> int | None:
        """The dim whose elements are neighbours in memory, as far as it is known by now; None for scalars.

        Arguments and calls say their strides; what pointwise ops compute follows what they read; else it is the last.
        """
        dims = self.dims(value)
        strides = self._strides(value)
        if strides is not None:
            one = [d for d, s in enumerate(strides) if affine.constant_of(s) == 1 and affine.constant_of(dims[d]) != 1]
            return one[-1] if one else None
        op = defining_op(value)
        if op is not None and op.name == "linalg.generic" and not self.reduces(op):
            maps = indexing_maps(op.opview)
            for operand, m in zip(list(op.operands)[: -len(op.results)], maps, strict=False):
                if m == maps[-1] and isinstance(operand.type, ir.RankedTensorType) and self.dims(operand) == dims:
                    return self.innermost(operand)
        return len(dims) - 1 if dims else None

    def contracted(self, op: ir.Operation) -> list[ir.Value]:
        """Results of products, convolutions and attention that `op` is computed from position by position, where only
        it needs them: directly, or by ops that only it needs. Found once an op.
        """
        found = self._contracted.get(op)
        if found is None:
            found = self._contracted[op] = self._find_contracted(op)
        return found

    def _find_contracted(self, op: ir.Operation) -> list[ir.Value]:
        if op.name != "linalg.generic" or len(op.results) != 1 or self.reduces(op):
            return []
        space, found = self.space(op), dict[ir.Value, None]()
        for read in self.reads[op]:
            maker = defining_op(read.value)
            if maker is None or maker not in self._compute_set or read.guarded or self.dims(read.value) != space:
                continue
            if not all(
                e == ir.AffineDimExpr.get(i) or (affine.constant_of(space[i]) == 1 and affine.constant_of(e) == 0)
                for i, e in enumerate(read.index)
            ):
                continue
            if read.value in self.external or any(r.consumer != op for r in self.readers[read.value]):
                continue
            if opdef(maker).role is Role.CONTRACTION:
                found.update({} if ALONE in maker.attributes else {read.value: None})
            else:
                found.update(dict.fromkeys(self.contracted(maker)))
        return list(found)

    def top(self, owner: ir.Operation | ir.OpView) -> int:
        """Position of the op of the function that an op is, or is inside of."""
        op = owner.operation
        while (position := self.position.get(op)) is None:
            parent = op.parent
            assert parent is not None, "an op of another function"
            op = parent.operation
        return position

    def users(self, op: ir.Operation) -> list[int]:
        """Positions of the ops of the function that read what `op` makes, directly or through free ops; each once.
        Found once an op.
        """
        found = self._users.get(op)
        if found is None:
            unique: dict[int, None] = {}
            for result in op.results:
                for use in result.uses:
                    position = self.top(use.owner)
                    user = self.operations[position]
                    unique.update(dict.fromkeys(self.users(user) if self.is_free(user) else [position]))
            found = self._users[op] = list(unique)
        return found

    def values_read(self, op: ir.Operation) -> list[ir.Value]:
        """Operands of `op` and of the ops inside of it."""
        found = self._read_values.get(op)
        if found is None:
            inner = [o.operation for r in op.regions for block in r.blocks for o in block.operations]
            found = self._read_values[op] = [*op.operands, *(v for o in inner for v in o.operands)]
        return found

    def _strides(self, value: ir.Value) -> tuple[ir.AffineExpr, ...] | None:
        op = defining_op(value)
        if op is not None:
            attribute = op.attributes["strides"] if "strides" in op.attributes else None
            if isinstance(attribute, ir.ArrayAttr):
                attribute = attribute[ir.OpResult(value).result_number]
        else:
            function = self.function.operation
            entries = function.attributes["arg_attrs"] if "arg_attrs" in function.attributes else None
            entry: Any = (
                {} if entries is None else ir.DictAttr(ir.ArrayAttr(entries)[ir.BlockArgument(value).arg_number])
            )
            attribute = entry["kiln.strides"] if "kiln.strides" in entry else None
        return tuple(attribute.value.results) if isinstance(attribute, ir.AffineMapAttr) else None

    # -- reads ----------------------------------------

    def _reads_of(self, op: ir.Operation) -> Iterator[Read]:
        if opdef(op).role is Role.CONTRACTION:
            for v in op.operands:
                if isinstance(v.type, ir.RankedTensorType):
                    yield Read(op, self.source(v), (), whole=True)
            return
        for v in captured(op):
            yield Read(op, self.source(v), (), whole=True)
        rank = len(self.space(op))
        point = tuple(ir.AffineDimExpr.get(i) for i in range(rank))
        if opdef(op).role is Role.SCAN:
            for v in op.operands:
                yield self._read(op, v, point, False)
            return
        if name_of(op) == "kiln.scatter_nd":
            # The kernel begins with what is there in memory already.
            if not ir.BoolAttr(op.attributes["from_zero"]).value:
                yield Read(op, self.source(op.operands[0]), (), whole=True)
            for v in list(op.operands)[1:]:
                yield self._read(op, v, point, False)
            return
        if op.name == "linalg.generic":
            outs = len(op.operands) - len(op.results)
            for k, (v, m) in enumerate(zip(op.operands, indexing_maps(op.opview), strict=True)):
                if isinstance(v.type, ir.RankedTensorType) and (k < outs or not self.is_free(_owner(v))):
                    yield self._read(op, v, tuple(self._at(e, point) for e in m.results), False)
            return
        low = self.local(op, "low").results if op.name == "kiln.pad" else None
        for v in op.operands:
            if isinstance(v.type, ir.RankedTensorType):
                index = point if low is None else tuple(p - lo for p, lo in zip(point, low, strict=True))
                yield self._read(op, v, index, True)

    def _read(self, op: ir.Operation, value: ir.Value, index: tuple[ir.AffineExpr, ...], guarded: bool) -> Read:
        view = defining_op(value)
        while view is not None and view.name == "kiln.view":
            index = tuple(self._at(e, index) for e in self.local(view, "map").results)
            value = view.operands[0]
            view = defining_op(value)
        ranges = dict(enumerate(self.space(op)))
        return Read(op, value, tuple(affine.simplify(e, ranges) for e in index), guarded)

    def element_of(self, operand: ir.Value) -> tuple[ir.Value, tuple[ir.AffineExpr, ...]]:
        """What is below the views on top of `operand`, and its index for the operand's own index."""
        point = tuple(ir.AffineDimExpr.get(i) for i in range(len(self.dims(operand))))
        index, source = point, operand
        view = defining_op(source)
        while view is not None and view.name == "kiln.view":
            index = tuple(self._at(e, index) for e in self.local(view, "map").results)
            source = view.operands[0]
            view = defining_op(source)
        return source, index

    def _at(self, expr: ir.AffineExpr, index: tuple[ir.AffineExpr, ...]) -> ir.AffineExpr:
        return affine.substitute(expr, dict(enumerate(index)))

    def local(self, op: ir.Operation, name: str) -> ir.AffineMap:
        """A map attribute with the op's symbols renumbered to the function's."""
        own = ir.AffineMapAttr(op.attributes[name]).value
        operands = [v for v in op.operands if isinstance(v.type, ir.IndexType)]
        symbols = {i: self.shapes.expr(v) for i, v in enumerate(operands)}
        count = max([0, *(s + 1 for e in symbols.values() for s in affine.symbols_in(e))])
        return ir.AffineMap.get(own.n_dims, count, [affine.substitute(e, {}, symbols) for e in own.results])

    def producer_point(self, op: ir.Operation, index: tuple[ir.AffineExpr, ...]) -> Point:
        """Iteration point of `op` for which it gives its result at `index` (None for reduced dims)."""
        if op.name != "linalg.generic":
            return index
        return tuple(invert(output_map(op.opview), index))


def _owner(value: ir.Value) -> ir.Operation:
    op = defining_op(value)
    assert op is not None, "a destination that is a function argument"
    return op


def captured(op: ir.Operation) -> list[ir.Value]:
    """Tensors that the body of a `linalg.generic` reads by itself (tensor.extract), in order."""
    found: list[ir.Value] = []
    if op.name == "linalg.generic":
        for inner in op.regions[0].blocks[0].operations:
            if inner.operation.name == "tensor.extract" and inner.operation.operands[0] not in found:
                found.append(inner.operation.operands[0])
    return found
