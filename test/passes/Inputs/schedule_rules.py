# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A rule for `apply_schedules.mlir`."""

from kiln.dialects.schedules.gpu import LoopsSchedule, NestSchedule
from kiln.schedules import ScheduledFusion


def wide(fusion: ScheduledFusion) -> LoopsSchedule | None:
    """Large pointwise kernels in tiles of 1024 elements."""
    large = fusion.kind == "pointwise" and (fusion.results[0].shape[0] or 0) >= 4096
    return LoopsSchedule(nests=(NestSchedule(tile=(1024,), num_warps=8),)) if large else None
