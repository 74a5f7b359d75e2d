# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Instruments: what watches a pipeline run (printing, timing, verifying, dumping, reproducing)."""

from kiln.passes.instruments.base import Instrument
from kiln.passes.instruments.dump import StageDump
from kiln.passes.instruments.kernel_dump import KernelDump
from kiln.passes.instruments.printing import PrintIR
from kiln.passes.instruments.reproducer import Reproducer
from kiln.passes.instruments.statistics import Remarks, Statistics
from kiln.passes.instruments.timing import Timing
from kiln.passes.instruments.verify import CheckStages, VerifyEach

__all__ = [
    "CheckStages",
    "Instrument",
    "KernelDump",
    "PrintIR",
    "Remarks",
    "Reproducer",
    "StageDump",
    "Statistics",
    "Timing",
    "VerifyEach",
]
