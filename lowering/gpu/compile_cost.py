# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How long Triton will take for a scheduled fusion, in no unit: for the order in which kernels are compiled.

A GPU's compiler writes out each value of the tile once per element that a thread holds of it, so elements of a thread
times values say it: within a factor of two for most of a ResNet-50's and a BERT's kernels, whose times are 25 apart.
What it does not see is what registers that do not suffice cost ptxas.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

from torch_mlir import ir

from kiln.lowering.schedule_attr import from_attribute

__all__ = ["compile_cost"]

_WARP = 32
_BESIDE = 16
"""Values besides those of the fusion's ops: positions, addresses, masks, loads and stores."""
_BESIDE_SUMS = 64
"""The same where a tile is summed by tensor cores: there are the operands' loads in several stages, too."""


def compile_cost(fusion: ir.Operation) -> float:
    """The cost of a fusion's kernel; larger for what takes longer."""
    attributes = fusion.attributes
    schedule = from_attribute(attributes["schedule"]) if "schedule" in attributes else {}
    values = _values(fusion)
    return sum(_cost(part, values) for part in schedule.get("parts") or [schedule])


def _cost(schedule: Mapping[str, Any], values: int) -> float:
    """That of one part: elements that a thread holds of its tiles, times values."""
    if "block_m" in schedule:
        tile = schedule["block_m"] * schedule["block_n"]
        return tile / (_WARP * schedule.get("num_warps", 4)) * (_BESIDE_SUMS + values)
    nests = schedule.get("nests") or [schedule]
    elements = sum(
        prod(nest.get("tile", (1,))) * nest.get("row", 1) / (_WARP * nest.get("num_warps", 4)) for nest in nests
    )
    return elements * (_BESIDE + values)


def _values(fusion: ir.Operation) -> int:
    """Ops of the body, those in its loops included."""
    body = fusion.regions[0].blocks[0].operations
    return len(body) + sum(len(r.blocks[0].operations) for op in body for r in op.operation.regions)
