# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A GPU's kernels on the CPU, as a target: for looking at numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from typing_extensions import override

from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.options import PipelineOptions
from kiln.lowering.target import Step, Steps, braced, strict
from kiln.lowering.ttcpu.settings import Settings
from kiln.lowering.tune.trials import Judge, Trials

__all__ = ["TtCpuTarget"]


@dataclass(frozen=True)
class TtCpuTarget(GpuTarget):
    """The GPU's phases up to Triton IR; the option ``tt_cpu`` says what runs it does like a GPU."""

    name: ClassVar[str] = "tt-cpu"

    @classmethod
    @override
    def on(cls, device: str, arch: str) -> Self:
        return cls()

    @property
    @override
    def runs_on(self) -> str:
        return "cpu"

    @override
    def judges(self, trials: Trials) -> Mapping[str, Judge]:
        return {}  # times on a CPU say nothing of a GPU

    @override
    def lower(self, options: PipelineOptions) -> Steps:
        settings = str(Settings.parse(options.tt_cpu))
        given = braced(f"settings='{settings}'" if settings else "", strict(options))
        # The kinds that the CPU compiles at a lower level are tiled by hand there; here LLVM has to vectorise.
        return [
            Step(f"lower-triton-ir{given}", "blocks of a GPU as loops of a CPU", stage="vector"),
            *self.assemble("level=2"),
        ]
