# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The limits that fusion compares times and sizes with, as data: `passes/fusion/choices/fusion.toml`.

What bounds the code of a kernel (its parts, the indices and scopes of a value) are constants beside their use.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kiln.limits import read_rules

__all__ = ["FOLDER", "FusionRules", "fusion_rules"]

FOLDER = Path(__file__).resolve().parent / "choices"


@dataclass(frozen=True)
class FusionRules:
    """When ops become one kernel, and how much memory that may take."""

    slower: float
    small_share: float
    serial_elements: int
    column_elements: int
    spare_parts: int
    rhs_parts: int
    repeated_cost: int


@cache
def fusion_rules() -> FusionRules:
    """`choices/fusion.toml`."""
    return read_rules(FOLDER / "fusion.toml", FusionRules)
