# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which fusions are attention that warps with different jobs may do, and their section of a kernel."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.schedules.base import to_plain_attribute
from kiln.dialects.schedules.gpu import WarpSpecializedSchedule
from kiln.lowering.gpu.builder import Index
from kiln.lowering.gpu.dot.attention_schedule import choose_specialized
from kiln.lowering.gpu.dot.described import Places, describe_argument, find_places
from kiln.lowering.gpu.dot.machine import machine
from kiln.lowering.gpu.dot.problem import Operand
from kiln.lowering.gpu.dot.specialized import HALF, Place, Specialized, emit_specialized, padded_size
from kiln.lowering.gpu.dot.windows import Attention
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import offset_of, strides_of

if TYPE_CHECKING:
    from kiln.lowering.gpu.emit import GpuKernel


def plan_specialized(
    body: FusionBody, layouts: Sequence[ir.AffineMap], attention: Attention, arch: str
) -> WarpSpecializedSchedule | None:
    """The schedule, or None where another kernel is faster or this one cannot do it: there are a mask or ops behind,
    sizes known at run time only, heads of another size, or tensors that no tensor map describes.
    """
    if find_tensors(body, layouts, attention) is None:
        return None
    return choose_specialized(attention.shape(tf32=False), machine(arch))


def find_tensors(
    body: FusionBody, layouts: Sequence[ir.AffineMap], attention: Attention
) -> list[tuple[Operand, Places]] | None:
    """Query, key, value and result, and where they lie; None where `emit_specialized` cannot do it."""
    op = attention.op
    alone = body.part is None and len(body.operations) == 1 and list(body.roots) == [op.results[0]]
    if (
        not alone
        or body.symbols
        or len(body.tensors) != 3
        or len(attention.operands) > 3
        or attention.scale <= 0
        or attention.element not in ("bf16", "f16")
        or attention.qk_size != attention.v_size
        or padded_size(attention.v_size) is None
    ):
        return None
    result = _result(body, layouts, attention)
    sizes = (attention.query_sizes, attention.key_sizes, attention.value_sizes)
    sizes = (*sizes, (*attention.query_sizes[:-1], attention.value_sizes[-1]))
    if any(affine.constant_of(n) is None for each in sizes for n in each):
        return None
    found: list[tuple[Operand, Places]] = []
    for operand, n in zip((*attention.operands[:3], result), sizes, strict=True):
        places = find_places(operand, n, attention.element)
        if places is None or places.turned:
            return None
        found.append((operand, places))
    positions = {x.position for x, _ in found}
    attributes = body.fusion.operation.attributes
    unaligned = list(ir.DenseI64ArrayAttr(attributes["unaligned"])) if "unaligned" in attributes else []
    return found if len(positions) == len(found) and not positions.intersection(unaligned) else None


def _result(body: FusionBody, layouts: Sequence[ir.AffineMap], attention: Attention) -> Operand:
    """The result, as if it were an operand."""
    number = len(body.tensors)
    sizes = attention.query_sizes
    zero = ir.AffineConstantExpr.get(0)
    strides = [
        zero if i < len(sizes) - 2 and affine.constant_of(n) == 1 else stride
        for i, (n, stride) in enumerate(zip(sizes, strides_of(layouts[number], len(sizes)), strict=True))
    ]
    return Operand(number, tuple(strides), offset_of(layouts[number]))


def emit_specialized_fusion(kernel: "GpuKernel", attention: Attention, schedule: WarpSpecializedSchedule) -> bool:
    """Add the section of the kernel, and the attribute that its TTGIR is written from; False where it cannot do it."""
    found = find_tensors(kernel.body, kernel.layouts, attention)
    # The first step's block of keys starts at the tile's first query or before: of a row of scores that are all masked,
    # minus infinity, differences would be NaN.
    if found is None or attention.causal and schedule.block_n % (2 * HALF):
        return False
    width = padded_size(attention.v_size) or 0
    described = [
        describe_argument(kernel, attention.op, x.position, (rows, width), places)
        for (x, places), rows in zip(found, (HALF, schedule.block_n, schedule.block_n, HALF), strict=True)
    ]
    query, key, value, result = [Place.of(x.position, d) for (x, _), d in zip(found, described, strict=True)]
    *batch, heads, queries, _ = (affine.constant_of(n) or 0 for n in attention.query_sizes)
    kv_heads, keys, _ = (affine.constant_of(n) or 0 for n in attention.key_sizes[-3:])
    problem = Specialized(
        batch=tuple(batch),
        heads=heads,
        kv_heads=kv_heads,
        queries=queries,
        keys=keys,
        size=width,
        element=attention.element,
        scale=attention.scale,
        causal=attention.causal,
        zeros=attention.fill is None,
        block_n=schedule.block_n,
        num_stages=schedule.num_stages,
        heads_together=schedule.heads_together,
        pingpong=schedule.pingpong,
        query=query,
        key=key,
        value=value,
        result=result,
    )
    kernel.function.operation.attributes["kiln.specialized"] = to_plain_attribute(problem.to_dict())
    programs = min(problem.tiles, schedule.programs)

    def emit(program: Index) -> None:
        emit_specialized(kernel.b, problem, described, program, programs)

    kernel.section(ir.AffineConstantExpr.get(programs), emit, schedule.num_warps, schedule.num_stages)
    return True
