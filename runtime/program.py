# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The Python function that runs one plan, written out as straight-line source.

A loop over plan data costs several microseconds a call in lookups; the written-out function only does what this plan
needs: read symbols, find the binding, allocate outputs, pack addresses, call native code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kiln.runtime.binding import Segment, StateLayout, check_key
from kiln.runtime.expressions import derived_evaluator
from kiln.runtime.heap import LARGE
from kiln.runtime.plan import AtenStep, Operand, Plan, Step, Symbol
from kiln.runtime.strided import OWN

__all__ = ["Program", "write_program"]


@dataclass
class Program:
    """Source of ``def run(inputs)`` and the objects that it names."""

    source: str
    namespace: dict[str, object] = field(default_factory=dict[str, object])


def write_program(
    plan: Plan, parts: Sequence[Segment], layout: StateLayout, *, is_checked: bool = False, asks_profiler: bool = False
) -> Program:
    """Writes the program of a plan; with `is_checked` one that calls a checker before and behind each step; with
    `asks_profiler` one that leaves a call to ``profiled`` while PyTorch's profiler runs.

    The source uses these names, which the executor provides: ``bound``, ``bind``, ``threads``, ``free``,
    ``make_state``, ``bad_index``, ``bad_access``, ``launch``, ``empty``, ``as_planned``, ``constants``,
    ``owned`` (`kiln.runtime.owned_inputs.OwnedInputs`), ``call_K`` (ATen calls), ``pack_K``, for plans of a GPU
    ``workspace``, ``within``, ``aligned`` and ``for_attention``, and for a checked one ``before``, ``after`` and
    ``memory`` (`kiln.runtime.executor.Checker`), ``profiler`` (`torch.autograd.profiler`) and ``profiled``, on
    a CPU ``fill_zones`` and ``look_at_zones`` as well (`kiln.runtime.checked.zones`).
    """
    writer = _Writer(plan, parts, layout, is_checked)
    if asks_profiler:
        writer.lines.append("if profiler._is_profiler_enabled: return profiled(inputs)")
    return writer.write()


class _Writer:
    def __init__(self, plan: Plan, parts: Sequence[Segment], layout: StateLayout, is_checked: bool) -> None:
        self.plan, self.parts, self.layout, self.is_checked = plan, parts, layout, is_checked
        self.lines: list[str] = []
        self.namespace: dict[str, object] = {}
        self.made: set[int] = set()  # buffers that have a tensor `tN`
        self.is_device = plan.device != "cpu"
        self.last_use = self._last_uses()

    def write(self) -> Program:
        self._inputs()
        self._emit("key = (" + "".join(f"s{i}, " for i in self._known(0)) + "threads(),)")
        self._emit("b0 = bound.get(key) or bind(0, key, None, inputs)")
        if any(part.launches for part in self.parts):
            # Between a test of `free` and its pop another thread may take the last one.
            self._emit("try: state = free.pop()")
            self._emit("except IndexError: state = make_state()")
        if self._has_workspace() and self.plan.cuts is None:
            self._workspace(0)
        for k, part in enumerate(self.parts):
            if part.launches:
                self._native(k, part)
            else:
                self._aten(k, part)
            if k == 0:
                self._release()
            for buffer in sorted(b for b, last in self.last_use.items() if last == k and b in self.made):
                self._emit(f"del t{buffer}")
        if any(part.launches for part in self.parts):
            self._emit("free.append(state)")
        self._emit(f"return [{', '.join(self._outputs())}]")
        body = "\n".join(f"    {line}" for line in self.lines)
        return Program(f"def run(inputs):\n{body}\n", self.namespace)

    # -- pieces ----------------------------------------------------------------------------------

    def _emit(self, line: str) -> None:
        self.lines.append(line)

    def _known(self, epoch: int) -> list[int]:
        """Positions of the symbols whose values key the bindings of an epoch (all known so far, none derived)."""
        return [
            i for i, s in enumerate(self.plan.symbols)
            if s.source not in ("derived", "constant") and _epoch(self.plan, s) <= epoch
        ]  # fmt: skip

    def _inputs(self) -> None:
        used = sorted(i for i, b in enumerate(self.plan.buffers) if b.kind == "input" and self._is_used(i))
        for i in used:
            self._emit(f"t{i} = inputs[{self.plan.buffers[i].index}]")
            self.made.add(i)
        for i, s in enumerate(self.plan.symbols):
            if s.source == "input":
                self._emit(f"s{i} = inputs[{s.input}]")
            elif s.source in ("size", "stride"):
                self._emit(f"s{i} = inputs[{s.input}].{s.source}({s.dim})")

    def _release(self) -> None:
        """Leaves tensors of the caller's to the program alone, which drops each behind its last use.

        The first segment may refuse what it is given (memory that is not aligned), and so may a later epoch, whose
        sizes a library takes or not: the caller then calls again.
        """
        if len(self.parts) > 1 and self.layout.epochs == 1 and self.made:
            self._emit("if type(inputs) is owned: inputs.clear()")

    def _is_shared(self, operand: Operand) -> bool:
        """Whether the memory is more than that of a tensor which one step makes and one reads."""
        named = sum(operand.buffer in _buffers_of(step) for step in self.plan.steps)
        named += sum(o.tensor is not None and o.tensor.buffer == operand.buffer for o in self.plan.outputs)
        made = self.plan.buffers[operand.buffer].kind in ("tensor", "aten")
        return named > 2 or not made or operand.shape is not None

    def _is_used(self, buffer: int) -> bool:
        return buffer in self.last_use

    def _last_uses(self) -> dict[int, int]:
        """Buffer -> index of the last segment that needs its tensor; buffers returned are never dropped."""
        last: dict[int, int] = {}
        for k, part in enumerate(self.parts):
            last.update(dict.fromkeys(part.buffers, k))
        for output in self.plan.outputs:
            if output.tensor is not None:
                last[output.tensor.buffer] = len(self.parts)
        kinds = ("input", "aten", "tensor", "constant")
        return {b: k for b, k in last.items() if self.plan.buffers[b].kind in kinds}

    def _has_workspace(self) -> bool:
        """Whether launches need one, or calls have operands in one."""
        calls = (part.aten.operands for part in self.parts if part.aten is not None)
        return any(part.launches for part in self.parts) or any(
            self.plan.buffers[o.buffer].kind == "workspace" for operands in calls for o in operands
        )

    def _workspace(self, epoch: int) -> None:
        if self.is_device:
            # From the allocator of the device at each call: a workspace that is kept could still be in use there.
            self._emit(f"w{epoch} = workspace(b{epoch}.workspace)")
            return
        self._emit(f"if state.sizes[{epoch}] < b{epoch}.workspace: state.grow({epoch}, b{epoch}.workspace)")
        if self.is_checked:
            self._emit(f"w{epoch} = state.tensors[{epoch}]")

    def _static(self, sizes: Sequence[int | str]) -> str | None:
        return repr(tuple(sizes)) if all(isinstance(e, int) for e in sizes) else None

    def _allocate(self, buffer: int, epoch: int) -> None:
        data = self.plan.buffers[buffer]
        if data.kind != "tensor" or buffer in self.made:
            return
        shape = self._static(data.shape) or f"b{epoch}.tensors[{buffer}][0]"
        strides = self._static(data.strides) or f"b{epoch}.tensors[{buffer}][1]"
        self.namespace[f"dtype_{data.dtype}"] = data.dtype
        small = isinstance(data.bytes, int) and data.bytes < LARGE
        function = "empty" if self.is_device or small else "empty_large"
        self._emit(f"t{buffer} = {function}({shape}, {strides}, dtype_{data.dtype})")
        self.made.add(buffer)

    def _native(self, k: int, part: Segment) -> None:
        e = part.epoch
        if self.plan.cuts is not None:
            self._emit(f"w0 = workspace(b0.workspaces[{k}])")
        for launch in part.launches:
            for pointer in launch.pointers:
                self._allocate(pointer.buffer, e)
        addresses = [f"t{buffer}.data_ptr()" for buffer in self.layout.fresh[k]]
        start = self.layout.start[k]
        if start == self.layout.WORKSPACE + self.layout.epochs and self.layout.epochs == 1:
            # No constants in between: table, workspace and buffers are consecutive words.
            words = [f"b0.tables[{k}]", self._base(0), *addresses]
            self._pack(k, self.layout.TABLE, words)
        else:
            self._pack(f"{k}t", self.layout.TABLE, [f"b{e}.tables[{k}]", *(self._base(i) for i in range(e + 1))])
            if addresses:
                self._pack(k, start, addresses)
        self._before(k, part, is_there=True)
        self._zones("fill_zones", k, part.epoch)
        self._emit("launch(state.address)")
        self._zones("look_at_zones", k, part.epoch)
        checks = sorted({name for launch in part.launches for name in launch.checks})
        if checks:
            self._emit(f"if state.words[{8 * self.layout.flag}]: bad_index(state, {', '.join(checks)!r})")
        if any(launch.sites for launch in part.launches):
            self._emit(f"if state.words[{8 * self.layout.flag}]: bad_access(state)")
        self._after(k, part)
        if self.plan.cuts is not None:
            self._emit("del w0")

    def _base(self, epoch: int) -> str:
        return f"w{epoch}.data_ptr()" if self.is_device else f"state.bases[{epoch}]"

    def _pack(self, name: int | str, start: int, words: list[str]) -> None:
        self.namespace[f"pack_{name}"] = f"{len(words)}q"
        self._emit(f"pack_{name}(state.words, {8 * start}, {', '.join(words)})")

    def _aten(self, k: int, part: Segment) -> None:
        step, e = part.aten, part.epoch
        assert step is not None
        for operand in step.operands:
            self._allocate(operand.buffer, e)
        operands = [self._tensor(o, f"b{e}.views[{k}][{i}]") for i, o in enumerate(step.operands)]
        if self.is_device and step.op.startswith("aten.") and "_attention" in step.op:
            operands = [f"for_attention({text})" for text in operands]
        elif self.is_device and step.op.startswith("aten.convolution"):
            # cuDNN's kernels for depthwise convolutions load 16 bytes at once; PyTorch hands a weight on as it lies.
            operands = [f"aligned({text})" for text in operands]
        elif step.op == OWN and self._is_shared(step.operands[0]):
            operands[0] += ".clone()"
        symbols = [self._number(s, e) for s in step.symbols]
        in_place = step.check is not None and not step.results
        self._before(k, part, is_there=in_place)
        self.namespace[f"call_{k}"] = step
        self._zones("fill_zones", k, e)
        self._emit(f"r = call_{k}([{', '.join(operands)}], [{', '.join(symbols)}])")
        self._zones("look_at_zones", k, e)
        for symbol, result, dim in step.sizes:
            self._emit(f"s{symbol} = " + (f"r[{result}].size({dim})" if dim >= 0 else f"int(r[{result}])"))
        for i, result in enumerate(step.results):
            if result in self.last_use:
                self._emit(f"t{result} = r[{i}]")
                self.made.add(result)
        self._emit("del r")
        bound = bool(step.sizes)
        if bound:
            self._next_epoch(e + 1)
        for result in step.results:
            if result in self.made:
                data = self.plan.buffers[result]
                at = e + 1 if bound else e
                strides = self._static(data.strides) or f"b{at}.tensors[{result}][1]"
                # PyTorch's own idea of a result's type, which code was generated for, is wrong for a few ops. Integers
                # carry no sign in the plan, and those ops are none of theirs.
                self.namespace[f"dtype_{data.dtype}"] = data.dtype
                differs = f"t{result}.stride() != {strides}"
                if not data.dtype.startswith(("int", "uint")):
                    differs += f" or t{result}.dtype is not dtype_{data.dtype}"
                self._emit(f"if {differs}: t{result} = as_planned(t{result}, {strides}, dtype_{data.dtype})")
                if self.is_device and result in self.layout.slots:
                    self._emit(f"if t{result}.data_ptr() & 15: t{result} = aligned(t{result})")
        self._after(k, part)

    def _zones(self, function: str, k: int, epoch: int) -> None:
        """Writes or reads the guard zones around the buffers of the plan, in checked execution on a CPU."""
        if self.is_checked and not self.is_device:
            there = [f"w{i}" for i in range(epoch + 1)] if self._has_workspace() else []
            self._emit(f"{function}({k}, [{', '.join(there)}], b{epoch})")

    def _before(self, k: int, part: Segment, is_there: bool) -> None:
        """Shows a checker what a step reads, and with `is_there` where its results will be."""
        if self.is_checked and part.check is not None:
            operands, results = self._checked(k, part)
            symbols = "".join(f"{self._number(s, part.epoch)}, " for s in part.check.symbols)
            self._emit(f"c = before({k}, [{operands}], [{results if is_there else ''}], ({symbols}))")

    def _after(self, k: int, part: Segment) -> None:
        if self.is_checked and part.check is not None:
            self._emit(f"after(c, [{self._checked(k, part)[1]}])")
            self._emit("del c")

    def _checked(self, k: int, part: Segment) -> tuple[str, str]:
        """Source of the tensors that a step reads, and of those that it writes."""
        assert part.check is not None
        tensors = (*part.check.operands, *part.check.results)
        views = f"b{part.epoch}.views[{check_key(k)}]"
        texts = [self._memory(o, f"{views}[{i}]") for i, o in enumerate(tensors)]
        count = len(part.check.operands)
        return ", ".join(texts[:count]), ", ".join(texts[count:])

    def _memory(self, operand: Operand, dynamic: str) -> str:
        """Source of a tensor wherever it lies: in a tensor of another type, too, which it is a guest of."""
        data = self.plan.buffers[operand.buffer]
        if operand.shape is None:
            return self._tensor(operand, dynamic)
        texts = {"constant": f"constants[{data.index}]", "workspace": f"w{data.epoch}"}
        text = texts.get(data.kind, f"t{operand.buffer}")
        dtype = operand.dtype or data.dtype
        self.namespace[f"dtype_{dtype}"] = dtype
        unit = ", 1" if data.kind == "workspace" else ""
        return f"memory({text}, dtype_{dtype}, *{dynamic}{unit})"

    def _number(self, size: int | str, epoch: int) -> str:
        return str(size) if isinstance(size, int) else f"b{epoch}.values[{size!r}]"

    def _next_epoch(self, epoch: int) -> None:
        known = "".join(f"s{i}, " for i in self._known(epoch))
        self._emit(f"key = ({epoch}, {known}threads(),)")
        self._emit(f"b{epoch} = bound.get(key) or bind({epoch}, key, b{epoch - 1}, None)")
        if self._has_workspace():
            self._workspace(epoch)

    def _tensor(self, operand: Operand, dynamic: str) -> str:
        """Source of a tensor: the buffer's own, or a view with given sizes, or sizes taken from `dynamic`."""
        kind = self.plan.buffers[operand.buffer].kind
        if kind == "workspace":
            data = self.plan.buffers[operand.buffer]
            dtype = operand.dtype or data.dtype
            self.namespace[f"dtype_{dtype}"] = dtype
            return f"within(w{data.epoch}, dtype_{dtype}, *{dynamic})"
        text = f"constants[{self.plan.buffers[operand.buffer].index}]" if kind == "constant" else f"t{operand.buffer}"
        if operand.dtype and operand.dtype != self.plan.buffers[operand.buffer].dtype:
            self.namespace[f"dtype_{operand.dtype}"] = operand.dtype
            text = f"{text}.view(dtype_{operand.dtype})"
        if operand.shape is None:
            return text
        is_static = all(isinstance(e, int) for e in (*operand.shape, *(operand.strides or ()), operand.offset))
        if is_static and kind == "tensor":  # it begins where its storage does
            return f"{text}.as_strided({operand.shape!r}, {operand.strides!r}, {operand.offset})"
        if is_static:
            return f"view({text}, {operand.shape!r}, {operand.strides!r}, {operand.offset})"
        return f"view({text}, *{dynamic})"

    def _outputs(self) -> list[str]:
        final = self.layout.epochs - 1
        texts: list[str] = []
        for i, output in enumerate(self.plan.outputs):
            if output.tensor is not None:
                self._allocate(output.tensor.buffer, final)
                texts.append(self._tensor(output.tensor, f"b{final}.views[-1][{i}]"))
            elif isinstance(output.value, int):
                texts.append(str(output.value))
            else:
                texts.append(f"b{final}.values[{output.value!r}]")
        return texts


def _epoch(plan: Plan, symbol: Symbol) -> int:
    """The epoch in which a symbol becomes known: 0, or one past that of the ATen step that returns it."""
    return plan.steps[symbol.input].epoch + 1 if symbol.source == "aten" else 0


def derived_values(plan: Plan, values: list[int | None]) -> None:
    """Fills in the derived and constant symbols whose inputs are known, in place."""
    names = [s.name for s in plan.symbols if s.name.isidentifier()]
    at = {s.name: i for i, s in enumerate(plan.symbols)}
    for i, symbol in enumerate(plan.symbols):
        if symbol.source == "constant":
            values[i] = int(symbol.expr)
        elif symbol.source == "derived":
            function = derived_evaluator(symbol.expr, names)
            known = [values[at[name]] or 0 for name in names]
            values[i] = function(*known)


def _buffers_of(step: Step) -> set[int]:
    """The buffers that a step reads or writes."""
    if isinstance(step, AtenStep):
        return {operand.buffer for operand in step.operands} | set(step.results)
    return {pointer.buffer for pointer in step.pointers}
