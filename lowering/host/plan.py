# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""From a module at the fused (or scheduled) stage to a plan: launch order, buffers, workspace, kernels, ATen calls."""

import dataclasses
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Protocol

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.errors import InvalidIRError
from kiln.lowering.cpu.codegen import KernelObject
from kiln.lowering.host.cuda_launcher import cuda_launcher_object
from kiln.lowering.host.elements import dense_bytes, dtype_name, item_bytes
from kiln.lowering.host.hosting import host_in_tensors
from kiln.lowering.host.kernels import KernelCompiler, KernelSet
from kiln.lowering.host.launcher import launcher_object
from kiln.lowering.host.layout import HostGraph, Layout, add, constant, contiguous_strides, is_constant, mul
from kiln.lowering.host.library_calls import LIBRARY_KERNEL, LibraryProduct, library_product
from kiln.lowering.host.plan_text import plan_text
from kiln.lowering.host.sharing import shared_memory
from kiln.runtime.memory import Interval, assign_offsets
from kiln.runtime.plan import AtenStep, Buffer, Constant, Expr, Launch, Operand, Output, Plan, Pointer, Product, Symbol

__all__ = ["InputSource", "build_plan"]

_ALIGNMENT = 16
"""Bytes that a thread of a GPU moves at once, at most."""


class InputSource(Protocol):
    """Where an argument of the function comes from; `kiln.frontend.fx_import.InputSpec` is one.

    kind: "tensor" or "int" (graph input `index`), "size" or "stride" (of graph input `index` along `dim`), "derived"
    (`expr`, a sympy expression or its text), "constant" (`name`).
    """

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def expr(self) -> Any: ...


def build_plan(
    module: ir.Module,
    kernel_compiler: KernelCompiler | None,
    inputs: Sequence[InputSource] | None = None,
    *,
    name: str = "main",
    num_inputs: int | None = None,
    dump: Callable[[str, ir.Module], None] | None = None,
    cache: MutableMapping[str, KernelObject] | None = None,
    kernels: KernelSet | None = None,
    device: str = "cpu",
) -> Plan:
    """Plans the function @main of `module`, compiling its kernels.

    Args:
      module: after `assign-layouts`; function-level ops are kiln.fusion, kiln.aten, kiln.view, kiln.empty and
        arith.constant.
      kernel_compiler: `kernel_compiler(fusion, name)` -> the vector-stage module of a fusion's kernel; None leaves the
        kernels without code, for looking at the plan only.
      inputs: one per argument of the function; by default read off its attributes: tensors and named symbols are
        graph inputs in order, unless marked `kiln.constant`.
      num_inputs: number of graph inputs, where some are not arguments.
      cache: compiled kernels by name, read and added to; one per compiler version and machine.
      kernels: what compiles them instead of `kernel_compiler` (lowering/host/gpu_kernels.py).
      device: where the plan runs: "cpu", or "cuda:0" with `kernels` for it.
      dump: called as dump("<kernel>.vector", module) and dump("<kernel>.llvm", module).

    Raises InvalidIRError for ops or values that no plan can hold, CompileError from code generation.
    """
    functions = [op for op in module.body if op.operation.name == "func.func"]
    function = next((f for f in functions if ir.StringAttr(f.operation.attributes["sym_name"]).value == "main"), None)
    if function is None:
        raise InvalidIRError("the module holds no func.func @main")
    with module.context, ir.Location.unknown():
        chosen = kernels if kernels is not None else KernelSet(kernel_compiler, dump, cache)
        planner = _Planner(HostGraph(function), chosen, inputs, device)
        return planner.build(name, num_inputs)


class _Planner:
    def __init__(
        self, graph: HostGraph, kernels: KernelSet, inputs: Sequence[InputSource] | None, device: str = "cpu"
    ) -> None:
        self.graph, self.kernels, self.inputs = graph, kernels, inputs
        self.plan = Plan("", 0, device)
        self.buffers: dict[ir.Value, int] = {}
        self.memory = shared_memory(graph)
        self.epochs = self._symbol_epochs()
        self.products = self._library_products() if device != "cpu" else {}
        self.owned = self._values_with_tensors()
        self.step_of: dict[int, int] = {}  # symbol -> step that makes it known

    def build(self, name: str, num_inputs: int | None) -> Plan:
        plan, epoch = self.plan, 0
        plan.name = name
        for op in self.graph.operations:
            kind = name_of(op)
            if kind == "kiln.fusion":
                plan.steps.append(self._launch(op.operation, epoch))
            elif kind == "kiln.aten" and op.operation.results and op.operation.results[0] in self.products:
                plan.steps.append(self._product(op.operation, self.products[op.operation.results[0]]))
            elif kind == "kiln.aten":
                step = self._aten(op.operation, epoch)
                plan.steps.append(step)
                epoch += bool(step.sizes)
            elif kind not in ("kiln.view", "kiln.empty", "kiln.pack", "arith.constant"):
                raise InvalidIRError(f"{kind} between kernels: expected kiln.fusion, kiln.aten or kiln.view; "
                                     "run the fusion passes first", str(op.location))  # fmt: skip
        plan.outputs = [self._output(i, v) for i, v in enumerate(self.graph.returned)]
        self._symbols(num_inputs)
        self._lifetimes()
        host_in_tensors(plan)
        self._workspace()
        plan.kernels, plan.objects = self.kernels.finish()
        if any(plan.objects) or self.products:
            plan.launcher = launcher_object() if plan.device == "cpu" else cuda_launcher_object()
        plan.text = plan_text(plan)
        return plan

    # -- symbols ---------------------------------------------------------------------------------

    def _symbol_epochs(self) -> list[int]:
        """Epoch in which each symbol is known: 0, or one past that of the kiln.aten that returns it."""
        epochs = {a: 0 for a in self.graph.arguments if a in self.graph.position}
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
            if name_of(op) == "kiln.aten" and not any(r in self.products for r in op.operation.results):
                values += [v for v in op.operation.operands if isinstance(v.type, ir.RankedTensorType)]
        return {self._memory_of(v) for v in values}

    def _memory_of(self, value: ir.Value) -> ir.Value:
        """The value that owns the memory that a tensor lies in."""
        root = self._layout(value).root
        return self.memory.get(root, root)

    def _layout(self, value: ir.Value) -> Layout:
        layout = self.graph.layout(value)
        if layout is None:
            raise InvalidIRError("a view that no strides describe; run assign-layouts first", str(value.location))
        return layout

    def _buffer(self, root: ir.Value, dtype: str = "") -> int:
        """The buffer of a root value, made on first use."""
        first = self.memory.get(root, root)
        if first not in self.buffers:
            self.buffers[first] = len(self.plan.buffers)
            self.plan.buffers.append(self._new_buffer(first, dtype))
        return self.buffers[first]

    def _new_buffer(self, root: ir.Value, dtype: str) -> Buffer:
        layout = self._layout(root)
        kind, index = self._kind(root)
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
            dtype or self._returned_dtype(root) or dtype_name(root.type),
            tuple(self.expr(e) for e in layout.shape),
            tuple(self.expr(e) for e in strides),
            self.expr(size),
            index=index,
            epoch=self._epoch((*layout.shape, *strides)),
        )

    def _kind(self, root: ir.Value) -> tuple[str, int]:
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
        if name_of(op) == "kiln.aten" and root not in self.products:
            return "aten", -1
        if op.name == "arith.constant":
            return "constant", self._constant_data(op)
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

    def _constant_data(self, op: ir.Operation) -> int:
        """Stores the elements of a dense arith.constant in the plan."""
        type_ = ir.RankedTensorType(op.results[0].type)
        self.plan.blobs.append(dense_bytes(op.attributes["value"], type_))
        shape = tuple(type_.shape)
        self.plan.constants.append(Constant("", dtype_name(type_), shape, len(self.plan.blobs) - 1))
        return len(self.plan.constants) - 1

    def _returned_strides(self, root: ir.Value) -> tuple[ir.AffineExpr, ...] | None:
        """The exact strides asked for where what kernels write is returned as it is (sizes of 1 included)."""
        if isinstance(root.owner, ir.Block) or not (name_of(root.owner) == "kiln.fusion" or root in self.products):
            return None
        for i, value in enumerate(self.graph.returned):
            is_whole = self.memory.get(value, value) == root
            attribute = self.graph.result_attribute(i, "kiln.strides") if is_whole else None
            if isinstance(attribute, ir.AffineMapAttr):
                wanted = self.graph.function_map(attribute)
                if wanted is not None and self._layout(root).same_strides(wanted):
                    return wanted
        return None

    def _returned_dtype(self, root: ir.Value) -> str:
        """The dtype that PyTorch gives a returned value, where its element type does not tell (unsigned integers)."""
        for i, value in enumerate(self.graph.returned):
            attribute = self.graph.result_attribute(i, "kiln.dtype")
            if attribute is not None and self._memory_of(value) == root:
                return ir.StringAttr(attribute).value
        return ""

    # -- steps ---------------------------------------------------------------------------------------

    def _library_products(self) -> dict[ir.Value, LibraryProduct]:
        """Results of the ATen calls that the GPU's library does, up to the first call that returns sizes: if it refuses
        a size, nothing has run that cannot be run again."""
        found: dict[ir.Value, LibraryProduct] = {}
        for op in self.graph.operations:
            operation = op.operation
            if name_of(op) != "kiln.aten":
                continue
            if any(isinstance(r.type, ir.IndexType) for r in operation.results):
                break
            tensors = [v for v in operation.operands if isinstance(v.type, ir.RankedTensorType)]
            layouts = [layout for v in tensors if (layout := self.graph.layout(v)) is not None]
            if len(operation.results) == 1 and len(layouts) == len(operation.operands):
                product = library_product(operation, layouts, self._layout(operation.results[0]))
                if product is not None:
                    found[operation.results[0]] = product
        return found

    def _product(self, op: ir.Operation, product: LibraryProduct) -> Launch:
        values = [*(op.operands[i] for i in product.operands), op.results[0]]
        fields = {name: tuple(map(self.expr, getattr(product, name))) for name in ("sizes", "lhs", "rhs", "result")}
        reason = ir.StringAttr(op.attributes["reason"]).value if _has(op, "reason") else ""
        return Launch(
            self.kernels.add_library(LIBRARY_KERNEL),
            tuple(self._pointer(v) for v in values),
            (),
            name=ir.StringAttr(op.attributes["op"]).value,
            product=Product(product.dtype, **fields, reason=reason, candidate=product.candidate),
        )

    def _pointer(self, value: ir.Value) -> Pointer:
        layout = self._layout(value)
        offset = mul(layout.offset, constant(item_bytes(value.type)))
        return Pointer(self._buffer(layout.root), self.expr(offset), self.expr(_distinct(value, layout)))

    def _launch(self, op: ir.Operation, epoch: int) -> Launch:
        if self.kernels.marks_alignment:
            self._mark_alignment(op)
        kernel = self.kernels.add(op)
        tensors = [v for v in [*op.operands, *op.results] if isinstance(v.type, ir.RankedTensorType)]
        pointers = [self._pointer(v) for v in tensors]
        symbols = [self.graph.symbol(v) for v in op.operands if isinstance(v.type, ir.IndexType)]

        def over_plan(text: str, result: int) -> Expr:
            map_ = ir.AffineMapAttr(ir.Attribute.parse(text)).value
            return self.expr(affine.substitute(map_.results[result], {}, dict(enumerate(symbols))))

        return Launch(
            kernel,
            tuple(pointers),
            tuple(self.expr(s) for s in symbols),
            results=len(op.results),
            name=ir.StringAttr(op.attributes["name"]).value,
            epoch=epoch,
            **self.kernels.launch_fields(kernel, over_plan),
        )

    def _mark_alignment(self, op: ir.Operation) -> None:
        """Says which operands and results may start elsewhere than at multiples of 16 bytes."""
        tensors = [v for v in [*op.operands, *op.results] if isinstance(v.type, ir.RankedTensorType)]
        offsets = [mul(self._layout(v).offset, constant(item_bytes(v.type))) for v in tensors]
        found = [i for i, offset in enumerate(offsets) if not affine.is_multiple(offset, _ALIGNMENT)]
        if found:
            op.attributes["unaligned"] = ir.DenseI64ArrayAttr.get(found)

    def _aten(self, op: ir.Operation, epoch: int) -> AtenStep:
        tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
        dtypes = [ir.StringAttr(d).value for d in op.attributes["operand_dtypes"]] if _has(op, "operand_dtypes") else []
        operands = [self._operand(v, dtypes[i] if dtypes else "") for i, v in enumerate(tensors)]
        results = [r for r in op.results if isinstance(r.type, ir.RankedTensorType)]
        indices = [r for r in op.results if isinstance(r.type, ir.IndexType)]
        sources = list(op.attributes["unbacked"]) if _has(op, "unbacked") else [None] * len(indices)
        sizes = []
        for i, (value, source) in enumerate(zip(indices, sources, strict=True)):
            where = list(ir.DenseI64ArrayAttr(source)) if source is not None else []
            symbol = self.graph.position[value]
            sizes.append((symbol, where[0], where[1]) if where else (symbol, len(results) + i, -1))
            self.step_of[symbol] = len(self.plan.steps)
        return AtenStep(
            ir.StringAttr(op.attributes["op"]).value,
            ir.StringAttr(op.attributes["args"]).value,
            ir.StringAttr(op.attributes["kwargs"]).value,
            tuple(operands),
            tuple(self.expr(self.graph.symbol(v)) for v in op.operands if isinstance(v.type, ir.IndexType)),
            tuple(self._buffer(r) if list(r.uses) else -1 for r in results),
            tuple(sizes),
            name=ir.StringAttr(op.attributes["op"]).value,
            reason=ir.StringAttr(op.attributes["reason"]).value if _has(op, "reason") else "",
            epoch=epoch,
        )

    def _operand(self, value: ir.Value, dtype: str = "") -> Operand:
        layout = self._layout(value)
        buffer = self._buffer(layout.root, dtype)
        found = self.plan.buffers[buffer]
        # A graph's inputs and the results of its ATen calls keep the dtype that they have.
        cast = dtype if dtype and found.kind in ("tensor", "workspace") and found.dtype != dtype else ""
        if value == layout.root:
            return Operand(buffer, dtype=cast)
        return self._as_view(buffer, layout, layout.strides, cast)

    def _as_view(self, buffer: int, layout: Layout, strides: Sequence[ir.AffineExpr], dtype: str) -> Operand:
        shape = tuple(self.expr(e) for e in layout.shape)
        return Operand(buffer, shape, tuple(self.expr(e) for e in strides), self.expr(layout.offset), dtype)

    def _output(self, number: int, value: ir.Value) -> Output:
        if isinstance(value.type, ir.IndexType):
            return Output(value=self.expr(self.graph.symbol(value)))
        layout = self._layout(value)
        attribute = self.graph.result_attribute(number, "kiln.strides")
        wanted = self.graph.function_map(attribute) if isinstance(attribute, ir.AffineMapAttr) else None
        buffer = self._buffer(layout.root)
        dtype = self.graph.result_attribute(number, "kiln.dtype")
        name = ir.StringAttr(dtype).value if dtype is not None else ""
        if self.plan.buffers[buffer].kind not in ("tensor", "workspace") or name == self.plan.buffers[buffer].dtype:
            name = ""
        if wanted is not None and not layout.same_strides(wanted):
            raise InvalidIRError(f"result {number} has strides {layout.strides}, expected {wanted}; run assign-layouts")
        if value == layout.root:
            return Output(Operand(buffer, dtype=name))
        return Output(self._as_view(buffer, layout, wanted or layout.strides, name))

    # -- memory ----------------------------------------------------------------------------------------

    def expr(self, e: ir.AffineExpr) -> Expr:
        value = affine.constant_of(e)
        return str(e) if value is None else value

    def _epoch(self, exprs: Sequence[ir.AffineExpr]) -> int:
        used: set[int] = set()
        for e in exprs:
            used |= affine.symbols_in(e)
        return max((self.epochs[i] for i in used), default=0)

    def _lifetimes(self) -> None:
        """Sets `first` and `last` of every buffer."""
        uses: dict[int, list[int]] = {}
        for i, step in enumerate(self.plan.steps):
            if isinstance(step, Launch):
                touched = [p.buffer for p in step.pointers]
            else:
                touched = [*(o.buffer for o in step.operands), *(r for r in step.results if r >= 0)]
            for buffer in touched:
                uses.setdefault(buffer, []).append(i)
        for b, steps in uses.items():
            self.plan.buffers[b] = dataclasses.replace(self.plan.buffers[b], first=min(steps), last=max(steps))

    def _workspace(self) -> None:
        """Places the workspace buffers now if all their sizes are numbers."""
        mine = [(i, b) for i, b in enumerate(self.plan.buffers) if b.kind == "workspace"]
        if all(isinstance(b.bytes, int) for _, b in mine):
            intervals = [Interval(int(b.bytes), b.first, b.last) for _, b in mine]
            offsets, _ = assign_offsets(intervals)
            self.plan.offsets = {i: offset for (i, _), offset in zip(mine, offsets, strict=True)}


def _distinct(value: ir.Value, layout: Layout) -> ir.AffineExpr:
    """Bytes of the elements of a tensor, each counted once: a broadcast repeats them."""
    size = constant(item_bytes(value.type))
    for n, step in zip(layout.shape, layout.strides, strict=True):
        size = size if is_constant(step, 0) else mul(size, n)
    return size


def _has(op: ir.Operation, name: str) -> bool:
    return name in op.attributes
