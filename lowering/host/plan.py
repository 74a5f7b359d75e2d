# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""From a module at the fused (or scheduled) stage to a plan: launch order, buffers, workspace, kernels, ATen calls."""

import dataclasses
from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import PackOp, name_of, opdef
from kiln.dialects.walk import defining_op
from kiln.errors import InvalidIRError, location_text
from kiln.lowering.host.cuda_launcher import cuda_launcher_object
from kiln.lowering.host.cutting import cut_runs
from kiln.lowering.host.elements import dtype_name, item_bytes
from kiln.lowering.host.hosting import host_in_tensors
from kiln.lowering.host.kernels import kernels_of
from kiln.lowering.host.launcher import launcher_object
from kiln.lowering.host.layout import HostGraph, Layout, constant, is_constant, mul
from kiln.lowering.host.library_calls import LIBRARY_KERNEL, LibraryProduct, library_product
from kiln.lowering.host.library_convolutions import CONVOLUTION_KERNEL, LibraryConvolution, library_convolution
from kiln.lowering.host.objects import PlannedKernels
from kiln.lowering.host.plan_text import plan_text
from kiln.lowering.host.plan_values import InputSource, PlanValues
from kiln.runtime.binding import segments
from kiln.runtime.memory import Interval, assign_offsets
from kiln.runtime.plan import AtenStep, Check, Convolution, Expr, Launch, Operand, Output, Plan, Pointer, Product

__all__ = ["InputSource", "build_plan"]


def build_plan(
    module: ir.Module,
    inputs: Sequence[InputSource] | None = None,
    *,
    name: str = "main",
    num_inputs: int | None = None,
    device: str = "cpu",
) -> Plan:
    """Plans the function @main of `module`, with the machine code that its kernels have.

    Kernels without machine code are in the plan by their names. A kernel that its compiler refuses is marked as
    `unsupported`, and so is the plan of no use.

    Args:
      module: after `outline-kernels`; function-level ops are kiln.launch, kiln.aten, kiln.view, kiln.empty and
        arith.constant.
      inputs: one per argument of the function; by default read off its attributes: tensors and named symbols are
        graph inputs in order, unless marked `kiln.constant`.
      num_inputs: number of graph inputs, where some are not arguments.
      device: where the plan runs: "cpu", or "cuda:0" with kernels for it.

    Raises InvalidIRError for ops or values that no plan can hold.
    """
    functions = [op for op in module.body if op.operation.name == "func.func"]
    function = next((f for f in functions if ir.StringAttr(f.operation.attributes["sym_name"]).value == "main"), None)
    if function is None:
        raise InvalidIRError("the module holds no func.func @main")
    with module.context, ir.Location.unknown():
        planner = _Planner(HostGraph(function), PlannedKernels(kernels_of(module)), inputs, device)
        return planner.build(name, num_inputs)


class _Planner(PlanValues):
    def __init__(
        self,
        graph: HostGraph,
        kernels: PlannedKernels,
        inputs: Sequence[InputSource] | None,
        device: str,
    ) -> None:
        super().__init__(graph, inputs, Plan("", 0, device))
        self.kernels = kernels
        self.library: dict[ir.Value, LibraryProduct | LibraryConvolution] = (
            self._library_calls() if device != "cpu" else {}
        )
        self.owned = self._values_with_tensors()

    def build(self, name: str, num_inputs: int | None) -> Plan:
        plan, epoch = self.plan, 0
        plan.name = name
        for op in self.graph.operations:
            kind = name_of(op)
            if kind == "kiln.launch":
                plan.steps.append(self._launch(op.operation, epoch))
            elif kind == "kiln.aten" and op.operation.results and op.operation.results[0] in self.library:
                plan.steps.append(self._library_call(op.operation, self.library[op.operation.results[0]]))
            elif kind == "kiln.aten":
                step = self._aten(op.operation, epoch)
                plan.steps.append(step)
                epoch += bool(step.sizes)
            elif not (opdef(op).is_free or isinstance(op.operation.opview, PackOp) or kind == "arith.constant"):
                raise InvalidIRError(f"{kind} between kernels: expected kiln.launch, kiln.aten or kiln.view; "
                                     "run the fusion passes and outline-kernels first", str(op.location))  # fmt: skip
        plan.outputs = [self._output(i, v) for i, v in enumerate(self.graph.returned)]
        self._symbols(num_inputs)
        self._lifetimes()
        if plan.device != "cpu":
            cut_runs(plan, self._donated())
        host_in_tensors(plan)
        self._workspace()
        if plan.device != "cpu":
            from kiln.lowering.host import gpu_kernels

            gpu_kernels.meanwhile(plan)
            cuda_launcher_object()  # compiled once a process, while kernels are
        plan.kernels, plan.objects = self.kernels.finish()
        if any(plan.objects) or self.library:
            plan.launcher = launcher_object() if plan.device == "cpu" else cuda_launcher_object()
        plan.text = plan_text(plan)
        return plan

    # -- steps ---------------------------------------------------------------------------------------

    def _library_calls(self) -> dict[ir.Value, LibraryProduct | LibraryConvolution]:
        """Results of the ATen calls that the GPU's library does, up to the first call that returns sizes: if it refuses
        a size, nothing has run that cannot be run again.
        """
        found: dict[ir.Value, LibraryProduct | LibraryConvolution] = {}
        for op in self.graph.operations:
            operation = op.operation
            if name_of(op) != "kiln.aten":
                continue
            if any(isinstance(r.type, ir.IndexType) for r in operation.results):
                break
            if _has(operation, "elsewhere"):
                continue
            tensors = [v for v in operation.operands if isinstance(v.type, ir.RankedTensorType)]
            layouts = [layout for v in tensors if (layout := self.graph.layout(v)) is not None]
            if len(operation.results) == 1 and len(layouts) == len(tensors):
                result = self.graph.strided_layout(operation.results[0])
                call = library_product(operation, layouts, result) or library_convolution(operation, layouts, result)
                if call is not None:
                    found[operation.results[0]] = call
        return found

    def _library_call(self, op: ir.Operation, call: LibraryProduct | LibraryConvolution) -> Launch:
        name = ir.StringAttr(op.attributes["op"]).value
        reason = ir.StringAttr(op.attributes["reason"]).value if _has(op, "reason") else ""
        source = location_text(op.location)

        def exprs(*names: str) -> dict[str, tuple[Expr, ...]]:
            return {name: tuple(map(self.expr, getattr(call, name))) for name in names}

        if isinstance(call, LibraryConvolution):
            pointers = tuple(self._pointer(v) for v in (op.operands[0], op.operands[1], op.results[0]))
            numbers = {name: getattr(call, name) for name in ("stride", "padding", "dilation", "groups")}
            sizes = exprs("image", "weight", "result")
            convolution = Convolution(call.dtype, **sizes, **numbers, channels_last=call.channels_last, reason=reason)
            kernel = self.kernels.add_library(CONVOLUTION_KERNEL)
            return Launch(
                kernel, pointers, (), name=name, convolution=convolution, source=source, check=self._check(op)
            )
        pointers = tuple(self._pointer(v) for v in (*(op.operands[i] for i in call.operands), op.results[0]))
        fields = exprs("sizes", "lhs", "rhs", "result")
        product = Product(call.dtype, **fields, reason=reason, candidate=call.candidate, activation=call.activation)
        kernel = self.kernels.add_library(LIBRARY_KERNEL)
        return Launch(kernel, pointers, (), name=name, product=product, source=source, check=self._check(op))

    def _check(self, op: ir.Operation) -> Check | None:
        """How to check the step of an op; None for one that is not checked."""
        read = [r for r in op.results if list(r.uses)]
        if not _has(op, "reference") or not read:
            return None
        operands = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
        symbols = [self.graph.symbol(v) for v in op.operands if isinstance(v.type, ir.IndexType)]
        given, made = (tuple(map(self._whole, values)) for values in (operands, read))
        self.plan.references.append(ir.StringAttr(op.attributes["reference"]).value)
        return Check(len(self.plan.references) - 1, given, made, tuple(map(self.expr, symbols)))

    def _whole(self, value: ir.Value) -> Operand:
        """A tensor with its sizes and strides; the memory of a packed constant as it is."""
        layout = self.graph.strided_layout(value)
        dtype = dtype_name(value.type)
        buffer = self._buffer(layout.root)
        cast = "" if self.plan.buffers[buffer].dtype == dtype else dtype
        owner = defining_op(layout.root)
        if owner is not None and name_of(owner) == "kiln.pack":
            return Operand(buffer)
        return self._as_view(buffer, layout, layout.strides, cast)

    def _pointer(self, value: ir.Value) -> Pointer:
        layout = self.graph.strided_layout(value)
        offset = mul(layout.offset, constant(item_bytes(value.type)))
        return Pointer(self._buffer(layout.root), self.expr(offset), self.expr(_distinct(value, layout)))

    def _launch(self, op: ir.Operation, epoch: int) -> Launch:
        kernel = self.kernels.number(self.graph.launched(op).symbol)
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
            source=location_text(op.location),
            check=self._check(op),
            **self.kernels.launch_fields(kernel, over_plan),
        )

    def _aten(self, op: ir.Operation, epoch: int) -> AtenStep:
        tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
        dtypes = [ir.StringAttr(d).value for d in op.attributes["operand_dtypes"]] if _has(op, "operand_dtypes") else []
        operands = [self._operand(v, dtypes[i] if dtypes else dtype_name(v.type)) for i, v in enumerate(tensors)]
        results = [r for r in op.results if isinstance(r.type, ir.RankedTensorType)]
        indices = [r for r in op.results if isinstance(r.type, ir.IndexType)]
        sources = list(op.attributes["unbacked"]) if _has(op, "unbacked") else [None] * len(indices)
        sizes: list[tuple[int, int, int]] = []
        for i, (value, source) in enumerate(zip(indices, sources, strict=True)):
            first, *dim = ir.DenseI64ArrayAttr(source) if source is not None else [i]
            symbol = self.graph.position[value]
            sizes.append((symbol, first, dim[0]) if dim else (symbol, len(results) + first, -1))
            self.step_of[symbol] = len(self.plan.steps)
        return AtenStep(
            ir.StringAttr(op.attributes["op"]).value,
            ir.StringAttr(op.attributes["args"]).value,
            ir.StringAttr(op.attributes["kwargs"]).value,
            tuple(operands),
            tuple(self.expr(self.graph.symbol(v)) for v in op.operands if isinstance(v.type, ir.IndexType)),
            tuple(self._buffer(r) if list(r.uses) else -1 for r in results),
            tuple(sizes),
            name=ir.StringAttr(op.attributes["name" if _has(op, "name") else "op"]).value,
            reason=ir.StringAttr(op.attributes["reason"]).value if _has(op, "reason") else "",
            epoch=epoch,
            elsewhere=_has(op, "elsewhere"),
            check=self._check(op),
        )

    def _operand(self, value: ir.Value, dtype: str = "") -> Operand:
        layout = self.graph.strided_layout(value)
        buffer = self._buffer(layout.root, dtype)
        found = self.plan.buffers[buffer]
        cast = dtype if dtype and found.dtype != dtype else ""
        if value == layout.root and (value not in self.memory or self._is_all_of(buffer, layout)):
            return Operand(buffer, dtype=cast)
        return self._as_view(buffer, layout, layout.strides, cast)

    def _is_all_of(self, buffer: int, layout: Layout) -> bool:
        """Whether a tensor has the sizes and strides of the memory that it was written to."""
        shape, strides = (tuple(map(self.expr, exprs)) for exprs in (layout.shape, layout.strides))
        return (shape, strides) == (self.plan.buffers[buffer].shape, self.plan.buffers[buffer].strides)

    def _as_view(self, buffer: int, layout: Layout, strides: Sequence[ir.AffineExpr], dtype: str) -> Operand:
        shape = tuple(self.expr(e) for e in layout.shape)
        return Operand(buffer, shape, tuple(self.expr(e) for e in strides), self.expr(layout.offset), dtype)

    def _output(self, number: int, value: ir.Value) -> Output:
        if isinstance(value.type, ir.IndexType):
            return Output(value=self.expr(self.graph.symbol(value)))
        layout = self.graph.strided_layout(value)
        attribute = self.graph.result_attribute(number, "kiln.strides")
        wanted = self.graph.function_map(attribute) if isinstance(attribute, ir.AffineMapAttr) else None
        buffer = self._buffer(layout.root)
        dtype = self.graph.result_attribute(number, "kiln.dtype")
        # Of the results in one buffer, some may be unsigned and others not (casts that truncate alike).
        name = ir.StringAttr(dtype).value if dtype is not None else dtype_name(value.type)
        if name == self.plan.buffers[buffer].dtype:
            name = ""
        if wanted is not None and not layout.same_strides(wanted):
            raise InvalidIRError(f"result {number} has strides {layout.strides}, expected {wanted}; run assign-layouts")
        # A call's result has the strides that its op says, of which those along sizes of 1 may not be eager's.
        if value == layout.root and (wanted in (None, layout.strides) or self.plan.buffers[buffer].kind != "aten"):
            return Output(Operand(buffer, dtype=name))
        return Output(self._as_view(buffer, layout, wanted or layout.strides, name))

    # -- memory ----------------------------------------------------------------------------------------

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
        """Places the workspace buffers now if all their sizes are numbers; those of each run where it is cut."""
        plan = self.plan
        mine = [i for i, b in enumerate(plan.buffers) if b.kind == "workspace"]
        if not all(isinstance(plan.buffers[i].bytes, int) for i in mine):
            return
        groups = [mine]
        if plan.cuts is not None:
            groups = [sorted(set(part.buffers) & set(mine)) for part in segments(plan)]
        plan.offsets = {}
        for group in groups:
            offsets, _ = assign_offsets(
                [Interval(int(b.bytes), b.first, b.last) for b in (plan.buffers[i] for i in group)]
            )
            plan.offsets |= dict(zip(group, offsets, strict=True))

    def _donated(self) -> set[int]:
        """The input buffers that the caller leaves to the graph."""
        arguments = {v: ir.BlockArgument(v).arg_number for v in self.buffers if isinstance(v.owner, ir.Block)}
        return {
            self.buffers[v]
            for v, number in arguments.items()
            if self.graph.argument_attribute(number, "kiln.donated") is not None
        }


def _distinct(value: ir.Value, layout: Layout) -> ir.AffineExpr:
    """Bytes of the elements of a tensor, each counted once: a broadcast repeats them."""
    size = constant(item_bytes(value.type))
    for n, step in zip(layout.shape, layout.strides, strict=True):
        size = size if is_constant(step, 0) else mul(size, n)
    return size


def _has(op: ir.Operation, name: str) -> bool:
    return name in op.attributes
