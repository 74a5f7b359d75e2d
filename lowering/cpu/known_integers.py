# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is known of integers that are computed at run time: bounds, and a number that divides them.

Sizes of tiles follow from minima such as ``min(k - k0, 384)`` in a loop over k0, which are values even where k is
known, and with them come code for tails that never run and masks that are always on. Code that is not emitted is not
lowered, optimised and thrown away either, so an integer that can only have one value is a Python int again: with
k = 768 the minimum above is 384, and `cols - round_down(cols, 16)` is 0 where 16 divides all that `cols` is made of.

As elsewhere in code generation, integers do not overflow, and those that are divided are not negative.
"""

from math import gcd, inf

from torch_mlir import ir
from typing_extensions import override

from kiln.lowering.ir_builder import Condition, Index, IRBuilder

__all__ = ["KnownIntegers"]

Bound = int | float
"""An int, or -inf or inf."""

Fact = tuple[Bound, Bound, int]
"""Least and greatest value, and a divisor (0: the value is 0)."""

_NOTHING: Fact = (-inf, inf, 1)
_NEGATED = {"ne": "eq", "sge": "slt", "sgt": "sle"}


class KnownIntegers(IRBuilder):
    """A builder that remembers facts about the integers it computes, and emits none that it knows."""

    def __init__(self, entry: ir.Block):
        super().__init__(entry)
        self._facts: dict[ir.Value, Fact] = {}
        self._loops: dict[ir.Value, tuple[Index, Index, int]] = {}  # induction variable -> lower, upper, step

    def known(self, x: Index) -> Fact:
        """Bounds and divisor of an integer."""
        if isinstance(x, int):
            return x, x, abs(x)
        return self._facts.get(x, _NOTHING)

    def _is_multiple(self, x: Index, of: int) -> bool:
        return of != 0 and self.known(x)[2] % of == 0

    def _learn(self, x: Index, low: Bound, high: Bound, divisor: int) -> Index:
        """`x` with what is known of it; an int where it can only have one value."""
        if isinstance(x, int):
            return x
        if low == high and isinstance(low, int):
            return low
        if low != -inf or high != inf or divisor != 1:
            self._facts[x] = (low, high, divisor)
        return x

    # -- arithmetic --------------------------------------------------------------------------------------

    @override
    def addi(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        (low, high, p), (low1, high1, q) = self.known(x), self.known(y)
        return self._learn(super().addi(x, y), low + low1, high + high1, gcd(p, q))

    @override
    def subi(self, x: Index, y: Index) -> Index:
        if not isinstance(x, int) and x == y:
            return 0
        (low, high, p), (low1, high1, q) = self.known(x), self.known(y)
        least, most = low - high1, high - low1
        if not isinstance(y, int) and y in self._loops:  # what is left of a loop
            lower, upper, step = self._loops[y]
            if not isinstance(upper, int) and upper == x:
                whole = self._is_multiple(upper, step) and self._is_multiple(lower, step)
                least = max(least, step if whole else 1)
        if least == most and isinstance(least, int):
            return least
        return self._learn(super().subi(x, y), least, most, gcd(p, q))

    @override
    def muli(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        (low, high, p), (low1, high1, q) = self.known(x), self.known(y)
        if low < 0 or low1 < 0:
            return self._learn(super().muli(x, y), -inf, inf, p * q)
        high2 = inf if inf in (high, high1) else high * high1
        low2 = 0 if inf in (low, low1) else low * low1
        return self._learn(super().muli(x, y), low2, high2, p * q)

    @override
    def divi(self, x: Index, y: Index) -> Index:
        if x == 0 or y == 0:  # by zero: in code for a tensor without elements, which never runs
            return 0
        if isinstance(x, int) or not isinstance(y, int):
            return super().divi(x, y)
        low, high, p = self.known(x)
        least = int(low) // y if 0 < low < inf else 0
        most = int(high) // y if high < inf else inf
        if low >= 0 and least == most:
            return least
        return self._learn(super().divi(x, y), least, most, p // y if p % y == 0 else 1)

    @override
    def remi(self, x: Index, y: Index) -> Index:
        if x == 0 or y == 0:
            return 0
        if isinstance(x, int) or not isinstance(y, int):
            return super().remi(x, y)
        low, high, p = self.known(x)
        if p % y == 0:
            return 0
        if low >= 0 and high < y:
            return x
        return self._learn(super().remi(x, y), 0, y - 1, gcd(p, y))

    @override
    def ceildivi(self, x: Index, y: Index) -> Index:
        if isinstance(y, int) and self._is_multiple(x, y):
            return self.divi(x, y)
        return super().ceildivi(x, y)

    @override
    def mini(self, x: Index, y: Index) -> Index:
        (low, high, p), (low1, high1, q) = self.known(x), self.known(y)
        if high <= low1:
            return x
        if high1 <= low:
            return y
        return self._learn(super().mini(x, y), min(low, low1), min(high, high1), gcd(p, q))

    @override
    def maxi(self, x: Index, y: Index) -> Index:
        (low, high, p), (low1, high1, q) = self.known(x), self.known(y)
        if high <= low1:
            return y
        if high1 <= low:
            return x
        return self._learn(super().maxi(x, y), max(low, low1), max(high, high1), gcd(p, q))

    # -- conditions and control flow -----------------------------------------------------------------------

    @override
    def cmpi(self, predicate: str, x: Index, y: Index) -> Condition:
        if isinstance(x, int) and isinstance(y, int):
            return super().cmpi(predicate, x, y)
        known = self._compare(_NEGATED.get(predicate, predicate), x, y)
        if known is None:
            return super().cmpi(predicate, x, y)
        return not known if predicate in _NEGATED else known

    def _compare(self, predicate: str, x: Index, y: Index) -> bool | None:
        """Whether a comparison (eq, slt, sle) holds; None where that is not known."""
        (low, high, _), (low1, high1, _) = self.known(x), self.known(y)
        if predicate == "eq":
            if high < low1 or high1 < low:
                return False
            return True if not isinstance(x, int) and not isinstance(y, int) and x == y else None
        if predicate == "slt":
            return True if high < low1 else False if low >= high1 else None
        if predicate == "sle":
            return True if high <= low1 else False if low > high1 else None
        return None

    def _few_trips(self, lower: Index, upper: Index, step: Index) -> int | None:
        if isinstance(upper, ir.Value) and isinstance(lower, int) and isinstance(step, int):
            low, high, _ = self.known(upper)
            if high <= lower:
                return 0
            if low > lower and high <= lower + step:
                return 1
        return super()._few_trips(lower, upper, step)

    def _enter_loop(self, i: ir.Value, lower: Index, upper: Index, step: Index) -> None:
        if not isinstance(step, int):
            return
        low, _, p = self.known(lower)
        high = self.known(upper)[1]
        most = high - 1
        if isinstance(lower, int) and isinstance(high, int):
            most = lower + (high - 1 - lower) // step * step
        self._learn(i, low, most, gcd(p, step))
        self._loops[i] = (lower, upper, step)
