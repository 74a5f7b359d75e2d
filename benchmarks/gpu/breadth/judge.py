# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Right or wrong: Kiln's error against float64, judged by eager's in the same dtype."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

__all__ = ["Finding", "difference", "judge"]

Values = Mapping[str, torch.Tensor]

FACTOR = {torch.bfloat16: 2.0, torch.float16: 2.0, torch.float32: 4.0}
"""How much larger an error may be than eager's: an order of sums is as good as another."""
FLOOR = {torch.bfloat16: 0.25, torch.float16: 0.25, torch.float32: 8.0}
"""In units of the dtype's epsilon: what is allowed where eager happens to be exact."""
PEAK_FACTOR, PEAK_FLOOR = 4.0, {torch.bfloat16: 4.0, torch.float16: 4.0, torch.float32: 16.0}
"""The same for the largest error of one element over the tensor's root mean square: a few wrong elements are a small
part of a norm."""


@dataclass(frozen=True)
class Finding:
    """The tensor that is furthest from its limits, or one that is wrong: `reason` says how, empty if all are right."""

    reason: str = ""
    where: str = ""
    error: float = 0.0
    eager_error: float = 0.0
    share: float = 0.0
    """Of the limit that was used up."""


@dataclass(frozen=True)
class _Error:
    norm: float
    peak: float


def judge(found: Values, eager: Values, exact: Values, dtype: torch.dtype) -> Finding:
    """Compare name by name.

    Gradients of few elements have errors by luck: eager's error over all tensors of their group (the part of a name
    before the first dot) counts for each one of it.
    """
    if found.keys() != exact.keys():
        return Finding(f"values differ: {sorted(found.keys() ^ exact.keys())[:4]}")
    groups = _group_errors(eager, exact)
    worst = Finding()
    for name, reference in exact.items():
        current = _one(name, found[name], eager[name], reference, dtype, groups.get(name.partition(".")[0], 0.0))
        if (bool(current.reason), current.share) > (bool(worst.reason), worst.share):
            worst = current
    return worst


def difference(first: Values, second: Values, exact: Values) -> float:
    """The largest relative difference between two calls, over the norm of the reference."""
    found = 0.0
    for name, reference in exact.items():
        if reference.is_floating_point() and reference.numel():
            norm = _finite(reference).norm().item()
            delta = (_finite(first[name]) - _finite(second[name])).norm().item()
            found = max(found, delta / norm if norm else math.inf if delta else 0.0)
        elif not torch.equal(first[name], second[name]):
            return math.inf
    return found


def _one(
    name: str, found: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, group: float
) -> Finding:
    if found.shape != eager.shape or found.dtype != eager.dtype:
        return Finding(f"{list(found.shape)} {found.dtype} for {list(eager.shape)} {eager.dtype}", name)
    if not exact.numel():
        return Finding()
    if not exact.is_floating_point():
        wrong = not torch.equal(found, eager) and torch.equal(eager, exact)
        return Finding("other integers" if wrong else "", name)
    lost = (~torch.isfinite(found) & torch.isfinite(eager) & torch.isfinite(exact)).sum().item()
    if lost:
        return Finding(f"{lost} of {found.numel()} NaN or Inf", name)
    infinite = ~torch.isfinite(exact) & ~torch.isfinite(eager)
    if infinite.any() and torch.isfinite(found[infinite]).any():
        return Finding("finite where eager is not", name)
    ours, theirs = _error(found, exact), _error(eager, exact)
    epsilon = torch.finfo(dtype).eps
    luck = 1 + 4 / math.sqrt(exact.numel())
    limit = FACTOR[dtype] * luck * max(theirs.norm, group) + FLOOR[dtype] * epsilon
    peak_limit = PEAK_FACTOR * luck * max(theirs.peak, group) + PEAK_FLOOR[dtype] * epsilon
    share = max(ours.norm / limit, ours.peak / peak_limit)
    reason = ""
    if ours.norm > limit:
        reason = f"error {ours.norm:.2e}, eager's {theirs.norm:.2e}"
    elif ours.peak > peak_limit:
        reason = f"an element is off by {ours.peak:.2e} of the mean, eager's by {theirs.peak:.2e}"
    return Finding(reason, name, ours.norm, theirs.norm, share)


def _error(found: torch.Tensor, exact: torch.Tensor) -> _Error:
    """Over the elements where both are finite."""
    wide = exact.double()
    delta = torch.nan_to_num(found.double() - wide, nan=0.0, posinf=0.0, neginf=0.0)
    finite = _finite(exact)
    norm, scale = finite.norm().item(), finite.norm().item() / math.sqrt(exact.numel())
    if norm == 0:
        size = delta.norm().item()
        return _Error(size, size)
    return _Error(delta.norm().item() / norm, delta.abs().max().item() / scale)


def _group_errors(eager: Values, exact: Values) -> dict[str, float]:
    """Eager's error over all gradients together."""
    deltas: dict[str, float] = {}
    norms: dict[str, float] = {}
    for name, reference in exact.items():
        if name.startswith("gradient.") and reference.numel():
            delta = _finite(eager[name].double() - reference.double()).norm().item() ** 2
            deltas["gradient"] = deltas.get("gradient", 0.0) + delta
            norms["gradient"] = norms.get("gradient", 0.0) + _finite(reference).norm().item() ** 2
    return {group: math.sqrt(deltas[group] / norms[group]) for group in deltas if norms[group]}


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(tensor.double(), nan=0.0, posinf=0.0, neginf=0.0)
