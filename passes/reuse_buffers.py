# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Decides which results are written into memory that is there already."""

import math
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import AtenOp, FusionOp, name_of, opdef_of_kind
from kiln.errors import InvalidIRError
from kiln.lowering import paths
from kiln.lowering.host.kernels import fusion_key
from kiln.lowering.host.layout import Exprs, HostGraph, is_constant
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts
from kiln.lowering.tile.overwrite import Overwriting
from kiln.passes.core import Pass, register_pass
from kiln.passes.operand_memory import OperandMemory
from kiln.passes.rewrites import may_rewrite
from kiln.passes.scatters.memory import base_operand, copy_bases

__all__ = ["ReuseBuffers"]

_TAKEN = paths.group("any reuse-buffers", "over an operand", "over a donated argument", "over what eager mutates",
                     "base of indices")  # fmt: skip

_FRESH = ("aten.convolution.default", "aten.mm.default", "aten.addmm.default", "aten.bmm.default",
          "aten.baddbmm.default", "aten.linear.default", "aten._addmm_activation.default")  # fmt: skip
"""ATen ops whose results are new memory and that keep no reference to their operands."""

_END = 1 << 60


@register_pass
@dataclass
class ReuseBuffers(Pass):
    """Write results of fusions into operands that die there, and into arguments that eager mutates.

    Attribute ``in_place = array<i64: operand, result, ...>`` of a fusion, tensor operands counted alone: the result
    has the memory of that operand. Only where the operand is not read again, has the result's layout and size, and
    the kernel reads each element before it writes it (see lowering/tile/overwrite.py). Arguments of the function are
    operands that die if they are ``kiln.donated``; no result of the function is written there.

    Attribute ``writes = array<i64: result, argument, ...>``: the result, which eager copies to the function's
    argument at the end (``kiln.mutates``), is written there at once: nothing reads the argument later.

    Before::

        func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
          %0 = "kiln.fusion"(%x) ({
          ^bb0(%a: tensor<8xf32>):
            "kiln.yield"(%a) : (tensor<8xf32>) -> ()
          }) {kind = "pointwise", layouts = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "first"}
            : (tensor<8xf32>) -> tensor<8xf32>
          %1 = "kiln.fusion"(%0) ({
          ^bb0(%a: tensor<8xf32>):
            %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
            %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
            ^bb0(%i: f32, %o: f32):
              %s = arith.negf %i : f32
              linalg.yield %s : f32
            } -> tensor<8xf32>
            "kiln.yield"(%r) : (tensor<8xf32>) -> ()
          }) {kind = "pointwise", layouts = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "second"}
            : (tensor<8xf32>) -> tensor<8xf32>
          return %1 : tensor<8xf32>
        }

    After::

        #map = affine_map<(d0) -> (d0)>
        #map1 = affine_map<() -> (8)>
        func.func @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
          %0 = "kiln.fusion"(%arg0) ({
          ^bb0(%arg1: tensor<8xf32>):
            "kiln.yield"(%arg1) : (tensor<8xf32>) -> ()
          }) {kind = "pointwise", layouts = [#map, #map], name = "first"} : (tensor<8xf32>) -> tensor<8xf32>
          %1 = "kiln.fusion"(%0) ({
          ^bb0(%arg1: tensor<8xf32>):
            %2 = "kiln.empty"() {shape = #map1} : () -> tensor<8xf32>
            %3 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]} ins(%arg1 : tensor<8xf32>)
                outs(%2 : tensor<8xf32>) {
            ^bb0(%in: f32, %out: f32):
              %4 = arith.negf %in : f32
              linalg.yield %4 : f32
            } -> tensor<8xf32>
            "kiln.yield"(%3) : (tensor<8xf32>) -> ()
          }) {in_place = array<i64: 0, 0>, kind = "pointwise", layouts = [#map, #map], name = "second"}
              : (tensor<8xf32>) -> tensor<8xf32>
          return %1 : tensor<8xf32>
        }
    """

    name = "reuse-buffers"

    def run(self, module: ir.Module) -> None:
        """Annotate the fusions of every function."""
        for function in module.body:
            if function.operation.name == "func.func" and len(function.operation.regions[0].blocks):
                self.count("copies of what is written to with indices", copy_bases(function))
                _Function(self, HostGraph(function)).run()


@dataclass
class _Memory:
    """What one piece of memory must be: `is_plain`: all values in it have the first one's sizes and strides."""

    first: ir.Value
    is_owned: bool
    is_plain: bool = True


class _Function:
    def __init__(self, owner: ReuseBuffers, graph: HostGraph) -> None:
        self.owner, self.graph = owner, graph
        self.last: dict[ir.Value, int] = {}
        self.held: set[ir.Value] = set()  # memory that something may refer to longer than its values are used
        self.owned: set[ir.Value] = set()  # tensors of their own: returned ones and operands of ATen calls
        for step, op in enumerate(graph.operations):
            kind = name_of(op)
            if not isinstance(op.operation.opview, FusionOp | AtenOp):
                continue
            for value in op.operation.operands:
                root = self._root(value)
                if root is None:
                    continue
                self.last[root] = step
                if kind == "kiln.aten":
                    self.owned.add(root)
                    if not _is_fresh(op.operation):
                        self.held.add(root)
        self.returned: dict[ir.Value, list[int]] = {}
        for number, value in enumerate(graph.returned):
            root = self._root(value)
            if root is not None:
                self.last[root] = _END
                self.owned.add(root)
                self.returned.setdefault(root, []).append(number)
        self.whole = set(self.returned)  # tensors that are all of their memory
        self._own_bases()
        self.memory: dict[ir.Value, _Memory] = {}
        self.known: dict[str, Overwriting] = {}

    def _own_bases(self) -> None:
        """What a kernel with indices writes over is what it returns: where that has to be a tensor of its own, so has
        the base, which would else take memory of another shape.
        """
        for op in reversed(self.graph.operations):
            base = base_operand(op.operation) if name_of(op) == "kiln.fusion" else None
            if base is not None and op.operation.results[0] in self.owned:
                tensors = [v for v in op.operation.operands if isinstance(v.type, ir.RankedTensorType)]
                root = self._root(tensors[base])
                if root is not None:
                    self.owned.add(root)
                    self.whole.add(root)

    def run(self) -> None:
        for step, op in enumerate(self.graph.operations):
            if name_of(op) == "kiln.fusion":
                self._fusion(step, op)

    def _root(self, value: ir.Value) -> ir.Value | None:
        return self.graph.strided_layout(value).root if isinstance(value.type, ir.RankedTensorType) else None

    def _fusion(self, step: int, op: ir.OpView) -> None:
        operation = op.operation
        roots = [self._root(v) for v in operation.operands if isinstance(v.type, ir.RankedTensorType)]
        base = base_operand(operation)
        if base is not None:
            self._overwrite(operation, roots, base)
            return
        in_place: list[int] = []
        writes: list[int] = []
        rejected: dict[int, int] = {}  # result -> operands that die but that it may not be written over
        places = OperandMemory.of(roots, self._dying(step, roots))
        for number, result in enumerate(operation.results):
            target = self._target(step, result)
            allowed = self._allowed(op, number, places, target)
            for root, readers in places.candidates(allowed or 0, target):
                if not may_rewrite(operation, "in place"):
                    continue
                if target is not None and root == target:
                    writes += (number, ir.BlockArgument(root).arg_number)
                    self.owner.count("arguments written in place")
                    _TAKEN("over what eager mutates")
                elif not self._take(root, result):
                    continue
                else:
                    _TAKEN("over a donated argument" if isinstance(root.owner, ir.Block) else "over an operand")
                for i in readers:
                    in_place += (i, number)
                self.owner.count("results in place", bool(readers))
                self.last.pop(root)  # one result only
                places.remove(root)
                break
            else:
                if allowed is not None and places.first_dying & ~allowed:
                    rejected[number] = places.first_dying & ~allowed
        self._note_elsewhere(op, rejected)
        if in_place:
            operation.attributes["in_place"] = ir.DenseI64ArrayAttr.get(in_place)
        if writes:
            operation.attributes["writes"] = ir.DenseI64ArrayAttr.get(writes)

    def _allowed(self, op: ir.OpView, number: int, places: OperandMemory, target: ir.Value | None) -> int | None:
        """The operands that a result may be written over, as far as the kernel is concerned: operand i is bit i. None
        if that is not known, since nothing can be written over.
        """
        operation = op.operation
        kind = ir.StringAttr(operation.attributes["kind"]).value
        if opdef_of_kind(kind).has_kernel or not (places.dying or target in places.operands):
            return None
        tensors = len(places.roots)
        if "offsets" in operation.attributes:
            if self._moved(operation, tensors + number):
                return None
            unmoved = places.once_unmoved(lambda i: not self._moved(operation, i))
        else:
            unmoved = -1
        if places.overwriting is None:
            places.overwriting = self._overwriting(op)
        return places.overwriting.operands_for(number) & unmoved

    def _note_elsewhere(self, op: ir.OpView, rejected: dict[int, int]) -> None:
        """Notes which results got memory of their own though operands died, once a fusion: its location may be long."""
        for number, operands in list(rejected.items())[:1]:
            operand = (operands & -operands).bit_length() - 1
            more = f", as {len(rejected) - 1} more results" if len(rejected) > 1 else ""
            self.owner.note(op, f"result {number} is not written over operand {operand}: read elsewhere{more}")

    def _overwriting(self, op: ir.OpView) -> Overwriting:
        """What a kernel reads where; that of an equal kernel tells as well: layers repeat."""
        key = fusion_key(op.operation)
        found = self.known.get(key)
        if found is None:
            body = FusionBody(op)
            found = self.known[key] = Overwriting(body, fusion_layouts(op, body))
        return found

    def _overwrite(self, op: ir.Operation, roots: list[ir.Value | None], base: int) -> None:
        """A kernel that writes with indices has its result in the memory of what it starts from, which is its own."""
        root, result = roots[base], op.results[0]
        if root is None or root not in self.last:
            raise InvalidIRError("what is written to with indices has no memory of its own", str(op.location))
        memory = self.memory.get(root) or _Memory(root, root in self.owned)
        first, mine = self.graph.strided_layout(memory.first), self.graph.strided_layout(result)
        plain = memory.is_plain and first.shape == mine.shape and first.strides == mine.strides
        self.memory[result] = _Memory(memory.first, memory.is_owned or result in self.owned, plain)
        op.attributes["in_place"] = ir.DenseI64ArrayAttr.get([base, 0])
        _TAKEN("base of indices")
        self.owner.count("results in place")
        self.last.pop(root)

    @staticmethod
    def _moved(op: ir.Operation, tensor: int) -> bool:
        """Whether a tensor of the fusion does not start where its memory does."""
        if "offsets" not in op.attributes:
            return False
        offset = ir.AffineMapAttr(ir.ArrayAttr(op.attributes["offsets"])[tensor]).value
        return not is_constant(offset.results[0], 0)

    def _dying(self, step: int, roots: list[ir.Value | None]) -> list[ir.Value]:
        """Memory of the operands that nothing reads after this step."""
        found: dict[ir.Value, None] = {}
        for root in roots:
            if root is None or root in self.held or self.last.get(root) != step:
                continue
            if isinstance(root.owner, ir.Block):
                if self._is_donated(root):
                    found[root] = None
                continue
            owner = root.owner.operation
            if name_of(owner) == "kiln.fusion" or (name_of(owner) == "kiln.aten" and _is_fresh(owner)):
                found[root] = None
        return list(found)

    def _is_donated(self, root: ir.Value) -> bool:
        return self.graph.argument_attribute(ir.BlockArgument(root).arg_number, "kiln.donated") is not None

    def _take(self, root: ir.Value, result: ir.Value) -> bool:
        """Gives the memory of `root` to `result`, unless a tensor cannot be both."""
        is_argument = isinstance(root.owner, ir.Block)
        is_aten = not is_argument and name_of(root.owner) == "kiln.aten"
        memory = self.memory.get(root) or _Memory(root, not is_argument and (root in self.owned or is_aten))
        if isinstance(memory.first.owner, ir.Block) and result in self.returned:
            return False  # autograd refers to the argument while the graph runs
        first, mine = self.graph.strided_layout(memory.first), self.graph.strided_layout(result)
        plain = memory.is_plain and first.shape == mine.shape and first.strides == mine.strides
        owned = memory.is_owned or result in self.owned
        if owned and not self._is_exact(result, first.strides):
            return False
        if not plain and result in self.whole:
            return False
        if not plain and not _same_count(first.shape, mine.shape):
            return False  # a part of it: the whole would be kept for longer
        self.memory[result] = _Memory(memory.first, owned, plain)
        return True

    def _is_exact(self, result: ir.Value, strides: Exprs) -> bool:
        """Whether a result, if it is returned, has these very strides, and an element type that names its dtype."""
        if not isinstance(ir.RankedTensorType(result.type).element_type, ir.FloatType):
            return False
        for number in self.returned.get(result, ()):
            attribute = self.graph.result_attribute(number, "kiln.strides")
            if isinstance(attribute, ir.AffineMapAttr) and self.graph.function_map(attribute) != strides:
                return False
        return True

    def _target(self, step: int, result: ir.Value) -> ir.Value | None:
        """The argument that eager copies `result` to, if nothing reads it after `step`."""
        numbers = self.returned.get(result, [])
        if len(numbers) != 1 or self.graph.returned[numbers[0]] != result:
            return None
        attribute = self.graph.result_attribute(numbers[0], "kiln.mutates")
        if attribute is None or self.graph.result_attribute(numbers[0], "kiln.kept") is not None:
            return None
        argument = self.graph.arguments[ir.IntegerAttr(attribute).value]
        if argument in self.held or self.last.get(argument, -1) > step or argument.type != result.type:
            return None
        theirs, mine = self.graph.strided_layout(argument), self.graph.strided_layout(result)
        same = theirs.shape == mine.shape and theirs.strides == mine.strides
        self.last.setdefault(argument, -1)
        return argument if same else None


def _same_count(a: Exprs, b: Exprs) -> bool:
    """Whether tensors of these sizes have equally many elements, as far as sizes are numbers."""
    counts = [[affine.constant_of(e) for e in shape] for shape in (a, b)]
    if any(n is None for shape in counts for n in shape):
        return a == b
    return math.prod(n or 0 for n in counts[0]) == math.prod(n or 0 for n in counts[1])


def _is_fresh(op: ir.Operation) -> bool:
    return ir.StringAttr(op.attributes["op"]).value in _FRESH
