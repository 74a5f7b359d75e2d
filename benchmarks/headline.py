# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a run comes down to: Kiln beside Inductor with the same settings, beside eager, and in compile time."""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.measure import CaseResult, Outcome

__all__ = ["SETTINGS", "Standing", "headline", "headline_lines", "standings"]

#: What is added to a contender's name for each of the settings that Kiln and Inductor share.
SETTINGS = ("", "-freezing", "-max-autotune", "-max-autotune-freezing")


@dataclass(frozen=True)
class Standing:
    """Time of ``against`` over that of ``kiln`` (with the same settings), on the cases of a group that both ran: the
    geometric mean, how many there are, and the case with the least."""

    against: str
    kiln: str
    group: str
    dtype: str
    threads: int
    mean: float
    count: int
    least_case: str
    least: float


def standings(results: Sequence[CaseResult]) -> list[Standing]:
    """One for each group, dtype, thread count and setting that was measured."""
    found = []
    keys = dict.fromkeys((r.group, r.dtype, r.threads) for r in results)
    pairs = [
        (f"{rival}{s}" if rival != "eager" else rival, f"kiln{s}") for rival in ("inductor", "eager") for s in SETTINGS
    ]
    for (group, dtype, threads), (rival, kiln) in itertools.product(keys, pairs):
        ratios: dict[str, float] = {}
        for result in results:
            theirs, ours = (result.outcomes.get(name, Outcome()) for name in (rival, kiln))
            gain = theirs.slower(ours)
            if (result.group, result.dtype, result.threads) == (group, dtype, threads) and gain:
                ratios[result.case] = gain
        if ratios:
            least = min(ratios, key=lambda case: ratios[case])
            mean = statistics.geometric_mean(ratios.values())
            found.append(Standing(rival, kiln, group, dtype, threads, mean, len(ratios), least, ratios[least]))
    return found


_COMPILE_FIGURES = {
    "compile": ("cold compilation", ("compile",)),
    "cpu": ("cold compilation, CPU time", ("cpu",)),
    "first": ("cold compilation with the compiler's start", ("compile", "start")),
    "warm": ("warm compilation", ("warm",)),
    "warm_cpu": ("warm compilation, CPU time", ("warm_cpu",)),
    "warm_first": ("warm compilation with the compiler's start", ("warm", "warm_start")),
}
"""What is told of `measure_cold`'s figures: in words, and whose sum it is."""


def _compile_gains(cold: dict[str, dict[str, Any]], parts: Sequence[str]) -> dict[str, float]:
    """The sum of Inductor's figures over that of Kiln's, by case."""
    return {
        case: sum(found["inductor"][part] for part in parts) / sum(found["kiln"][part] for part in parts)
        for case, found in cold.items()
        if all(found.get(name, {}).get(part) for name in ("inductor", "kiln") for part in parts)
    }


def headline(results: Sequence[CaseResult], cold: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """For JSON: ``standings``, gains in compile time (mean, least case, least) by figure, wrong results."""
    compile_gains = {}
    for key, (_, parts) in _COMPILE_FIGURES.items():
        gains = _compile_gains(cold, parts)
        if gains:
            worst = min(gains, key=lambda case: gains[case])
            compile_gains[key] = [statistics.geometric_mean(gains.values()), worst, gains[worst]]
    return {
        "standings": [asdict(standing) for standing in standings(results)],
        "compile_gains": compile_gains,
        "wrong": [f"{r.case}, {r.dtype}: {n}" for r in results for n, o in r.outcomes.items() if o.right is False],
    }


def headline_lines(results: Sequence[CaseResult], cold: dict[str, dict[str, Any]]) -> list[str]:
    """The same as text, a line each."""
    lines = []
    for s in standings(results):
        what = f"{s.group}, {s.dtype}, {s.threads} threads: {s.against} / {s.kiln}"
        lines.append(f"{what}: {s.mean:.2f} (geometric mean of {s.count}), least {s.least:.2f} ({s.least_case})")
    for key, (mean, case, least) in headline(results, cold)["compile_gains"].items():
        lines.append(
            f"{_COMPILE_FIGURES[key][0]}: inductor / kiln: {mean:.2f} (geometric mean), least {least:.2f} ({case})"
        )
    return lines
