# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whether two evaluations of a function differ by more than rounding can explain.

Three things are compared. ``exact``: the function in float64, without the roundings in between. ``before`` and
``after``: two forms of it in the element types of the IR. A result is wrong where its error against ``exact`` is
several times that of ``before``, and more than the error model allows; or where most of its elements differ from
``before`` though each op was to compute and to round as it did: a dropped or an added rounding changes them all, while
another order of additions changes few by more than the last bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ["Difference", "compare"]

_GROWTH = 8.0
"""How many times the error of the form before may grow: sums in another order are as good as each other."""

_ULPS = 16.0
"""What each form may be off by, in units of the last place of the arithmetic, times the root of the terms summed."""

_FLIPS = 0.02
"""The share of elements that may round to the other side where the arithmetic before the rounding differs a little."""

_EPS = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


@dataclass(frozen=True)
class Difference:
    """One result that is wrong: its ``error`` at the worst element, relative to the values, and what is allowed."""

    result: int
    error: float
    allowed: float
    index: tuple[int, ...]
    expected: float
    found: float
    what: str

    def __str__(self) -> str:
        place = f"[{', '.join(map(str, self.index))}]"
        return (
            f"result {self.result}{place}: {self.what}: expected {self.expected:.8g}, found {self.found:.8g} "
            f"(relative error {self.error:.2g}, {self.allowed:.2g} allowed)"
        )


def compare(
    exact: Sequence[torch.Tensor],
    before: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
    *,
    terms: int = 1,
    specials: bool = False,
    fast_math: bool = False,
    roundings: bool = True,
    tame: Sequence[torch.Tensor] | None = None,
) -> Difference | None:
    """The first result of ``after`` that is wrong; None where all are right.

    Args:
        exact: results in float64 (integers and bools in their own types).
        before, after: results in the element types of the IR.
        terms: of the longest sum in the function.
        specials: inputs hold infinities, NaN and the like; only elements that ``before`` computes well are compared.
        fast_math: a rewrite was allowed to change last bits, and elements that are no numbers.
        roundings: ``after`` is to round where ``before`` does.
        tame: results in float64 on the same inputs without their infinities. What is NaN in ``exact`` and a number here
            is a difference of infinities, or a product of one with zero: which of NaN and infinity comes out of a
            formula that mathematics leaves undefined depends on the order of its terms, so it may be either.
    """
    if len(before) != len(after):
        return Difference(min(len(before), len(after)), 1.0, 0.0, (), len(before), len(after), "number of results")
    for number, (e, b, a) in enumerate(zip(exact, before, after, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            what = f"{b.dtype} {list(b.shape)} became {a.dtype} {list(a.shape)}"
            return Difference(number, 1.0, 0.0, (), b.numel(), a.numel(), what)
        if _are_identical(a, b):
            continue
        if a.dtype.is_complex:
            e, b, a = (torch.view_as_real(t) for t in (e, b, a))
        if not a.dtype.is_floating_point:
            found = _integers(number, e, b, a)
        else:
            calm = None if tame is None or before[number].dtype.is_complex else tame[number]
            found = _floats(number, e, b, a, calm, _Model(terms, specials, fast_math, roundings))
        if found is not None:
            return found
    return None


def _are_identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    """To the bit, so that NaN is what it was: most passes change nothing of what is computed."""
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(a.dtype.itemsize)
    return bits is not None and torch.equal(a.view(bits), b.view(bits))


def _integers(number: int, exact: torch.Tensor, before: torch.Tensor, after: torch.Tensor) -> Difference | None:
    """Elements that hang on rounding (comparisons of nearly equal numbers) differ between ``exact`` and ``before``."""
    stable = exact.to(before.dtype) == before
    wrong = stable & (after != before)
    count = int(wrong.sum())
    if count <= before.numel() // 1000:
        return None
    index = _first(wrong)
    share = count / before.numel()
    return Difference(number, share, 1e-3, index, float(before[index]), float(after[index]), f"{share:.0%} of elements")


@dataclass(frozen=True)
class _Model:
    """What may differ: see ``compare``."""

    terms: int
    specials: bool
    fast_math: bool
    roundings: bool


def _floats(
    number: int,
    exact: torch.Tensor,
    before: torch.Tensor,
    after: torch.Tensor,
    tame: torch.Tensor | None,
    model: _Model,
) -> Difference | None:
    terms, specials, fast_math = model.terms, model.specials, model.fast_math
    eps = _EPS.get(before.dtype, 2.0**-2)
    reference, b, a = exact.double(), before.double(), after.double()
    known = reference.isfinite() & b.isfinite()
    if not fast_math:
        # What float64 says as well is no matter of rounding: infinities stay what they are, and NaN stays NaN, where
        # it comes from the inputs. Else it is memory that was never written, which may hold anything.
        same = known | (~reference.isfinite() & (reference == b))
        if specials:
            same |= reference.isnan() & b.isnan()
        alike = (a == b) | (a.isnan() & b.isnan())
        if tame is not None:
            alike |= b.isnan() & a.isinf() & ~tame.isnan()
        classes = torch.where(known, ~a.isfinite(), ~alike)
        wrong = same & classes
        # A sum of huge terms is an infinity or no number by the order, or the fusing, of its additions.
        few = wrong.numel() // 1000 if specials and terms > 1 else 0
        if int(wrong.sum()) > few:
            index = _first(wrong)
            return Difference(number, float("inf"), 0.0, index, float(b[index]), float(a[index]), "not the same kind")
    known &= a.isfinite()
    if not bool(known.any()):
        return None
    zero = torch.zeros((), dtype=torch.float64)
    size = torch.where(known, reference.abs(), zero)
    # Elements near zero are differences of larger ones: measured by what is usual in the tensor. The usual one is a
    # median where specials are among the inputs, which would make a mean as large as they are.
    usual = float(size[known].median()) if specials else float(size[known].square().mean().sqrt())
    scale = torch.clamp(size, min=max(usual, 1e-300))
    noise = torch.where(known, (b - reference).abs() / scale, zero)
    error = torch.where(known, (a - reference).abs() / scale, zero)
    worst = noise if specials else noise.max()
    slack = _ULPS * (64 if fast_math else 1)
    allowed = _GROWTH * worst + slack * (eps + 2.0**-23 * terms**0.5 if eps > 2.0**-40 else eps * terms**0.5)
    wrong = error > allowed
    if bool(wrong.any()):
        index = _first(error == error.max())
        limit = allowed[index] if specials else allowed
        return Difference(
            number, float(error[index]), float(limit), index, float(reference[index]), float(a[index]), "other numbers"
        )
    return None if fast_math or specials or not model.roundings else _roundings(number, b, a, known, scale, eps, terms)


def _roundings(
    number: int,
    before: torch.Tensor,
    after: torch.Tensor,
    known: torch.Tensor,
    scale: torch.Tensor,
    eps: float,
    terms: int,
) -> Difference | None:
    """Many elements that differ by more than the arithmetic of their type does: a rounding was dropped or added."""
    limit = _ULPS * min(eps, 2.0**-23) * terms**0.5
    apart = torch.where(known, (after - before).abs() / scale, torch.zeros((), dtype=torch.float64))
    # At most this share of the elements is expected where a difference of `limit` flips a rounding to `eps`.
    share = float((apart > limit).double().mean())
    allowed = max(_FLIPS, 4 * limit / eps if eps > 2.0**-20 else 0.0)
    if share <= allowed or int((apart > limit).sum()) < 4:
        return None
    index = _first(apart == apart.max())
    what = f"{share:.0%} of elements are rounded otherwise"
    return Difference(number, float(apart[index]), limit, index, float(before[index]), float(after[index]), what)


def _first(mask: torch.Tensor) -> tuple[int, ...]:
    place = mask.nonzero()
    return tuple(int(i) for i in place[0]) if len(place) else ()
