# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Choosing a GPU kernel's schedule by running candidates."""

from dataclasses import dataclass, field

import torch
from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.schedules import from_attribute
from kiln.lowering.gpu.dot.fusions import DotOptions
from kiln.lowering.gpu.rules import TuningRules, rules_for
from kiln.lowering.gpu.tune.candidates import candidates
from kiln.lowering.gpu.tune.measure import replay_times
from kiln.lowering.gpu.tune.trial import GpuTrial, Started
from kiln.lowering.tune.difference import difference
from kiln.lowering.tune.measure import Measure
from kiln.lowering.tune.operands import no_trial
from kiln.lowering.tune.store import Found, TunedSchedules
from kiln.lowering.tune.tuner import Contest, Tuner

__all__ = ["GpuTuner"]

MAX_CANDIDATES = 12


class GpuTuner(Tuner):
    """Finds schedules of kernels for the GPU `device`, remembering them in `store`.

    Args:
        options: what the kernels may do, and the GPU that they are for, as `schedule-gpu` was told.
        seconds: how long the candidates of one kernel are timed; Triton compiles them at once, in threads.
        measure: times runs, see `Measure`; by default replays of CUDA graphs.
    """

    margin = rules_for(TuningRules).margin

    def __init__(
        self,
        store: TunedSchedules,
        options: DotOptions,
        device: str = "cuda:0",
        seconds: float = 0.5,
        measure: Measure | None = None,
    ) -> None:
        super().__init__(store, seconds, measure or replay_times)
        self.options, self.device = options, device

    @override
    def machine(self) -> tuple[object, ...]:
        return self.options, chip_name(self.device)

    @override
    def circumstances(self, fusion: ir.OpView) -> tuple[object, ...]:
        return ()

    def prepared(self, fusion: ir.OpView) -> Contest:
        """Have the candidates for a fusion compiled, in other threads: `decide` runs them."""
        if torch.device(self.device).type == "cuda" and not torch.cuda.is_available():
            raise no_trial(fusion, "there is no GPU to run it on")
        default = from_attribute(fusion.operation.attributes["schedule"])
        trial = GpuTrial(fusion, self.device, self.options.arch)
        known = trial.known
        others = candidates(known.body, known.layouts, default, self.options)[:MAX_CANDIDATES]
        contest = _Compiling.of(fusion, default, others)
        contest.trial = trial
        contest.started.append(("default", trial.start(default)))
        for schedule in others:
            label = difference(schedule, default)
            try:
                contest.started.append((label, trial.start(schedule)))
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a candidate, the default is there
                contest.discard(label, error)
        return contest

    @override
    def decide(self, fusion: ir.OpView, contest: Contest) -> Found:
        assert isinstance(contest, _Compiling)
        (_, own), *others = contest.started
        try:
            contest.enter(own.schedule, "default", contest.trial.prepare(own))
        except torch.OutOfMemoryError:
            raise no_trial(fusion, "no memory for its operands beside those of the model") from None
        except (RuntimeError, AssertionError) as error:
            raise no_trial(fusion, f"it cannot be run: {_first_line(error)}") from error
        for label, candidate in others:
            try:
                contest.enter(candidate.schedule, label, contest.trial.prepare(candidate))
            except Exception as error:  # noqa: BLE001 - as above
                contest.discard(label, error)
        return super().decide(fusion, contest)


@dataclass
class _Compiling(Contest):
    """A contest whose entries are compiled, and not yet run: the default, then the others."""

    started: list[tuple[str, Started]] = field(default_factory=list[tuple[str, Started]])
    trial: GpuTrial = field(init=False)


def chip_name(device: str) -> str:
    """The GPU's product name: two of one architecture may differ in multiprocessors and memory."""
    if torch.device(device).type != "cuda" or not torch.cuda.is_available():
        return device
    return torch.cuda.get_device_name(device)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
