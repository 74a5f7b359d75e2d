# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops whose result must not depend on what else their kernel computes.

Short formulas of a function depend on what becomes of its result, and a GPU contracts a sum with a product or does not.
What one kernel stores is then not, to the bit, what another one or the backward pass computes anew. No element may be
the maximum of a row, and the gradient of that is 0 / 0; equal elements are not their mean, and a norm multiplies the
distance with one over a deviation of 0. So the ops on the way to what decides, or to a distance from a mean or an
extremum, are marked with `EXACT`, as the distances are from the beginning.
"""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.rounding import EXACT
from kiln.lowering import paths
from kiln.lowering.tile.body import reduction_dims
from kiln.lowering.tile.dataflow import Dataflow, scalar_ops
from kiln.lowering.tile.short_formulas import CPU_FORMULAS, GPU_FORMULAS
from kiln.passes.roundings.decisions import decided, is_float
from kiln.passes.roundings.same import Numbering

__all__ = ["compared", "mark_alike", "mark_exact"]

_TAKEN = paths.group("any exact", "what decides or is compared", "the same in another kernel")

_INEXACT = {"arith.addf", "arith.subf", "arith.divf", *CPU_FORMULAS, *GPU_FORMULAS}
"""Sums that are contracted, functions with a short formula, and quotients, which are a few units off on a GPU:
`log(16 / 8) / log(16) * 8` as an integer (the bucket of a position) is then 1 instead of 2.
"""


def compared(flow: Dataflow) -> list[ir.Value]:
    """The operands of distances in a body."""
    ops = [op for g in flow.generics for op in scalar_ops(g) if op.name == "arith.subf" and EXACT in op.attributes]
    return [v for op in ops for v in op.operands]


def mark_exact(flow: Dataflow, wanted: Sequence[ir.Value], is_all: bool = False) -> bool:
    """Mark what decides in a body, and what that and `wanted` are computed from; whether there was any. wanted: what is
    compared, and results with which other kernels decide or compare. is_all: mark everything.
    """
    able = [op for g in flow.generics for op in scalar_ops(g) if _may_be_inexact(op)]
    found: set[ir.Value] = decided(flow, wanted) if able and not is_all else set()
    marked = [op for op in able if is_all or op.results[0] in found]
    for op in marked:
        _TAKEN("what decides or is compared")
        op.attributes[EXACT] = ir.UnitAttr.get()
    return bool(marked)


def mark_alike(fusions: Sequence[tuple[ir.Operation, Dataflow]]) -> None:
    """Mark, in each of several fusions, which come in order, what computes the same as something marked in another."""
    numbering = Numbering(_may_be_inexact)
    numbers = [numbering.add(fusion, flow) for fusion, flow in fusions]
    exact = {n for found in numbers for n, ops in found.items() if any(EXACT in op.attributes for op in ops)}
    for found in numbers:
        for op in (op for number in found.keys() & exact for op in found[number] if EXACT not in op.attributes):
            _TAKEN("the same in another kernel")
            op.attributes[EXACT] = ir.UnitAttr.get()


def _may_be_inexact(op: ir.Operation) -> bool:
    """Whether `op` has several forms. The order of a reduction's sums is the kernel's in any case."""
    loop = op.parent
    is_element = loop is not None and not reduction_dims(loop.opview)
    return op.name in _INEXACT and is_float(op.results[0].type) and is_element
