# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a compilation is asked for, as far as pipelines depend on it."""

from dataclasses import dataclass, field

from typing_extensions import override

from kiln.schedules import Rule, installed_rules

__all__ = ["KernelsAlone", "PipelineOptions"]

_GRAPH_SECONDS = 120
"""How many times the time for one kernel a graph may be tuned."""


@dataclass(frozen=True)
class PipelineOptions:
    """The base of the backend's options (`kiln.frontend.options.Options`), whose defaults ask PyTorch where it says."""

    mode: str = field(default="default", metadata={"help": "one of MODES"})
    fast_math: bool = field(
        default=False,
        metadata={"help": "allow rewrites that are wrong for NaN, Inf, the sign of zeros or the last bits"},
    )
    emulate_precision_casts: bool = field(
        default=False,
        metadata={"help": "round the result of each op on bf16 and f16, as eager does, also inside of a kernel"},
    )
    tune_seconds: float = field(
        default=0.5,
        metadata={"help": "how long mode max-autotune times the schedules of one kernel; 120 times that for a graph"},
    )
    tf32: bool = False
    deterministic: bool = False
    tensor_maps: bool = field(
        default=True,
        metadata={"help": "products and attention on a GPU may load operands through tensor maps (TMA)"},
    )
    tt_cpu: str = ""
    check: str = ""

    schedules: tuple[Rule, ...] = field(
        default=(), metadata={"help": "own rules that choose schedules of kernels: a list of functions"}
    )

    @property
    def schedule_rules(self) -> tuple[Rule, ...]:
        """Those of installed packages, and those that were given, which have the last word."""
        return (*installed_rules(), *self.schedules)

    @property
    def is_strict(self) -> bool:
        """Whether a defect of an emitter is an error, and not a call in place of the kernel."""
        return False

    @property
    def shares_kernels(self) -> bool:
        """Whether kernels are taken from earlier graphs of the process, and kept for later ones."""
        return False

    @property
    def is_tuned(self) -> bool:
        """Whether schedules are tried (``mode="max-autotune"``)."""
        return self.mode.startswith("max-autotune")

    @property
    def timing(self) -> str:
        """How long, as options of a pass; empty in other modes."""
        if not self.is_tuned:
            return ""
        return f"seconds={self.tune_seconds!r} graph-seconds={_GRAPH_SECONDS * self.tune_seconds!r}"


@dataclass(frozen=True)
class KernelsAlone(PipelineOptions):
    """Those of kernels that are compiled to try them, or to check them: a defect is what is looked for."""

    @property
    @override
    def is_strict(self) -> bool:
        return True
