# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Parts of one kernel with equal code: a function that is emitted once and called for each of them.

The three products of an attention layer differ in which weights they read and where they write, so LLVM compiles one
of them. A call is outside of all loops.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch_mlir import ir
from torch_mlir.dialects import func

from kiln.dialects.schedules import Schedule
from kiln.dialects.walk import defining_op, enclosing
from kiln.lowering.cpu.tile.kernel import Kernel
from kiln.lowering.tile.body import FusionBody

__all__ = ["PartKey", "SharedPart", "part_key"]


@dataclass
class PartKey:
    """What a part computes: `text` is equal for parts with equal code. `buffers`: the operands and results of the
    fusion that it reads and writes, by position, in the order of `text`.
    """

    text: str = ""
    buffers: list[int] = field(default_factory=list[int])


def part_key(body: FusionBody, layouts: Sequence[ir.AffineMap], schedule: Schedule | None) -> PartKey:
    """The key of a part of a fusion."""
    key = PartKey()
    lines: list[str] = []
    names: dict[ir.Value, str] = {symbol: f"s{i}" for i, symbol in enumerate(body.symbols)}

    def need(value: ir.Value) -> None:
        """Describes what computes `value`, in the order in which it is needed: that of the block may differ."""
        op = defining_op(value)
        if value not in names and op is not None and op.parent == body.fusion.operation:
            for read in _read(op):
                need(read)
            if value not in names:
                lines.append(describe(op))

    def operand(value: ir.Value) -> str:
        if value not in names:
            position = body.argument_position(value)
            assert position is not None, "a part is computed from its own values and the operands"
            names[value] = f"b{len(key.buffers)}"
            key.buffers.append(position)
            return f"{names[value]}: {value.type} at {layouts[position]}"
        return names[value]

    def describe(op: ir.Operation) -> str:
        attributes = ", ".join(f"{name} = {op.attributes[name]}" for name in sorted(op.attributes))
        text = f"{op.name}({', '.join(map(operand, op.operands))}) {{{attributes}}}"
        for result in op.results:
            names[result] = f"v{len(names)}"
            text += f" {names[result]}: {result.type}"
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    names[argument] = f"v{len(names)}"
                text += " {\n" + "\n".join(describe(inner.operation) for inner in block.operations) + "\n}"
        return text

    for i in body.mine:
        need(body.roots[i])
        position = len(body.tensors) + i
        key.buffers.append(position)
        lines.append(f"yield {operand(body.roots[i])} at {layouts[position]}")
    key.text = "\n".join([*lines, str(schedule)])
    return key


def _read(op: ir.Operation) -> list[ir.Value]:
    """The operands of an op and of those inside of it."""
    inside = [inner.operation for region in op.regions for block in region.blocks for inner in block.operations]
    return [*op.operands, *(value for inner in inside for value in _read(inner))]


class SharedPart:
    """A part as a function of the kernel's module: it takes what the kernel takes, in the same places."""

    def __init__(self, kernel: Kernel, number: int, key: PartKey, body: FusionBody, schedule: Schedule | None):
        name = ir.StringAttr(kernel.function.operation.attributes["sym_name"]).value
        module = enclosing(kernel.function, "builtin.module").opview
        self.name, self.key = f"{name}_part{number}", key
        self.code = Kernel(module, self.name, body, kernel.layouts)
        self.code.schedule = schedule
        self.code.function.operation.attributes["sym_visibility"] = ir.StringAttr.get("private")

    def emit(self, emit: Callable[[Kernel], None]) -> None:
        """Writes the function by `emit`."""
        with ir.InsertionPoint(self.code.function.entry_block):
            emit(self.code)
            func.ReturnOp([])

    def call(self, kernel: Kernel, key: PartKey) -> None:
        """Calls it from the kernel for the part with this key, which has the same text."""
        buffers = list(kernel.buffers)
        for mine, theirs in zip(self.key.buffers, key.buffers, strict=True):
            buffers[mine] = kernel.buffers[theirs]
        operands = [*buffers, *map(kernel.b.value, kernel.symbols), kernel.scratch.memory, kernel.tid, kernel.nt]
        func.CallOp([], self.name, operands)
        kernel.absorb(self.code)
