# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fusions of kind "attention": the bridge from a fusion to `emit_attention`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.schedules.cpu import AttentionSchedule
from kiln.errors import UnsupportedError
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.attention import (
    AttentionBuffers,
    AttentionProblem,
    attention_scratch_bytes,
    choose_attention_schedule,
    emit_attention,
)
from kiln.lowering.cpu.problem import Size
from kiln.lowering.cpu.tile.epilogue import FusedEpilogue
from kiln.lowering.cpu.tile.kernel import Kernel
from kiln.lowering.cpu.tile.product import static_size
from kiln.lowering.emitters import emits
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import offset_of, strides_of

_NAMES = ("query", "key", "value", "mask")


@dataclass(frozen=True)
class Attention:
    """A fusion's kiln.attention; `operands` are positions among the fusion's tensors (query, key, value, mask)."""

    op: ir.OpView
    operands: tuple[int, ...]
    query: tuple[ir.AffineExpr, ...]
    key: tuple[ir.AffineExpr, ...]
    value: tuple[ir.AffineExpr, ...]
    strides: tuple[tuple[ir.AffineExpr, ...], ...]

    def problem(self, size: Callable[[ir.AffineExpr], Size]) -> AttentionProblem:
        """The problem, with `size(expr)` turning sizes and strides into ints, Values or None."""
        attributes = self.op.operation.attributes
        head, value_size = static_size(self.query[-1]), static_size(self.value[-1])
        if head is None or value_size is None:
            raise UnsupportedError("kiln.attention", str(self.op.location), "a head size known only at run time")
        kv = size(self.key[-3])
        heads = size(self.query[-3])
        mask = _mask_dtype(self.op) if len(self.operands) == 4 else None
        strides = [tuple(size(x) for x in s) for s in self.strides]
        return AttentionProblem(
            batch=tuple(size(x) for x in self.query[:-3]),
            heads=heads,
            kv_heads=heads if self.key[-3] == self.query[-3] else kv,
            queries=size(self.query[-2]),
            keys=size(self.key[-2]),
            qk_size=head,
            v_size=value_size,
            q_strides=strides[0],
            k_strides=strides[1],
            v_strides=strides[2],
            scale=float(attributes["scale"].value),
            causal=bool(attributes["causal"].value),
            mask_strides=strides[3] if mask else (),
            mask_dtype=mask,
            fill=float(attributes["fill"].value) if "fill" in attributes else None,
            dtype=str(ir.RankedTensorType(self.op.operands[0].type).element_type),
        )


def _mask_dtype(op: ir.OpView) -> str:
    element = str(ir.RankedTensorType(op.operands[3].type).element_type)
    return "i8" if element == "i1" else element


def find_attention(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> Attention:
    """The one kiln.attention of a fusion and the strides of its operands."""
    op = next(op for op in body.operations if op.operation.name == "kiln.attention")
    positions: list[int] = []
    strides: list[tuple[ir.AffineExpr, ...]] = []
    rank = len(body.dims(op.operands[0]))
    zero, one = ir.AffineConstantExpr.get(0), ir.AffineConstantExpr.get(1)
    for name, v in zip(_NAMES, op.operands, strict=False):
        position = body.argument_position(v)
        if position is None:
            raise UnsupportedError("kiln.attention", str(op.location), f"its {name} is computed inside of the kernel")
        positions.append(position)
        own = strides_of(layouts[position], rank)
        if name == "mask":
            sizes = [one] * (rank - len(body.dims(v))) + list(body.dims(v))
            own = [zero if size == one else x for x, size in zip(own, sizes, strict=True)]
        strides.append(tuple(own))
    query, key, value = (body.dims(v) for v in list(op.operands)[:3])
    return Attention(op, tuple(positions), query, key, value, tuple(strides))


def plan_attention(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> AttentionSchedule:
    """The schedule of an attention fusion."""
    return choose_attention_schedule(find_attention(body, layouts).problem(static_size), isa.target())


@emits(kiln.AttentionOp, target="cpu", plan=plan_attention, schedules=AttentionSchedule)
def emit_attention_fusion(kernel: Kernel) -> None:
    """Write the kernel of a fusion of kind "attention"."""
    e = kernel.evaluator()
    attention = find_attention(kernel.body, kernel.layouts)
    given = kernel.schedule
    schedule = given if isinstance(given, AttentionSchedule) else plan_attention(kernel.body, kernel.layouts)
    buffers = [kernel.buffers[i] for i in attention.operands]
    offsets = [e.index(offset_of(kernel.layouts[i])) for i in attention.operands]
    has_mask = len(buffers) == 4
    operands = AttentionBuffers(
        q=buffers[0],
        k=buffers[1],
        v=buffers[2],
        mask=buffers[3] if has_mask else None,
        q_offset=offsets[0],
        k_offset=offsets[1],
        v_offset=offsets[2],
        mask_offset=offsets[3] if has_mask else 0,
    )
    rows, columns = attention.query[-2], attention.value[-1]
    epilogue = FusedEpilogue(e, attention.op.results[0], attention.query[:-2], rows, columns)
    problem = attention.problem(e.index)
    context = kernel.context
    emit_attention(kernel.b, problem, schedule, operands, epilogue, context)
    need = attention_scratch_bytes(attention.problem(static_size), schedule)
    kernel.scratch.bytes = ir.AffineConstantExpr.get(need)
    total = rows * attention.key[-2] * (attention.query[-1] + columns)
    for x in attention.query[:-2]:
        total = total * x
    kernel.work = total
