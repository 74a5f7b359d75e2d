# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The limits that launches are judged by, as data: `runtime/choices/launches.toml`."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kiln.limits import read_rules

__all__ = ["FOLDER", "LaunchRules", "launch_rules"]

FOLDER = Path(__file__).resolve().parent / "choices"


@dataclass(frozen=True)
class LaunchRules:
    """Threads of a launch, and recordings of launches."""

    work_per_thread: int
    recorded_launches: int
    recorded_sightings: int


@cache
def launch_rules() -> LaunchRules:
    """`choices/launches.toml`."""
    return read_rules(FOLDER / "launches.toml", LaunchRules)
