# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A plan as MLIR text (`.plan.mlir`), in the ops of dialects/kiln/plan.py. Deterministic."""

import json
from collections.abc import Sequence

from kiln.lowering.host.elements import element_text
from kiln.runtime.binding import segments
from kiln.runtime.memory import aligned
from kiln.runtime.plan import AtenStep, Buffer, Convolution, Expr, Launch, Operand, Plan

__all__ = ["plan_text"]


def plan_text(plan: Plan) -> str:
    """The plan's symbols, buffers, steps and outputs; a comment line sums it up."""
    return _Text(plan).write()


class _Text:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        count = len(plan.symbols)
        self.prefix = "()" + (f"[{', '.join(f's{i}' for i in range(count))}]" if count else "")
        self.types = [_memref(b) for b in plan.buffers]

    def write(self) -> str:
        plan = self.plan
        arguments = ", ".join(self._symbol(i) for i in range(len(plan.symbols)))
        lines = [f"// {self._summary()}", f"func.func @{plan.name}({arguments}) {{"]
        lines += [f"  {self._buffer(i)}" for i in range(len(plan.buffers))]
        for step in plan.steps:
            lines.append(f"  {self._launch(step) if isinstance(step, Launch) else self._call(step)}")
        lines += [f"  {self._output()}", "  return", "}", ""]
        return "\n".join(lines)

    def _summary(self) -> str:
        plan = self.plan
        calls = sum(isinstance(s, AtenStep) for s in plan.steps)
        native = sum(bool(part.launches) for part in segments(plan))
        text = (f"{len(plan.steps) - calls} launches of {len(plan.kernels)} kernels in {native} native calls, "
                f"{calls} ATen calls")  # fmt: skip
        if plan.offsets is None:
            return text + "; workspace sized at run time"
        sizes = {i: aligned(int(plan.buffers[i].bytes)) for i in plan.offsets}
        peak = max((offset + sizes[i] for i, offset in plan.offsets.items()), default=0)
        return text + f"; workspace {peak} bytes for {sum(sizes.values())} bytes of intermediates"

    def _symbol(self, i: int) -> str:
        symbol = self.plan.symbols[i]
        parts = {"kiln.symbol": json.dumps(symbol.name), "kiln.source": json.dumps(symbol.source)}
        if symbol.input >= 0:
            parts["kiln.input"] = str(symbol.input)
        if symbol.dim >= 0:
            parts["kiln.dim"] = str(symbol.dim)
        if symbol.expr:
            parts["kiln.expr"] = json.dumps(symbol.expr)
        return f"%s{i}: index {{{', '.join(f'{k} = {v}' for k, v in parts.items())}}}"

    def _map(self, exprs: Sequence[Expr]) -> str:
        return f"affine_map<{self.prefix} -> ({', '.join(str(e) for e in exprs)})>"

    def _maps(self, groups: Sequence[Sequence[Expr]]) -> str:
        return "[" + ", ".join(self._map(g) for g in groups) + "]"

    def _buffer(self, i: int) -> str:
        buffer = self.plan.buffers[i]
        parts = {"kind": json.dumps(buffer.kind)}
        if buffer.index >= 0:
            parts["index"] = str(buffer.index)
        if buffer.kind == "constant" and self.plan.constants[buffer.index].name:
            parts["constant"] = json.dumps(self.plan.constants[buffer.index].name)
        if self.plan.offsets is not None and i in self.plan.offsets:
            parts["offset"] = str(self.plan.offsets[i])
        if buffer.kind == "workspace":
            parts["live"] = f"array<i64: {buffer.first}, {buffer.last}>"
        if not all(isinstance(e, int) for e in (*buffer.shape, *buffer.strides)):
            parts |= {"shape": self._map(buffer.shape), "strides": self._map(buffer.strides)}
        return f'%{i} = "kiln.buffer"() {{{_join(parts)}}} : () -> {self.types[i]}'

    def _launch(self, step: Launch) -> str:
        parts = {"kernel": json.dumps(self.plan.kernels[step.kernel].name)}
        if any(p.bytes != 0 for p in step.pointers):
            parts["offsets"] = self._map([p.bytes for p in step.pointers])
        if step.symbols:
            parts["symbols"] = self._map(step.symbols)
        if step.work != -1:
            parts["work"] = self._map([step.work])
        if step.scratch != 0:
            parts["scratch"] = self._map([step.scratch])
        if step.product is not None:
            product = step.product
            names = ("sizes", "lhs", "rhs", "result")
            maps = ", ".join(f"{name} = {self._map(getattr(product, name))}" for name in names)
            parts["product"] = f"{{{maps}}}"
            if product.activation:
                parts["activation"] = json.dumps(product.activation)
            if product.candidate:
                parts["candidate"] = str(product.candidate)
            if product.reason:
                parts["reason"] = _string(product.reason)
        if step.convolution is not None:
            parts |= self._convolution(step.convolution)
        return self._op("launch", [p.buffer for p in step.pointers], parts)

    def _convolution(self, convolution: Convolution) -> dict[str, str]:
        maps = [f"{name} = {self._map(getattr(convolution, name))}" for name in ("image", "weight", "result")]
        numbers = [
            f"{name} = array<i64: {', '.join(map(str, getattr(convolution, name)))}>"
            for name in ("stride", "padding", "dilation")
        ]
        last = [f"groups = {convolution.groups}", f"channels_last = {str(convolution.channels_last).lower()}"]
        parts = {"convolution": "{" + ", ".join([*maps, *numbers, *last]) + "}"}
        return parts | ({"reason": _string(convolution.reason)} if convolution.reason else {})

    def _call(self, step: AtenStep) -> str:
        parts = {"op": json.dumps(step.op), "args": _string(step.args), "kwargs": _string(step.kwargs)}
        if step.symbols:
            parts["symbols"] = self._map(step.symbols)
        if any(o.shape is not None for o in step.operands):
            parts["views"] = self._views(step.operands)
        if step.sizes:
            parts["sizes"] = "[" + ", ".join(f"array<i64: {s}, {r}, {d}>" for s, r, d in step.sizes) + "]"
        if step.reason:
            parts["reason"] = _string(step.reason)
        return self._op("call", [*(o.buffer for o in step.operands), *(r for r in step.results if r >= 0)], parts)

    def _views(self, operands: Sequence[Operand | None]) -> str:
        """Per operand [shape, strides, offset] of a view, or unit for the whole buffer."""
        texts: list[str] = []
        for o in operands:
            if o is None or o.shape is None or o.strides is None:
                texts.append("unit")
            else:
                texts.append(self._maps([o.shape, o.strides, (o.offset,)]))
        return f"[{', '.join(texts)}]"

    def _output(self) -> str:
        outputs = self.plan.outputs
        tensors = [o.tensor for o in outputs if o.tensor is not None]
        parts: dict[str, str] = {}
        if any(o.shape is not None for o in tensors):
            parts["views"] = self._views(tensors)
        if len(tensors) < len(outputs):
            values = ["unit" if o.value is None else self._map([o.value]) for o in outputs]
            parts["values"] = f"[{', '.join(values)}]"
        return self._op("output", [o.buffer for o in tensors], parts)

    def _op(self, name: str, buffers: Sequence[int], parts: dict[str, str]) -> str:
        operands = ", ".join(f"%{b}" for b in buffers)
        types = ", ".join(self.types[b] for b in buffers)
        attributes = f" {{{_join(parts)}}}" if parts else ""
        return f'"kiln.{name}"({operands}){attributes} : ({types}) -> ()'


def _memref(buffer: Buffer) -> str:
    shape = "".join(f"{e}x" if isinstance(e, int) else "?x" for e in buffer.shape)
    element = element_text(buffer.dtype)
    if not buffer.shape:
        return f"memref<{element}>"
    strides = ", ".join(str(e) if isinstance(e, int) else "?" for e in buffer.strides)
    return f"memref<{shape}{element}, strided<[{strides}]>>"


def _join(parts: dict[str, str]) -> str:
    return ", ".join(f"{k} = {v}" for k, v in parts.items())


def _string(text: str) -> str:
    """A string attribute: MLIR escapes by hexadecimal code."""
    return '"' + text.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A") + '"'
