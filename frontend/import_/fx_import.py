# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""From AOTAutograd's FX graph to ``func.func @main`` in the torch dialect (stage ``.torch.mlir``).

The function takes the graph's tensors and symbols and returns its distinct computed tensors. What needs no code is
kept beside the module, as :class:`OutputSpec`: outputs that are inputs, None, numbers, repeated outputs.

Argument order: the tensors and sizes the graph itself takes, in its order; symbols bound to a size or stride of an
argument; derived symbols; constants. Attributes of an argument: ``kiln.shape`` and ``kiln.strides`` (tensors),
``kiln.symbol`` (``!torch.int``), ``kiln.constant`` (lifted attributes; ``kiln.value``, the elements of a small one),
``kiln.donated`` (tensors whose memory may be written to once they have been read).
Attributes of a result: ``kiln.strides``, and ``kiln.mutates = i`` where the result must be written to argument ``i``
after everything else has read it, with ``kiln.kept`` where it is an output as well, or written to several.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import sympy
import torch
from torch.fx import GraphModule, Node
from torch_mlir import ir
from torch_mlir.dialects import func
from torch_mlir.extras.fx_importer import FxImporter

from kiln.frontend.calls.boxed_graph import USER_OUTPUTS
from kiln.frontend.calls.signature import FoundSymbol, InputSpec, OutputSpec
from kiln.frontend.donated import DONATED
from kiln.frontend.import_.argument_names import NAMES, with_names
from kiln.frontend.import_.effects import is_token
from kiln.frontend.import_.fx_types import (
    check_tensor,
    check_types,
    expressions,
    graph_location,
    shape_map,
    small_value,
    stride_map,
    torch_type,
)
from kiln.frontend.import_.fx_values import (
    ImportUnsupported,
    is_only_compared,
    nested_attribute,
    node_value,
    tensor_leaves,
    value_leaves,
)
from kiln.frontend.import_.graph_results import GraphResults
from kiln.frontend.import_.hints import rounded_hint, size_hints
from kiln.frontend.import_.limits import LIMITS
from kiln.frontend.import_.node_importer import KilnNodeImporter
from kiln.frontend.import_.op_forms import new_symbols
from kiln.frontend.import_.placement import Placement
from kiln.frontend.import_.random_state import is_saving_state
from kiln.frontend.import_.semi_affine import NotAffine
from kiln.frontend.import_.signs import NEGATIVE, guard_signs
from kiln.frontend.import_.storage_views import bases_of_results
from kiln.frontend.import_.symbols import SymbolSpace, as_expr

__all__ = ["ImportUnsupported", "ImportedGraph", "InputSpec", "OutputSpec", "import_graph"]


@dataclass
class ImportedGraph:
    """A module with ``@main``, and how to call it in place of the FX graph.

    ``mutations``: pairs (graph input, result) to copy after the call, where the result is not that memory already.
    ``result_storages``: per result of ``@main``, a number that is equal for results that are views of one memory in
    eager; it is negative, ``-1 - i``, for a view of graph input ``i``.
    ``found``: see :class:`Signature`.
    """

    module: ir.Module
    inputs: list[InputSpec]
    outputs: list[OutputSpec]
    symbols: list[str]
    constants: dict[str, torch.Tensor]
    mutations: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    result_storages: list[int] = field(default_factory=list[int])
    opaque: list[str] = field(default_factory=list[str])
    found: list[FoundSymbol] = field(default_factory=list[FoundSymbol])


def import_graph(gm: GraphModule, context: ir.Context, func_name: str = "main") -> ImportedGraph:
    """Import ``gm``, whose nodes carry ``meta["val"]``. The graph is not modified.

    Raises:
        ImportUnsupported: something that not even an opaque call can express, with the reason.
    """
    with context, ir.Location.unknown(context):
        try:
            return _Import(gm, context).run(func_name)
        except NotAffine as error:
            raise ImportUnsupported(f"the size {error.args[0]} is not an integer expression of sizes") from error


class _Import:
    def __init__(self, gm: GraphModule, context: ir.Context) -> None:
        self.gm, self.context = gm, context
        self.nodes = list(gm.graph.nodes)
        self.placeholders = [node for node in self.nodes if node.op == "placeholder"]
        self.is_backward = any(node.name.startswith("tangents") for node in self.placeholders)
        self.placement = Placement(gm)
        self.space = SymbolSpace()
        self.hints = size_hints(gm)
        self.inputs: list[InputSpec] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.arg_types: list[ir.Type] = []
        self.arg_attrs: list[dict[str, ir.Attribute]] = []
        self.arg_nodes: list[Node | str | None] = []
        # Copies into inputs at the graph's end: node of the copy -> (graph input, node copied from).
        self.copies: dict[Node, tuple[int, Node]] = {}

    def run(self, func_name: str) -> ImportedGraph:
        self._collect()
        self._bind_arguments()
        module = ir.Module.create(ir.Location.unknown(self.context))
        importer = FxImporter(module=None, context=self.context, config_check=False)
        results = GraphResults(self.nodes, self.copies, self.space)
        with ir.InsertionPoint(module.body):
            function = func.FuncOp(
                func_name, ir.FunctionType.get(self.arg_types, []), loc=graph_location(self.nodes, self.context)
            )
        block = function.add_entry_block(self._argument_locations())
        nodes = KilnNodeImporter(importer, self.context, importer._cc, block)
        nodes.space, nodes.placement = self.space, self.placement
        self._bind_block(nodes, block)
        nodes.run((node for node in self.nodes if node not in self.copies), self._shared_by_results())
        with ir.InsertionPoint(block):
            returned = [nodes.resolve_node_value(node) for node in results.computed]
            func.ReturnOp(returned)
        self._finish(function, returned, results)
        return ImportedGraph(
            module,
            self.inputs,
            results.outputs,
            self.space.names,
            self.constants,
            results.mutations,
            results.storages(),
            nodes.opaque,
            results.found_symbols(),
        )

    # -- symbols and arguments -----------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Check every value, register every symbol, find the copies into inputs."""
        self.space.negative = frozenset(self.gm.meta[NEGATIVE] if NEGATIVE in self.gm.meta else guard_signs(self.gm))
        self.space.given = frozenset(name for node in self.placeholders for name in new_symbols((node_value(node),)))
        position = {node: i for i, node in enumerate(self.placeholders)}
        for node in self.nodes:
            if node.op == "output":
                continue
            if node.target is torch.ops.aten.copy_.default and node.args[0] in position:
                destination, source = node.args[0], node.args[1]
                assert isinstance(destination, Node) and isinstance(source, Node)
                self.copies[node] = (position[destination], source)
            check_types(node)
            for leaf in value_leaves(node_value(node)):
                if isinstance(leaf, torch.Tensor):
                    check_tensor(node.name, leaf, is_input=node.op == "placeholder" or node in self.copies)
                    for expr in expressions(leaf) if leaf._has_symbolic_sizes_strides else ():
                        self.space.collect(expr)
                elif isinstance(leaf, torch.SymInt) and (node.users or node.op != "placeholder"):
                    expr: Any = cast(Any, leaf.node).expr
                    for part in expr.free_symbols if is_only_compared(node) else (expr,):
                        self.space.collect(part)
        self.space.freeze()
        derived_unbacked = [
            text
            for text, expr in self.space.derived.items()
            if any(self.space.is_found(symbol) for symbol in expr.free_symbols)
        ]
        if derived_unbacked:
            raise ImportUnsupported(f"the size {derived_unbacked[0]} depends on data and is not affine")

    def _bind_arguments(self) -> None:
        bound: set[str] = set()
        for index, node in enumerate(self.placeholders):
            value = node_value(node)
            if is_token(node):
                continue
            if isinstance(value, torch.Tensor):
                spec = InputSpec("tensor", node.name, index, is_lazy=self._is_lazy(node, value))
                self._add_tensor(spec, node, value, {"kiln.donated": ir.UnitAttr.get()} if DONATED in node.meta else {})
            elif isinstance(value, torch.SymInt):
                name = str(cast(Any, value.node).expr)
                if value.node.expr.is_Symbol and name not in bound and name in self.space.base:
                    bound.add(name)
                    self._add_symbol(InputSpec("int", name, index), name)
            elif node.users and not isinstance(value, (int, float, str, type(None))):
                raise ImportUnsupported(f"input {node.name} is a {type(value).__name__}")
        for name in self.space.base:
            if name not in bound:
                self._add_symbol(self._find_symbol(name), name)
        for text, expr in self.space.derived.items():
            self._add_symbol(InputSpec("derived", text, expr=expr), text)
        for node in self.nodes:
            if node.op == "get_attr":
                tensor = nested_attribute(self.gm, str(node.target))
                if isinstance(tensor, torch.Tensor):
                    self.constants[str(node.target)] = tensor
                    spec = InputSpec("constant", str(node.target))
                    attrs = {"kiln.constant": ir.StringAttr.get(str(node.target)), **small_value(tensor)}
                    self._add_tensor(spec, node, tensor, attrs)

    def _shared_by_results(self) -> set[Node]:
        """Computed tensors that need memory of their own, as several of the model's results are views of each."""
        count = self.gm.meta.get(USER_OUTPUTS, 0) if self.space.base else 0
        return bases_of_results(self.nodes[-1].args[0][:count]) if count else set()

    def _argument_locations(self) -> list[ir.Location]:
        """The name that the model has for each argument, for those who read the IR."""
        given = self.gm.meta.get(NAMES)
        names = with_names(self.gm, given) if given is not None else {}
        texts = [names.get(what, "") if isinstance(what, Node) else what or "" for what in self.arg_nodes]
        return [ir.Location.name(text) if text else ir.Location.unknown() for text in texts]

    def _is_lazy(self, node: Node, value: torch.Tensor) -> bool:
        """Whether a call may hand in a view that is conjugated or negated when it is read.

        Dynamo guards that of the inputs of forward graphs. What autograd hands to a backward graph is not what it was
        traced with: gradients, and saved complex tensors.
        """
        if value.is_conj() or value.is_neg():
            return True
        return self.is_backward and (node.name.startswith("tangents") or value.is_complex())

    def _add_tensor(self, spec: InputSpec, node: Node, tensor: torch.Tensor, attrs: dict[str, ir.Attribute]) -> None:
        check_tensor(node.name, tensor, is_input=spec.kind == "tensor")
        self.inputs.append(spec)
        self.arg_nodes.append(node)
        self.arg_types.append(torch_type(tensor, self.context))
        layout = {"kiln.shape": shape_map(self.space, tensor), "kiln.strides": stride_map(self.space, tensor)}
        self.arg_attrs.append({**layout, **attrs})

    def _add_symbol(self, spec: InputSpec, name: str) -> None:
        self.inputs.append(spec)
        self.arg_nodes.append(name)
        self.arg_types.append(torch_type(0, self.context))
        attrs: dict[str, ir.Attribute] = {"kiln.symbol": ir.StringAttr.get(name)}
        hint = self._hint(spec, name)
        if hint is not None:
            attrs["kiln.hint"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), hint)
        self.arg_attrs.append(attrs)

    def _hint(self, spec: InputSpec, name: str) -> int | None:
        """About what a symbol was when the graph was traced, if that is known.

        Sizes that are rounded, each by itself, may contradict each other: then a divisor may be 0, or a size negative.
        """
        if spec.kind != "derived":
            return self.hints.get(name)
        expr: Any = spec.expr
        try:
            known = expr.subs({s: self.hints[str(s)] for s in expr.free_symbols if str(s) in self.hints})
        except ZeroDivisionError:
            return None
        return rounded_hint(int(known)) if known.is_Integer and known >= 0 else None

    def _find_symbol(self, name: str) -> InputSpec:
        """A size or stride of an input that is exactly this symbol."""
        for kind in ("size", "stride"):
            for index, node in enumerate(self.placeholders):
                value = node_value(node)
                if not isinstance(value, torch.Tensor):
                    continue
                for dim, size in enumerate(value.size() if kind == "size" else value.stride()):
                    if str(as_expr(size)) == name:
                        return InputSpec(kind, name, index, dim)
        return self._find_constant(name)

    def _find_constant(self, name: str) -> InputSpec:
        """The size of a random generator's state, which PyTorch has a symbol for where sizes are dynamic: no input has
        it, and it is the same in each call. Dropout in a checkpointed region saves such a state.
        """
        for node in self.nodes:
            for tensor in tensor_leaves(node_value(node)) if is_saving_state(node) else ():
                for size in tensor.size():
                    if (
                        isinstance(size, torch.SymInt)
                        and str(cast(Any, size.node).expr) == name
                        and size.node.has_hint()
                    ):
                        return InputSpec("derived", name, expr=sympy.Integer(size.node.hint))
        raise ImportUnsupported(f"no input gives the value of symbol {name}")

    def _bind_block(self, nodes: KilnNodeImporter, block: ir.Block) -> None:
        for argument, what in zip(block.arguments, self.arg_nodes, strict=True):
            if isinstance(what, Node):
                nodes._v[(what, 0)] = argument
            elif isinstance(what, str):
                nodes.symbols[what] = argument

    def _finish(self, function: func.FuncOp, returned: list[ir.Value], results: GraphResults) -> None:
        """Function type, argument and result attributes, and a last check of the whole function."""
        function_type = ir.FunctionType.get(self.arg_types, [value.type for value in returned])
        function.attributes["function_type"] = ir.TypeAttr.get(function_type)
        limits = [*self._limits()]
        if limits:
            function.attributes[LIMITS] = ir.ArrayAttr.get(limits)
            function.attributes["kiln.limit_symbols"] = ir.ArrayAttr.get(
                [ir.StringAttr.get(n) for n in self.space.names]
            )
        function.attributes["kiln.symbols"] = ir.ArrayAttr.get([ir.StringAttr.get(n) for n in self.space.names])
        function.arg_attrs = ir.ArrayAttr.get([ir.DictAttr.get(attrs) for attrs in self.arg_attrs])
        argument_of = {spec.index: i for i, spec in enumerate(self.inputs) if spec.kind == "tensor"}
        attributes: list[ir.Attribute] = []
        for index, node in enumerate(results.computed):
            attrs: dict[str, ir.Attribute] = {}
            for tensor in tensor_leaves(node_value(node)):
                attrs["kiln.strides"] = stride_map(self.space, tensor)
            for target, result in results.mutations:
                # What is written to memory of another device is copied there after the call.
                if result == index and self._is_here(self.placeholders[target]) and self._is_here(node):
                    if "kiln.mutates" in attrs or any(o.kind == "result" and o.index == index for o in results.outputs):
                        attrs["kiln.kept"] = ir.UnitAttr.get()
                    attrs["kiln.mutates"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), argument_of[target])
            attributes.append(ir.DictAttr.get(attrs))
        function.attributes["res_attrs"] = ir.ArrayAttr.get(attributes)
        try:
            function.operation.verify()
        except ir.MLIRError as error:
            raise ImportUnsupported(f"the imported function does not verify: {str(error).splitlines()[-1]}") from error

    def _is_here(self, node: Node) -> bool:
        """Whether a node's tensors are on the device that the graph is compiled for."""
        return not any(self.placement.is_elsewhere(tensor) for tensor in tensor_leaves(node_value(node)))

    def _limits(self) -> Iterator[ir.AffineMapAttr]:
        """Expressions over the symbols that are below 2^31 in every call, for `schedule-gpu`."""
        for expr in self.gm.meta.get(LIMITS, ()):
            with contextlib.suppress(NotAffine):
                yield self.space.map([expr])
