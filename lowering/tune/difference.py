# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What distinguishes a schedule from another one, for people."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, cast

from kiln.dialects.schedules import Schedule

__all__ = ["difference"]

_TELLING = (
    "mr", "nv", "nr", "mc", "nc", "depth", "pack_rhs", "packed", "products", "parts", "product",
    "block_m", "block_n", "block_k", "num_stages", "num_warps",
)  # fmt: skip
"""Entries that are shown of a schedule for another kernel than the default's."""


def difference(schedule: Schedule, default: Schedule) -> str:
    """What a schedule has that the default has not, for people: ``blocked kc=256 mr=8``."""
    changed: dict[str, str] = {}

    def walk(mine: Any, other: Any, path: str) -> None:
        if isinstance(mine, dict) and isinstance(other, dict):
            mine, other = cast(dict[str, Any], mine), cast(dict[str, Any], other)
            same = mine.get("kernel") == other.get("kernel")
            for key in sorted(mine):
                if key in ("kernel", "fallback", "width") or same and mine[key] == other.get(key):
                    continue
                if not same and key not in _TELLING:
                    continue
                walk(mine[key], other.get(key) if same else None, f"{path}{key}")
            if not same and "kernel" in mine:
                changed[f"{path}kernel"] = str(mine["kernel"])
        elif isinstance(mine, list):
            own = cast(list[Any], mine)
            theirs: list[Any] = cast(list[Any], other) if isinstance(other, list) else [None] * len(own)
            pairs = zip(own, theirs, strict=False)
            for i, (x, y) in enumerate(pairs):
                if x != y:
                    walk(x, y, f"{path}[{i}].")
        elif isinstance(mine, dict):
            walk(mine, {}, f"{path}.")
        else:
            changed[path] = str(mine).lower() if isinstance(mine, bool) else str(mine)

    walk(_entries(schedule), _entries(default), "")
    leading = changed.pop("kernel", schedule.kernel)
    return " ".join([leading, *(f"{k}={v}" for k, v in changed.items())]).strip()


def _entries(value: Any) -> Any:
    """A schedule as dictionaries with all of its fields."""
    if isinstance(value, (tuple, list)):
        return [_entries(x) for x in cast(Sequence[Any], value)]
    if not isinstance(value, Schedule):
        return value
    return {"kernel": value.kernel, **{field.name: _entries(getattr(value, field.name)) for field in fields(value)}}
