# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A GPU's kernels on the CPU, as a target: for looking at numbers."""

from dataclasses import dataclass
from typing import ClassVar

from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.ttcpu.settings import DEFAULTS, Settings

__all__ = ["TtCpuTarget"]


@dataclass(frozen=True)
class TtCpuTarget(GpuTarget):
    """settings: what it does like a GPU."""

    name: ClassVar[str] = "tt-cpu"
    pipeline_name: ClassVar[str] = ""
    codegen: ClassVar[str] = "tt-cpu"

    settings: Settings = DEFAULTS
