# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention, for as many rows of scores at a time as fit a bound on memory."""

from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir

from kiln.dialects.interpret.types import element_of, is_float

if TYPE_CHECKING:
    from kiln.dialects.interpret.interpreter import Interpreter
    from kiln.dialects.interpret.numbers import Numbers

__all__ = ["attention"]

SCORES = 1 << 25
"""Scores that are held at once."""


def attention(interpreter: "Interpreter", op: Any) -> list[Any]:
    """`kiln.attention`, by the formula, in the compute type of its operands."""
    numbers = interpreter.numbers
    view = op.operation.opview
    element = element_of(op.results[0].type)
    compute = ir.F32Type.get(element.context) if element.width < 32 else element
    operands = (view.query, view.key, view.value)
    q, k, v = (numbers.cast(interpreter.value(x), element_of(x.type), compute) for x in operands)
    *batch, heads, queries, _ = interpreter.shape(q)
    groups, keys = interpreter.shape(k)[-3:-1]
    out_shape = [*batch, heads, queries, interpreter.shape(v)[-1]]
    # Batch and heads as one dim; the key's heads are repeated as views.
    q = numbers.move(lambda x: x.reshape(-1, *x.shape[-2:]), q)
    share = heads // groups if groups else 1
    k, v = (numbers.move(lambda x: x.repeat_interleave(share, -3).reshape(-1, *x.shape[-2:]), x) for x in (k, v))
    mask, is_bool = None, False
    if view.mask is not None:
        is_bool = not is_float(element_of(view.mask.type))
        mask = interpreter.value(view.mask)
        if not is_bool:
            mask = numbers.cast(mask, element_of(view.mask.type), compute)
        mask = numbers.move(lambda x: x.expand(*batch, heads, queries, keys).reshape(-1, queries, keys), mask)
    rows = _Rows(numbers, op, compute, mask, is_bool)
    parts: list[Any] = []
    for i in range(interpreter.shape(q)[0]):
        one = [numbers.move(lambda x, i=i: x[i : i + 1], x) for x in (q, k, v)]
        parts += [rows.output(one[0], one[1], one[2], i, at, count) for at, count in _row_parts(queries, keys)]
    if not parts:
        return [numbers.lift(torch.empty(out_shape, device=interpreter.device), element)]

    def joined(*rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.reshape(-1, x.shape[-1]) for x in rows]).view(out_shape)

    whole = numbers.move(joined, *parts)
    return [numbers.cast(whole, compute, element)]


def _row_parts(queries: int, keys: int) -> list[tuple[int, int]]:
    step = max(1, SCORES // max(keys, 1))
    return [(i, min(step, queries - i)) for i in range(0, queries, step)]


class _Rows:
    """Some queries of one head."""

    def __init__(self, numbers: "Numbers", op: Any, compute: ir.Type, mask: Any, is_bool: bool) -> None:
        self.numbers, self.compute, self.mask, self.is_bool = numbers, compute, mask, is_bool
        attributes = op.attributes
        # Units for matrices take weights in the type of what they weigh.
        self.element = element_of(op.operation.opview.value.type)
        self.scale = ir.FloatAttr(attributes["scale"]).value
        self.causal = bool(ir.IntegerAttr(attributes["causal"]).value)
        self.fill = ir.FloatAttr(attributes["fill"]).value if "fill" in attributes else None

    def output(self, q: Any, k: Any, v: Any, head: int, start: int, count: int) -> Any:
        numbers, compute = self.numbers, self.compute
        q = numbers.move(lambda x: x[:, start : start + count], q)
        depth, keys = numbers.parts(q)[0].shape[-1], numbers.parts(k)[0].shape[-2]
        device = numbers.parts(q)[0].device
        if not keys:
            return numbers.move(lambda x, y: torch.zeros_like(x[..., :1]).expand(*x.shape[:-1], y.shape[-1]), q, v)
        scores = numbers.bilinear(lambda a, b: a @ b.mT, q, k, depth, compute)
        scores = self._apply("arith.mulf", scores, numbers.constant(self.scale, compute))
        removed = torch.zeros((), dtype=torch.bool, device=device)
        if self.mask is not None:
            mask = numbers.move(lambda x: x[head : head + 1, start : start + count], self.mask)
            if self.is_bool:
                low = float("-inf") if self.fill is None else self.fill
                scores = self._chosen(mask, scores, low)
            else:
                scores = self._apply("arith.addf", scores, mask)
        if self.causal:
            rows = torch.arange(start, start + count, device=device)[:, None]
            removed = torch.arange(keys, device=device)[None] > rows
            scores = self._chosen(~removed, scores, float("-inf"))
        return self._weighed(scores, v, keys)

    def _weighed(self, scores: Any, v: Any, keys: int) -> Any:
        numbers = self.numbers
        top = numbers.reduce("arith.maximumf", scores, [-1], self.compute)
        # A row with no key left: exponentials of 0, not NaN.
        none_left = numbers.parts(top)[0] == float("-inf")
        weights = self._apply("arith.subf", scores, self._chosen(~none_left, top, 0.0))
        weights = self._apply("math.exp", weights)
        total = numbers.reduce("arith.addf", weights, [-1], self.compute)
        # The quotient of the sums is that of each weight, and rounds less.
        weights = numbers.maybe_rounded(weights, self.element)
        out = numbers.bilinear(torch.matmul, weights, v, keys, self.compute)
        quotient = self._apply("arith.divf", out, total)
        if self.fill is not None:
            return quotient
        return self._chosen(numbers.parts(total)[0] != 0, quotient, 0.0)

    def _apply(self, name: str, *operands: Any) -> Any:
        return self.numbers.apply(name, self.compute, *operands)

    def _chosen(self, condition: Any, value: Any, other: float) -> Any:
        device = self.numbers.parts(value)[0].device
        filler = self.numbers.move(lambda x: x.to(device), self.numbers.constant(other, self.compute))
        return self.numbers.where(condition, value, filler)
