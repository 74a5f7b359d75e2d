# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Right or wrong: Kiln's error against a wider dtype, judged by eager's in the same dtype."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

__all__ = ["Finding", "apart", "judge", "output_error"]

Values = Mapping[str, torch.Tensor]
_GRADIENT = "gradient."

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


def judge(found: Values, eager: Values, exact: Values, dtype: torch.dtype, perturbed: Sequence[Values] = ()) -> Finding:
    """Compare name by name.

    Gradients of few elements have errors by luck: eager's error over all gradients counts for each of them.
    `perturbed`: the exact values of perturbed parameters, whose distance counts like an error of eager's.
    """
    if found.keys() != exact.keys():
        return Finding(f"values differ: {sorted(found.keys() ^ exact.keys())[:4]}")
    groups = [_over_gradients(other, exact) for other in (eager, *perturbed)]
    worst = Finding()
    for name, reference in exact.items():
        others = [eager[name], *(values[name] for values in perturbed)]
        floor = max(groups) if name.startswith(_GRADIENT) else 0.0
        current = _one(name, found[name], others, reference, dtype, floor)
        if (bool(current.reason), current.share) > (bool(worst.reason), worst.share):
            worst = current
    return worst


def apart(first: Values, second: Values, eager: Values, exact: Values, dtype: torch.dtype) -> tuple[float, str]:
    """How far two calls are apart, relative to the norm of the tensor that differs most; and what is wrong with it.

    Sums may be made in another order each time, which is as much as eager is off.
    """
    group = _over_gradients(eager, exact)
    most, reason = 0.0, ""
    for name, reference in exact.items():
        if first[name].shape != second[name].shape or not reference.numel() or torch.equal(first[name], second[name]):
            continue
        if not reference.is_floating_point():
            return math.inf, f"{name} has other integers from call to call"
        distance, theirs = _error(second[name], first[name]).norm, _error(eager[name], reference).norm
        if not math.isfinite(distance):
            continue
        floor = group if name.startswith(_GRADIENT) else 0.0
        luck = 1 + 4 / math.sqrt(reference.numel())
        limit = luck * max(theirs, floor) + FLOOR[dtype] * torch.finfo(dtype).eps
        most = max(most, min(distance, 1.0))
        if distance > limit and not reason:
            reason = f"calls differ by {distance:.2e} in {name} (eager's error {theirs:.1e})"
    return most, reason


def _one(
    name: str, found: torch.Tensor, others: list[torch.Tensor], exact: torch.Tensor, dtype: torch.dtype, floor: float
) -> Finding:
    """`others`: eager's, and those of perturbed parameters; floor: the least error that they are taken to have."""
    eager = others[0]
    if found.shape != eager.shape or found.dtype != eager.dtype:
        return Finding(f"{list(found.shape)} {found.dtype} for {list(eager.shape)} {eager.dtype}", name)
    if not exact.numel():
        return Finding()
    if not exact.is_floating_point():
        wrong = not torch.equal(found, eager) and all(torch.equal(other, exact) for other in others)
        return Finding("other integers" if wrong else "", name)
    lost = (~torch.isfinite(found) & torch.isfinite(eager) & torch.isfinite(exact)).sum().item()
    if lost:
        return Finding(f"{lost} of {found.numel()} NaN or Inf", name)
    infinite = ~torch.isfinite(exact) & ~torch.isfinite(eager)
    if infinite.any() and torch.isfinite(found[infinite]).any():
        return Finding("finite where eager is not", name)
    ours, theirs = _error(found, exact), [_error(other, exact) for other in others]
    norm, peak = max(error.norm for error in theirs), max(error.peak for error in theirs)
    epsilon = torch.finfo(dtype).eps
    luck = 1 + 4 / math.sqrt(exact.numel())
    limit = FACTOR[dtype] * luck * max(norm, floor) + FLOOR[dtype] * epsilon
    peak_limit = PEAK_FACTOR * luck * max(peak, floor) + PEAK_FLOOR[dtype] * epsilon
    share = max(ours.norm / limit, ours.peak / peak_limit)
    reason = ""
    if ours.norm > limit:
        reason = f"error {ours.norm:.2e}, eager's {theirs[0].norm:.2e}"
    elif ours.peak > peak_limit:
        reason = f"an element is off by {ours.peak:.2e} of the mean, eager's by {theirs[0].peak:.2e}"
    return Finding(reason, name, ours.norm, theirs[0].norm, share)


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


def output_error(values: Values, exact: Values) -> float:
    """The largest relative error of a result; gradients do not count."""
    names = [name for name, value in exact.items() if name.startswith("output.") and value.is_floating_point()]
    return max((_error(values[name], exact[name]).norm for name in names if exact[name].numel()), default=0.0)


def _over_gradients(values: Values, exact: Values) -> float:
    """The error over all gradients together."""
    delta = norm = 0.0
    for name, reference in exact.items():
        if name.startswith(_GRADIENT):
            delta += _finite(values[name].double() - reference.double()).norm().item() ** 2
            norm += _finite(reference).norm().item() ** 2
    return math.sqrt(delta / norm) if norm else 0.0


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(tensor.double(), nan=0.0, posinf=0.0, neginf=0.0)
