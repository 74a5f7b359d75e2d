# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How long Triton will take for a scheduled fusion, in no unit: for the order in which kernels are compiled.

A GPU's compiler writes out each value of the tile once per element that a thread holds of it, so elements of a thread
times values say it: within a factor of two for most of a ResNet-50's and a BERT's kernels, whose times are 25 apart.
What it does not see is what registers that do not suffice cost ptxas.
"""

from math import prod

from torch_mlir import ir

from kiln.dialects.schedules import PartsSchedule, Schedule, from_attribute
from kiln.dialects.schedules.gpu import DotSchedule, GemvSchedule, LoopsSchedule, ScanSchedule, ScatterSchedule

__all__ = ["compile_cost"]

_WARP = 32
_BESIDE = 16
"""Values besides those of the fusion's ops: positions, addresses, masks, loads and stores."""
_BESIDE_SUMS = 64
"""The same where a tile is summed by tensor cores: there are the operands' loads in several stages, too."""


def compile_cost(fusion: ir.Operation) -> float:
    """The cost of a fusion's kernel; larger for what takes longer."""
    attributes = fusion.attributes
    schedule = from_attribute(attributes["schedule"]) if "schedule" in attributes else None
    values = _values(fusion)
    parts = schedule.parts if isinstance(schedule, PartsSchedule) else [schedule]
    return sum(_cost(part, values) for part in parts)


def _cost(schedule: Schedule | None, values: int) -> float:
    """That of one part: elements that a thread holds of its tiles, times values."""
    if isinstance(schedule, DotSchedule):
        tile = schedule.block_m * schedule.block_n
        return tile / (_WARP * schedule.num_warps) * (_BESIDE_SUMS + values)
    if isinstance(schedule, LoopsSchedule):
        elements = sum(prod(nest.tile) * (nest.row or 1) / (_WARP * nest.num_warps) for nest in schedule.nests)
    elif isinstance(schedule, ScanSchedule):
        elements = schedule.rows * schedule.row / (_WARP * schedule.num_warps)
    elif isinstance(schedule, ScatterSchedule):
        elements = schedule.block / (_WARP * schedule.num_warps)
    else:
        elements = 1 / (_WARP * (schedule.num_warps if isinstance(schedule, GemvSchedule) else 4))
    return elements * (_BESIDE + values)


def _values(fusion: ir.Operation) -> int:
    """Ops of the body, those in its loops included."""
    body = fusion.regions[0].blocks[0].operations
    return len(body) + sum(len(r.blocks[0].operations) for op in body for r in op.operation.regions)
