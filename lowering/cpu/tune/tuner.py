# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Choosing a CPU kernel's schedule by running candidates."""

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.schedules import from_attribute
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.tune.candidates import candidates
from kiln.lowering.cpu.tune.residence import outside, reach_of
from kiln.lowering.cpu.tune.trial import Trial
from kiln.lowering.tune.difference import difference
from kiln.lowering.tune.tuner import Contest, Tuner
from kiln.runtime.threads import max_threads

__all__ = ["CpuTuner"]

MAX_CANDIDATES = 8


class CpuTuner(Tuner):
    """Finds schedules of kernels for the CPU that code is made for, in this thread and those that share its kernels."""

    margin = 1.03

    @override
    def circumstances(self, fusion: ir.OpView) -> tuple[object, ...]:
        return outside(fusion), reach_of(fusion)

    @override
    def machine(self) -> tuple[object, ...]:
        return isa.target(), max_threads()

    def prepared(self, fusion: ir.OpView) -> Contest:
        """Compile the candidates for a fusion, and run each once."""
        default = from_attribute(fusion.operation.attributes["schedule"])
        trial = Trial(fusion, max_threads())
        others = candidates(trial.body, trial.layouts, default)[:MAX_CANDIDATES]
        contest = Contest.of(fusion, default, others)
        contest.enter(default, "default", trial.prepare(default))
        for schedule in others:
            label = difference(schedule, default)
            try:
                contest.enter(schedule, label, trial.prepare(schedule))
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a candidate, the default is there
                contest.discard(label, error)
        return contest
