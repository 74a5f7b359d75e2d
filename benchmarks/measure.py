# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Timing in interleaved rounds, and errors against float64."""

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from benchmarks.case import Case, built
from benchmarks.contenders import CONTENDERS, Contender

__all__ = ["Settings", "CaseResult", "Outcome", "measure_case", "summary"]

#: Kiln and Inductor may be this many times farther from float64 than eager, and an error below FLOOR is rounding.
ERROR_FACTOR, FLOOR = 3.0, {"f32": 2e-7, "bf16": 1e-3}


@dataclass(frozen=True)
class Settings:
    """How to measure: ``sample`` seconds are filled with calls of one contender before the next one's turn."""

    threads: int = 1
    rounds: int = 25
    sample: float = 0.02
    cpu_time: bool = False
    small: bool = False
    dtype: str = "f32"


@dataclass
class Outcome:
    """One contender on one case. ``error``: relative, of the Frobenius norm, against float64 eager; ``seconds``: per
    call, one per round; ``speedup``: median over the rounds of eager's time over this one's in the same round."""

    seconds: list[float] = field(default_factory=list)
    median: float | None = None
    quartiles: tuple[float, float] | None = None
    speedup: float | None = None
    error: float | None = None
    right: bool | None = None
    failure: str = ""

    def slower(self, other: "Outcome") -> float | None:
        """How many times as long as ``other`` this took: the median over the rounds of the ratio within a round, where
        a slow phase of the machine hits both; None where one has no times."""
        if not self.seconds or not other.seconds:
            return None
        return statistics.median(a / b for a, b in zip(self.seconds, other.seconds, strict=True))


@dataclass
class CaseResult:
    """All contenders on one case."""

    case: str
    group: str
    threads: int
    outcomes: dict[str, Outcome]
    dtype: str = "f32"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def summary(error: Exception) -> str:
    """The first two lines of a message: Dynamo's own first line only says whose error it passes on."""
    return " ".join(str(error).strip().splitlines()[:2])


def _outputs(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [v for v in value if isinstance(v, torch.Tensor)]


def _error(result: Any, exact: Any) -> float:
    pairs = zip(_outputs(result), _outputs(exact), strict=True)
    return max(float((r.double() - e.double()).norm() / e.double().norm().clamp_min(1e-300)) for r, e in pairs)


def measure_case(case: Case, names: list[str], settings: Settings) -> CaseResult:
    """Compile, check and time one case with every contender of ``names``."""
    torch._dynamo.reset()
    module, inputs = built(case, settings.dtype, settings.small)
    outcomes = {name: Outcome() for name in names}
    calls: dict[str, Callable[[], Any]] = {}
    with torch.inference_mode(False), torch.no_grad():
        exact_module = copy.deepcopy(module).double()
        exact = exact_module(*(i.double() if i.is_floating_point() else i for i in inputs))
        del exact_module
        for name in names:
            call = _prepare(CONTENDERS[name], module, inputs, outcomes[name])
            if call is not None:
                outcomes[name].error = _error(call(), exact)
                calls[name] = call
        del exact
        _judge(outcomes, FLOOR[settings.dtype])
        _time(calls, outcomes, settings)
    return CaseResult(case.name, case.group, settings.threads, outcomes, settings.dtype)


def _prepare(
    contender: Contender, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], outcome: Outcome
) -> Callable[[], Any] | None:
    """A call without arguments after it has compiled, or None with the reason in ``outcome``."""
    outcome.failure = contender.unavailable()
    if outcome.failure:
        return None
    prepared = contender.prepare(module)
    try:
        prepared(*inputs)
    except Exception as error:  # one contender that fails must not end the run; the report says so
        outcome.failure = f"{type(error).__name__}: {summary(error)}"
        return None
    return lambda: prepared(*inputs)


def _judge(outcomes: dict[str, Outcome], floor: float) -> None:
    eager = outcomes["eager"].error if "eager" in outcomes else None
    for outcome in outcomes.values():
        if outcome.error is not None:
            allowed = max(ERROR_FACTOR * eager if eager is not None else 0.0, floor)
            outcome.right = outcome.error <= allowed


def _time(calls: dict[str, Callable[[], Any]], outcomes: dict[str, Outcome], settings: Settings) -> None:
    """Rounds in which everyone has a turn; who begins rotates. A call's result dies before the next call."""
    clock = time.thread_time if settings.cpu_time else time.perf_counter
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        once = time.perf_counter() - start
        repeats[name] = max(1, round(settings.sample / max(once, 1e-7)))
    order = list(calls)
    for _ in range(settings.rounds):
        for name in order:
            call, count = calls[name], repeats[name]
            call()  # untimed: brings this contender's code and data back into the caches
            start = clock()
            for _ in range(count):
                call()
            outcomes[name].seconds.append((clock() - start) / count)
        order = [*order[1:], order[0]]
    base = outcomes["eager"] if "eager" in calls else None
    for name in calls:
        mine = outcomes[name]
        mine.median = statistics.median(mine.seconds)
        if len(mine.seconds) > 1:
            low, _, high = statistics.quantiles(mine.seconds, n=4)
            mine.quartiles = (low, high)
        if base:
            mine.speedup = base.slower(mine)
