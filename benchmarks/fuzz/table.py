# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which special paths a campaign has reached, and how often."""

from collections.abc import Mapping

from kiln.lowering import paths
from kiln.lowering.cpu import isa


def belonging(target: str) -> dict[str, str]:
    """The paths that belong to a target on this machine, with what they need that it lacks, or ""."""
    return {
        path: _missing(found, path.removeprefix(f"{found.name}: "))
        for path, found in paths.declared().items()
        if target in found.targets
    }


def _missing(group: paths.Group, path: str) -> str:
    feature = group.needs.get(path, "")
    return "" if not feature or isa.host().has(feature) else feature


def unreached(target: str, taken: Mapping[str, int]) -> list[str]:
    """The paths that belong to a target and were not taken, though this machine has what they need."""
    return [path for path, missing in belonging(target).items() if not missing and not taken.get(path)]


def table(target: str, taken: Mapping[str, int]) -> str:
    """One line for each group: its paths and how often each was taken, "-" for what this machine has not."""
    lines: dict[str, list[str]] = {}
    for path, missing in belonging(target).items():
        name, _, own = path.partition(": ")
        count = f"- ({missing})" if missing else str(taken.get(path, 0) or "0 (!)")
        lines.setdefault(name, []).append(f"{own} {count}")
    return "\n".join(f"  {name}: {'; '.join(found)}" for name, found in lines.items())
