# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Elements of a thread, where neighbouring elements are not loaded together.

Triton gives a thread as many neighbours as one load or store takes, 16 bytes. Where neighbours of the result are loaded
one by one (windows, strides, gathers), the threads of a warp then load from places that are far apart, each in a sector
of its own. With few elements each, a warp's loads share sectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.walk import defining_op
from kiln.lowering.gpu.rules import LoopRules, rules_for
from kiln.lowering.tile.access import Access, Accesses, element_bytes
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.bounds import without_casts

__all__ = ["thread_elements"]

_VECTOR = 16
"""Bytes that a thread loads at once."""


@dataclass(frozen=True)
class _Load:
    """step: elements between neighbours. count: loads for an element. apart: neighbours are loaded one by one."""

    step: int
    bytes: int
    count: int
    apart: bool


def thread_elements(
    body: FusionBody, layouts: Sequence[ir.AffineMap], accesses: Accesses, innermost: int
) -> int | None:
    """Elements for each thread of a nest whose neighbours are those of the dim `innermost`; None where loads of whole
    vectors decide.
    """
    rules = rules_for(LoopRules)
    windows = _windows(accesses, innermost)
    if windows:
        span, count = max(w.step * w.bytes for w in windows), max(w.count for w in windows)
        fewest, few, most = rules.window_elements
        least = fewest if count >= rules.many_loads else few
        return max(least, min(most, _power(rules.window_span / span)))
    spans = _gathered(body, layouts, accesses, innermost)
    few, most = rules.gather_elements
    return max(few, min(most, _power(rules.gather_span / max(spans)))) if spans else None


def _power(n: float) -> int:
    """The largest power of two that is not above n; 1 below it."""
    return 1 << max(0, int(n).bit_length() - 1)


def _windows(accesses: Accesses, innermost: int) -> list[_Load]:
    """What is loaded of tensors that are read in steps or in windows."""
    loads: dict[int, list[_Load]] = {}
    for a in accesses.found:
        found = None if a.stored else _load(a, accesses, innermost)
        if found is not None and a.operand is not None:
            loads.setdefault(a.operand, []).append(found)
    sums = [
        _Load(max(f.step for f in all_), all_[0].bytes, sum(f.count for f in all_), any(f.apart for f in all_))
        for all_ in loads.values()
    ]
    few = rules_for(LoopRules).window_loads
    return [w for w in sums if w.apart and (w.step > 1 or w.count >= few)]


def _load(a: Access, accesses: Accesses, innermost: int) -> _Load | None:
    """How neighbours are loaded; None where that is not known, or all of them load one element."""
    line = affine.linear_coefficients(a.offset)
    step = None if line is None else affine.constant_of(line[1].get(innermost, ir.AffineConstantExpr.get(0)))
    if line is None or not step:
        return None
    inner = [d for d in line[1] if d in accesses.inner]
    starts = [affine.constant_of(c) for c in (line[0], *(line[1][d] for d in inner))]
    apart = abs(step) > 1 or any(c is None or c * a.bytes % _VECTOR for c in starts)
    return _Load(abs(step), a.bytes, prod(accesses.loops.count(d) for d in inner), apart)


def _gathered(body: FusionBody, layouts: Sequence[ir.AffineMap], accesses: Accesses, innermost: int) -> list[float]:
    """Bytes between the elements that neighbours gather, if positions went once through a tensor; for each gather
    whose neighbours are not neighbours in memory by themselves.
    """
    spans: list[float] = []
    generics = [op for op in body.operations if op.operation.name == "linalg.generic"]
    for op in [o.operation for generic in generics for o in generic.regions[0].blocks[0]]:
        if op.name != "tensor.extract":
            continue
        position = body.argument_position(op.operands[0])
        line = None if position is None else affine.linear_coefficients(layouts[position].results[0])
        if line is None:
            return []
        near = [d for d, c in line[1].items() if affine.constant_of(c) == 1]
        type_ = ir.RankedTensorType(op.operands[0].type)
        if not near or type_.is_dynamic_dim(near[0]) or _is_loop(op.operands[1 + near[0]]):
            return []
        # Of nothing there is nothing to load; its kernel is planned all the same.
        size, count = max(1, type_.shape[near[0]]), max(1, accesses.loops.count(innermost))
        spans.append(element_bytes(type_) * size / count)
    return spans


def _is_loop(position: ir.Value) -> bool:
    """Whether a position is the index of a loop."""
    op = defining_op(without_casts(position))
    return op is not None and op.name == "linalg.index"
