# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the values of a module are in its plan: symbols, buffers, constants, expressions of sizes."""

import dataclasses
from collections.abc import Container, Sequence
from typing import Any, Protocol

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.errors import InvalidIRError
from kiln.lowering.host.elements import dense_bytes, dtype_name, item_bytes
from kiln.lowering.host.layout import HostGraph, add, constant, contiguous_strides, is_constant, mul
from kiln.lowering.host.sharing import shared_memory
from kiln.runtime.plan import Buffer, Constant, Expr, Plan, Symbol

__all__ = ["InputSource", "PlanValues"]


class InputSource(Protocol):
    """Where an argument of the function comes from; `kiln.frontend.import_.fx_import.InputSpec` is one.

    kind: "tensor" or "int" (graph input `index`), "size" or "stride" (of graph input `index` along `dim`), "derived"
    (`expr`, a sympy expression or its text), "constant" (`name`).
    """

    @property
    def kind(self) -> str:
        """What the input is: a tensor, an int or a constant."""
        ...

    @property
    def name(self) -> str:
        """Its name in PyTorch's graph."""
        ...

    @property
    def index(self) -> int:
        """Its position among the graph's inputs."""
        ...

    @property
    def dim(self) -> int:
        """The dim of the tensor that shows a size."""
        ...

    @property
    def expr(self) -> Any:
        """The expression that the value must equal, over other inputs' symbols."""


class PlanValues:
    """Makes the symbols, buffers and constants of `plan` as they are asked for.

    library: results that no ATen call makes, though an op says so: the GPU's library is called instead.
    owned: values that must be tensors of their own.
    """

    library: Any = ()
    owned: Container[ir.Value] = ()

    def __init__(self, graph: HostGraph, inputs: Sequence[InputSource] | None, plan: Plan) -> None:
        self.graph, self.inputs, self.plan = graph, inputs, plan
        self.buffers: dict[ir.Value, int] = {}
        self.memory = shared_memory(graph)
        self.epochs = self._symbol_epochs()
        self.step_of: dict[int, int] = {}  # symbol -> step that makes it known

    def expr(self, e: ir.AffineExpr) -> Expr:
        """An expression as plans hold it: a number, or its text over the plan's symbols."""
        value = affine.constant_of(e)
        return str(e) if value is None else value

    def _epoch(self, exprs: Sequence[ir.AffineExpr]) -> int:
        used: set[int] = set()
        for e in exprs:
            used |= affine.symbols_in(e)
        return max((self.epochs[i] for i in used), default=0)

    # -- symbols ---------------------------------------------------------------------------------

    def _symbol_epochs(self) -> list[int]:
        """Epoch in which each symbol is known: 0, or one past that of the kiln.aten that returns it."""
        epochs: dict[ir.Value, int] = {a: 0 for a in self.graph.arguments if a in self.graph.position}
        epoch = 0
        for op in self.graph.operations:
            indices = [r for r in op.operation.results if isinstance(r.type, ir.IndexType)]
            if name_of(op) == "kiln.aten" and indices:
                epoch += 1
                epochs.update(dict.fromkeys(indices, epoch))
        return [epochs[v] for v in self.graph.symbols]

    def _symbols(self, num_inputs: int | None) -> None:
        graph, plan = self.graph, self.plan
        counted = 0
        for i, argument in enumerate(graph.arguments):
            source = self.inputs[i] if self.inputs is not None else None
            is_symbol = argument in graph.position
            if source is None:
                counted += graph.argument_attribute(i, "kiln.constant") is None
            elif source.kind in ("tensor", "int"):
                counted = max(counted, source.index + 1)
            if is_symbol:
                plan.symbols.append(self._symbol(i, source))
        plan.num_inputs = counted if num_inputs is None else num_inputs
        for position in range(len(plan.symbols), len(graph.symbols)):
            plan.symbols.append(Symbol(graph.symbol_name(position), "aten", input=self.step_of[position]))

    def _symbol(self, argument: int, source: InputSource | None) -> Symbol:
        name = self.graph.symbol_name(self.graph.position[self.graph.arguments[argument]])
        if source is None:
            return Symbol(name, "input", input=self._input_index(argument))
        if source.kind == "derived":
            return Symbol(name, "derived", expr=str(source.expr))
        kind = "input" if source.kind == "int" else source.kind
        return Symbol(name, kind, input=source.index, dim=source.dim)

    def _input_index(self, argument: int) -> int:
        """Graph input that an argument is, without `inputs`: arguments in order, constants left out."""
        earlier = range(argument)
        return sum(self.graph.argument_attribute(i, "kiln.constant") is None for i in earlier)

    # -- buffers -----------------------------------------------------------------------------------

    def _values_with_tensors(self) -> set[ir.Value]:
        """Roots that must be tensors of their own: returned ones and operands of ATen calls."""
        values = [v for v in self.graph.returned if isinstance(v.type, ir.RankedTensorType)]
        for op in self.graph.operations:
            if name_of(op) == "kiln.aten" and not any(r in self.library for r in op.operation.results):
                values += [v for v in op.operation.operands if isinstance(v.type, ir.RankedTensorType)]
        return {self._memory_of(v) for v in values}

    def _memory_of(self, value: ir.Value) -> ir.Value:
        """The value that owns the memory that a tensor lies in."""
        root = self.graph.strided_layout(value).root
        return self.memory.get(root, root)

    def _buffer(self, root: ir.Value, dtype: str = "") -> int:
        """The buffer of a root value, made on first use."""
        first = self.memory.get(root, root)
        if first not in self.buffers:
            self.buffers[first] = len(self.plan.buffers)
            self.plan.buffers.append(self._new_buffer(first, dtype))
        return self.buffers[first]

    def _new_buffer(self, root: ir.Value, dtype: str) -> Buffer:
        layout = self.graph.strided_layout(root)
        dtype = self._given_dtype(root) or dtype or self._returned_dtype(root)
        kind, index = self._kind(root, dtype)
        if isinstance(root.owner, (ir.Operation, ir.OpView)) and name_of(root.owner) == "kiln.pack":
            elements = self.plan.constants[index].elements
            size = elements * item_bytes(root.type)
            return Buffer(kind, dtype_name(root.type), (elements,), (1,), size, index=index)
        strides = self._returned_strides(root) or layout.strides
        size = constant(item_bytes(root.type))
        if strides == contiguous_strides(layout.shape) or any(is_constant(n, 0) for n in layout.shape):
            for n in layout.shape:
                size = mul(size, n)
        else:
            last = constant(1)
            for n, step in zip(layout.shape, strides, strict=True):
                last = add(last, mul(add(n, constant(-1)), step))
            size = mul(size, last)
        return Buffer(
            kind,
            dtype or dtype_name(root.type),
            tuple(self.expr(e) for e in layout.shape),
            tuple(self.expr(e) for e in strides),
            self.expr(size),
            index=index,
            epoch=self._epoch((*layout.shape, *strides)),
        )

    def _kind(self, root: ir.Value, dtype: str = "") -> tuple[str, int]:
        if isinstance(root.owner, ir.Block):
            number = ir.BlockArgument(root).arg_number
            constant = self.graph.argument_attribute(number, "kiln.constant")
            if constant is not None:
                self.plan.constants.append(Constant(ir.StringAttr(constant).value))
                return "constant", len(self.plan.constants) - 1
            if self.inputs is None:
                return "input", self._input_index(number)
            source = self.inputs[number]
            if source.kind == "constant":
                self.plan.constants.append(Constant(source.name))
                return "constant", len(self.plan.constants) - 1
            return "input", source.index
        op = root.owner.operation
        if name_of(op) == "kiln.aten" and root not in self.library:
            return "aten", -1
        if op.name == "arith.constant":
            return "constant", self._constant_data(op, dtype)
        if name_of(op) == "kiln.pack":
            return "constant", self._packed_constant(op)
        return ("tensor" if root in self.owned or op.name == "kiln.empty" else "workspace"), -1

    def _packed_constant(self, op: ir.Operation) -> int:
        """A constant that the executor packs when it is made."""
        kind, index = self._kind(op.operands[0])
        if kind != "constant":
            raise InvalidIRError("kiln.pack of a tensor that is no constant", str(op.location))
        map_ = ir.AffineMapAttr(op.attributes["layout"]).value
        symbols = {i: ir.AffineExpr.get_symbol(i) for i in range(map_.n_dims)}
        layout = str(affine.substitute(map_.results[0], symbols))
        elements = ir.IntegerAttr(op.attributes["elements"]).value
        self.plan.constants[index] = dataclasses.replace(self.plan.constants[index], layout=layout, elements=elements)
        return index

    def _constant_data(self, op: ir.Operation, dtype: str) -> int:
        """Stores the elements of a dense arith.constant in the plan, as `dtype` where its type does not tell."""
        type_ = ir.RankedTensorType(op.results[0].type)
        self.plan.blobs.append(dense_bytes(op.attributes["value"], type_))
        shape = tuple(type_.shape)
        self.plan.constants.append(Constant("", dtype or dtype_name(type_), shape, len(self.plan.blobs) - 1))
        return len(self.plan.constants) - 1

    def _returned_strides(self, root: ir.Value) -> tuple[ir.AffineExpr, ...] | None:
        """The exact strides asked for where what kernels write is returned as it is (sizes of 1 included)."""
        if isinstance(root.owner, ir.Block) or not (name_of(root.owner) == "kiln.launch" or root in self.library):
            return None
        for i, value in enumerate(self.graph.returned):
            is_whole = self.memory.get(value, value) == root
            attribute = self.graph.result_attribute(i, "kiln.strides") if is_whole else None
            if isinstance(attribute, ir.AffineMapAttr):
                wanted = self.graph.function_map(attribute)
                if wanted is not None and self.graph.strided_layout(root).same_strides(wanted):
                    return wanted
        return None

    def _given_dtype(self, root: ir.Value) -> str:
        """The dtype of an input or of a call's result, which is PyTorch's whatever its readers take it for."""
        if isinstance(root.owner, ir.Block):
            mark = self.graph.argument_attribute(ir.BlockArgument(root).arg_number, "kiln.dtype")
            return ir.StringAttr(mark).value if mark is not None else dtype_name(root.type)
        op = root.owner.operation
        if name_of(op) != "kiln.aten" or root in self.library:
            return ""
        marks = list(op.attributes["result_dtypes"]) if "result_dtypes" in op.attributes else []
        return ir.StringAttr(marks[ir.OpResult(root).result_number]).value if marks else dtype_name(root.type)

    def _returned_dtype(self, root: ir.Value) -> str:
        """The dtype that PyTorch gives a returned value, where its element type does not tell (unsigned integers)."""
        for i, value in enumerate(self.graph.returned):
            attribute = self.graph.result_attribute(i, "kiln.dtype")
            if attribute is not None and self._memory_of(value) == root:
                return ir.StringAttr(attribute).value
        return ""
