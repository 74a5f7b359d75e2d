# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Import of the nodes of one FX graph, on top of torch-mlir's ``GraphNodeImporter``.

What differs from torch-mlir's own: integers that depend on sizes are written from their expression, not op by op;
every op carries strides and symbolic shapes; a node the torch dialect cannot express becomes one opaque op; the FX
graph is never modified.
"""

import operator
from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

import sympy
import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node
from torch.utils._pytree import tree_leaves
from torch_mlir import ir
from torch_mlir.extras import fx_importer as tm
from typing_extensions import override

from kiln.dialects.rounding import EXACT
from kiln.dialects.walk import BlockTail
from kiln.frontend.distances import DISTANCE
from kiln.frontend.import_.effects import is_effect, is_token
from kiln.frontend.import_.fx_types import attach_layout, dtype_code, node_location, torch_type
from kiln.frontend.import_.fx_values import ImportUnsupported, is_unbacked, node_value, value_leaves
from kiln.frontend.import_.op_forms import (
    LIST_KINDS,
    SIZE_HINTS,
    SIZE_READS,
    leaf_symbols,
    new_symbols,
    parameters,
)
from kiln.frontend.import_.opaque import register_check, wrap_node
from kiln.frontend.import_.operand_strides import attach_operand_strides, needs_strides
from kiln.frontend.import_.placement import Placement, known_number
from kiln.frontend.import_.scalar_overloads import prefer_scalar_overload
from kiln.frontend.import_.storage_views import COUNTING, bases_of_other_types, counted_in_tensor
from kiln.frontend.import_.symbolic_numbers import SymbolicNumbers
from kiln.frontend.recomputed import ROUNDED
from kiln.passes.torch_to_kiln.torch_values import ELSEWHERE
from kiln.runtime.aten_call import resolve_op
from kiln.runtime.numbers import NUMBER_ON
from kiln.runtime.strided import OWN

__all__ = ["KilnNodeImporter"]

aten = torch.ops.aten


class KilnNodeImporter(SymbolicNumbers):
    """Imports nodes into one block. ``tensors`` and ``symbols`` hold what the function's arguments bind."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._tail = BlockTail(self._b)
        self.placement: Placement | None = None
        self.opaque: list[str] = []
        self._numbers: dict[Node, ir.Value] = {}  # tensors elsewhere, as tensors of the graph's device
        self._as_numbers, self._is_call = set[Node](), False  # of the op at hand: see _place
        self._inner_lists: dict[Node, tuple[Node, int]] = {}  # a list or tuple that is member i of a node's result
        self._elements: dict[tuple[Node, int, int], ir.Value] = {}  # and its elements

    def run(self, nodes: Iterable[Node], own: Collection[Node] = ()) -> None:
        """Import all computing nodes (placeholders and constants are bound before). own: those that need memory of
        their own, besides those that are viewed as another type.

        Raises:
            ImportUnsupported: a node that even an opaque call cannot express.
        """
        nodes = [node for node in nodes if node.op == "call_function"]
        own = bases_of_other_types(nodes).union(own)
        for node in nodes:
            loc = node_location(node, self._c)
            with loc, ir.InsertionPoint(self._b):
                self._import_node(node, loc)
                if node in own:
                    self._emit_call(loc, node, resolve_op(OWN), [node_value(node)], (node,))

    def _import_node(self, node: Node, loc: ir.Location) -> None:
        value = node_value(node)
        target = node.target
        if is_token(node):
            return
        self._place(node, loc)
        if is_effect(node):
            self._import_effect(loc, node)
        elif target is operator.getitem and isinstance(node_value(node.args[0]), (tuple, list)):  # type: ignore[arg-type] - a getitem reads a node
            if not isinstance(value, (torch.Tensor, list, tuple)):
                return  # resolved from its meta value
            self._import_getitem(loc, node)
        elif target in SIZE_HINTS:
            return
        elif target is aten._assert_scalar.default:
            self._import_assert(node, loc)
        elif isinstance(target, OpOverload) and target not in SIZE_READS and self._defines_symbols(node):
            self._import_defining(loc, node, cast(Any, target))
        elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)):
            return  # a scalar of sizes: written where it is used
        elif isinstance(target, OpOverload):
            self._import_or_wrap(loc, node, cast(Any, target))
        elif isinstance(target, HigherOrderOperator) or callable(target):
            self._wrap(loc, node, f"{target} has no op in the torch dialect")
        else:
            raise ImportUnsupported(f"{node.name} calls {target}, which is not callable")

    # -- tensors on another device -------------------------------------------------------------------------------

    def _place(self, node: Node, loc: ir.Location) -> None:
        """Decide for one op which operands are read as numbers, and whether it must be a call."""
        if self.placement is None or not self.placement.is_mixed:
            return
        self._is_call = self.placement.is_call(node)
        self._as_numbers = self.placement.numbers(node)
        for operand in self._as_numbers:
            if operand not in self._numbers:
                self._numbers[operand] = self._number_on_device(operand, loc)

    def _number_on_device(self, node: Node, loc: ir.Location) -> ir.Value:
        """A CPU tensor without dims as one of the graph's device: a literal, or the result of a call."""
        assert self.placement is not None
        value, known = node_value(node), known_number(node)
        device = self._import_literal(self.placement.device)
        if known is not None:
            none, code = self._import_literal(None), self._import_literal(dtype_code(value.dtype))
            shape = self._import_list_argument(loc, [], parameters(aten.full.default)[0][1])
            filling = [shape, self._import_literal(known), code, none, device, none]
            op = self._create(loc, aten.full.default, filling, [value])
        else:
            given = [self.resolve_node_value(node), device]
            op = self._create(loc, resolve_op(NUMBER_ON), given, [value], elsewhere=True)
        attach_layout(op, [value], self.space)
        return op.result

    # -- scalars -------------------------------------------------------------------------------------------------

    @override
    def resolve_node_value(self, node: Node, result_index: int = 0) -> ir.Value:
        if (node, result_index) in self._v:
            return super().resolve_node_value(node, result_index)
        value = node_value(node)
        if isinstance(value, torch.SymInt):
            return self.int_value(value.node.expr)
        if isinstance(value, torch.SymFloat):
            return self.float_value(value.node.expr)
        if value is None or isinstance(value, (bool, int, float)):
            return self._import_literal(value)
        raise ImportUnsupported(f"{node.name} ({type(value).__name__}) has no value in the torch dialect")

    def _import_assert(self, node: Node, loc: ir.Location) -> None:
        """A check on sizes: what the inputs decide, guards have checked; what data decides is checked by an op."""
        condition = node_value(node.args[0]) if isinstance(node.args[0], Node) else node.args[0]
        message = str(node.args[1])
        if not isinstance(condition, torch.SymBool):
            if not condition:
                raise ImportUnsupported(f"{node.name} always fails: {message}")
            return
        expr: Any = cast(Any, condition.node).expr
        names: list[str] = sorted(symbol.name for symbol in expr.free_symbols)
        if not any(is_unbacked(symbol) for symbol in expr.free_symbols):
            return
        if isinstance(expr, sympy.Ge) and expr.args[0].is_Symbol and expr.args[1] == 0:
            return  # a size is never negative
        operands = [self.int_value(sympy.Symbol(name, integer=True)) for name in names]
        self._create(loc, register_check(expr, names, message), operands, [])

    # -- values known only at run time ---------------------------------------------------------------------------

    def _defines_symbols(self, node: Node) -> bool:
        """Whether ``node`` is the first to show some unbacked symbol, as a size or as its own integer result."""
        return any(name not in self.symbols for name in new_symbols(node_value(node)))

    def _import_defining(self, loc: ir.Location, node: Node, target: OpOverload) -> None:
        """An op whose result's size (or whose scalar result) is a new symbol: bind the symbol to a ``!torch.int``."""
        value = node_value(node)
        if isinstance(value, torch.SymFloat):
            raise ImportUnsupported(f"{node.name} reads a {type(value).__name__} out of a tensor")
        # A boolean is read as the integer that its symbol is.
        types: list[Any] = (
            [0]
            if isinstance(value, torch.SymBool)
            else list(cast(Sequence[Any], value))
            if isinstance(value, tuple)
            else [value]
        )
        results = self._emit_call(loc, node, target, types)
        if isinstance(value, torch.SymBool):
            del self._v[(node, 0)]
        op = results[0].owner
        bound: list[str] = []
        places: list[int] = []
        for position, leaf in enumerate(value_leaves(value)):
            for dim, name in leaf_symbols(leaf):
                if name in self.symbols:
                    continue
                result = results[position]
                if dim is not None:
                    operands = [result, self._import_literal(dim)]
                    types = [self._cc.torch_int_type]
                    result = ir.Operation.create("torch.aten.size.int", results=types, operands=operands).result
                self.symbols[name] = result
                bound.append(name)
                places.append(position)
        op.attributes["kiln.unbacked"] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in bound])
        op.attributes["kiln.unbacked_results"] = ir.DenseI64ArrayAttr.get(places)

    # -- ops -----------------------------------------------------------------------------------------------------

    def _import_effect(self, loc: ir.Location, node: Node) -> None:
        """``with_effects(token, op, *args)`` as a call of ``op``; its results are members 1, 2, ... of ``node``."""
        _, target, *args = node.args
        if not isinstance(target, OpOverload):
            raise ImportUnsupported(f"{node.name}: effects of {target}")
        returns = len(target._schema.returns)
        values = list(node_value(node))[1 : 1 + returns]
        results = self._emit_call(loc, node, target, values, tuple(args))
        for index in reversed(range(len(results))):
            self._v[(node, index + 1)] = results[index]
        self._multi_result_nodes.add(node)

    def _import_or_wrap(self, loc: ir.Location, node: Node, target: OpOverload) -> None:
        value = node_value(node)
        returns = len(target._schema.returns)
        if returns > 1 and any(isinstance(member, (tuple, list)) for member in value):
            self._wrap(loc, node, "a list among several results")
            return
        values = [] if returns == 0 else [value] if returns == 1 else list(value)
        target, args = counted_in_tensor(node, target)
        mark = self._tail.mark()
        try:
            self._emit_call(loc, node, target, values, args)
        except (ImportUnsupported, TypeError, AssertionError, KeyError, RuntimeError, ValueError) as error:
            # The importer's own lookups raise all of these for arguments it has no form for.
            if node.target in COUNTING:
                raise ImportUnsupported(f"{node.name} counts in memory: {error}") from error
            self._tail.erase_behind(mark)
            self._ints.clear()  # some were among the erased ops
            self._wrap(loc, node, str(error))

    def _emit_call(
        self,
        loc: ir.Location,
        node: Node,
        target: OpOverload,
        values: Sequence[Any],
        args: tuple[Any, ...] | None = None,
    ) -> Sequence[ir.Value]:
        """Emit ``target`` for ``node`` with the node's keyword arguments and ``args`` (by default the node's own)."""
        args = node.args if args is None else args
        target = prefer_scalar_overload(target, args)
        operands: list[ir.Value] = []
        for position, (name, type_, default) in enumerate(parameters(target)):
            arg = args[position] if position < len(args) else node.kwargs.get(name, default)
            operands.append(self._operand(loc, arg, type_))
        op = self._create(loc, target, operands, values, elsewhere=self._is_call)
        attach_layout(op, values, self.space)
        if ROUNDED in node.meta:
            op.attributes["kiln.rounded"] = ir.UnitAttr.get()
        if DISTANCE in node.meta:
            op.attributes[EXACT] = ir.UnitAttr.get()
        if needs_strides(target):
            nodes = [a for a in tree_leaves((args, node.kwargs)) if isinstance(a, Node)]
            attach_operand_strides(op, self._tensors(nodes), self.space)
        results = list(op.results)
        if len(values) > 1:
            self._multi_result_nodes.add(node)
        for index, result in enumerate(results):
            self._v[(node, index)] = result
        return results

    def _tensors(self, nodes: Iterable[Node]) -> dict[ir.Value, torch.Tensor]:
        """Eager's tensors by the values that stand for them."""
        found = ((node, node_value(node)) for node in nodes)
        return {self.resolve_node_value(node): value for node, value in found if isinstance(value, torch.Tensor)}

    def _create(
        self,
        loc: ir.Location,
        target: OpOverload,
        operands: list[ir.Value],
        values: Sequence[Any],
        *,
        elsewhere: bool = False,
    ) -> ir.Operation:
        """A registered torch op where it verifies, else ``torch.operator``; ``elsewhere``: of a name that no pass
        knows, for a call that stays one.
        """
        name = tm._get_mlir_op_name_for_schema(target._schema)
        name = ELSEWHERE + name.removeprefix("torch.") if elsewhere else name
        types = [torch_type(value, self._c) for value in values]
        # Ops that write to an operand are modelled on non-value tensors; here every tensor is a value.
        if self._c.is_registered_operation(name) and not target._schema.is_mutable:
            op = ir.Operation.create(name, results=types, operands=operands, loc=loc)
            try:
                op.verify()
                return op
            except ir.MLIRError:
                op.erase()
        return ir.Operation.create(
            "torch.operator", attributes={"name": ir.StringAttr.get(name)}, results=types, operands=operands, loc=loc
        )

    def _operand(self, loc: ir.Location, arg: Any, expected: Any) -> ir.Value:
        inner: Any = cast(Any, expected).getElementType() if isinstance(expected, torch.OptionalType) else expected
        if isinstance(arg, (list, tuple)):
            return self._import_list_argument(loc, list(cast(Sequence[Any], arg)), expected)
        if isinstance(arg, Node) and arg in self._as_numbers:
            return self._numbers[arg]
        if isinstance(arg, Node) or arg is None:
            return self.resolve_node_value(arg) if isinstance(arg, Node) else self._import_literal(None)
        if isinstance(inner, torch.TensorType) and isinstance(arg, (bool, int, float)):
            if self._is_call:
                raise ImportUnsupported("a number in place of a tensor, which would be one of the graph's device")
            return self._wrapped_number(arg)
        if isinstance(inner, torch.FloatType) and isinstance(arg, (bool, int)):
            arg = float(arg)
        elif isinstance(inner, torch.IntType) and isinstance(arg, bool):
            arg = int(arg)
        if isinstance(arg, torch.dtype):
            arg = dtype_code(arg)
        if isinstance(arg, (bool, int, float, str, torch.device, torch.layout, torch.memory_format)):
            return self._import_literal(arg)
        raise ImportUnsupported(f"an argument of type {type(arg).__name__}")

    def _import_list_argument(self, loc: ir.Location, arg: Any, expected_jit_type: Any) -> ir.Value:
        inner = expected_jit_type
        if isinstance(inner, torch.OptionalType):
            inner = cast(Any, inner).getElementType()
        if not isinstance(inner, torch.ListType):
            raise ImportUnsupported(f"a list where the schema has {expected_jit_type}")
        element: Any = cast(Any, inner).getElementType()
        optional = isinstance(element, torch.OptionalType)
        kind = LIST_KINDS.get(type(cast(object, cast(Any, element).getElementType() if optional else element)))
        if kind is None:
            raise ImportUnsupported(f"a list of {element}")
        operands = [self._operand(loc, item, element) for item in arg]
        text = f"!torch.list<optional<{kind}>>" if optional else f"!torch.list<{kind}>"
        result = ir.Type.parse(text, context=self._c)
        return ir.Operation.create("torch.prim.ListConstruct", results=[result], operands=operands, loc=loc).result

    def _wrapped_number(self, number: bool | int | float) -> ir.Value:
        """A Python number where the schema wants a tensor: 0-dim, of the number's own widest dtype."""
        element = "i1" if isinstance(number, bool) else "si64" if isinstance(number, int) else "f64"
        result = ir.Type.parse(f"!torch.vtensor<[],{element}>", context=self._c)
        operands = [self._import_literal(number)]
        op = ir.Operation.create("torch.prim.NumToTensor.Scalar", results=[result], operands=operands)
        op.attributes["kiln.strides"] = ir.ArrayAttr.get([self.space.map([])])
        return op.result

    def _import_getitem(self, loc: ir.Location, node: Node) -> None:
        source, index = node.args
        assert isinstance(source, Node) and isinstance(index, int)
        if isinstance(node_value(node), (list, tuple)):
            self._inner_lists[node] = (source, index)
            return
        if source in self._inner_lists:
            source, member = self._inner_lists[source]
            self._v[(node, 0)] = self._elements[(source, member, index)]
            return
        if source in self._multi_result_nodes:
            self._v[(node, 0)] = self._v[(source, index)]
            return
        if source not in self._unpack_list_values:
            members = list(node_value(source))
            types = [torch_type(member, self._c) for member in members]
            op = ir.Operation.create("torch.prim.ListUnpack", results=types, operands=[self._v[(source, 0)]], loc=loc)
            attach_layout(op, members, self.space)
            self._unpack_list_values[source] = tuple(op.results)
        self._v[(node, 0)] = self._unpack_list_values[source][index]

    def _wrap(self, loc: ir.Location, node: Node, reason: str) -> None:
        """Call ``node`` as one opaque dispatcher op."""
        overload, inputs, values, positions = wrap_node(node)
        operands = [self.resolve_node_value(arg) for arg in inputs]
        op = self._create(loc, overload, operands, values, elsewhere=self._is_call)
        op.attributes["kiln.opaque"] = ir.StringAttr.get(f"{node.target}: {reason}")
        attach_layout(op, values, self.space)
        attach_operand_strides(op, self._tensors(inputs), self.space)
        self.opaque.append(f"{node.name}: {reason}")
        if isinstance(node_value(node), (tuple, list)):
            self._multi_result_nodes.add(node)
        for index, result in zip(positions, op.results, strict=True):
            if isinstance(index, tuple):
                self._elements[(node, *index)] = result
            else:
                self._v[(node, index)] = result
