# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Special paths of code generation by name: kinds of kernels, schedules, rules of choice.

A path is declared where it is defined, in a group, and marked where it is taken:

    TAKEN = paths.group("gpu product", "tile", "gemv")

    TAKEN("gemv")

So it is known which paths there are, and a fuzzer (docs/fuzzing.md) knows which of them it has reached. A mark is one
addition to a dictionary.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kiln.errors import KilnError

__all__ = ["Group", "declared", "group", "reset", "taken"]

_Reason = TypeVar("_Reason", str, None)

_GROUPS: dict[str, "Group"] = {}
_COUNTS: dict[str, int] = {}
_ALL = ("cpu", "tt-cpu", "cuda")
_PACKAGES = ("kiln.lowering", "kiln.passes", "kiln.frontend")


@dataclass(frozen=True)
class Group:
    """Paths of one kind. `targets`: those that they belong to. `needs`: what a CPU must have, by path."""

    name: str
    paths: tuple[str, ...]
    targets: tuple[str, ...]
    needs: dict[str, str] = field(default_factory=dict[str, str])

    def __call__(self, path: str, reason: _Reason = None) -> _Reason:
        """A path was taken; gives the reason back. Raises KilnError for a path that is not declared."""
        if path not in self.paths:
            raise KilnError(f"no path {path!r} is declared in {self.name!r}")
        key = f"{self.name}: {path}"
        _COUNTS[key] = _COUNTS.get(key, 0) + 1
        return reason

    def those(self, taken: Mapping[str, object]) -> None:
        """The paths whose value is true were taken."""
        for path, is_so in taken.items():
            if is_so:
                self(path)


def group(name: str, *names: str | Iterable[str], needs: dict[str, str] | None = None) -> Group:
    """Declare the paths of a kind. The first word of its name says to which targets they belong: "cpu"; "gpu" (on a
    GPU and, as loops, on the CPU: "tt-cpu"); "cuda"; "any".

    needs: LLVM's name of the instruction set without which a path is not taken, by path.
    """
    targets = {"cpu": ("cpu",), "gpu": ("tt-cpu", "cuda"), "cuda": ("cuda",), "any": _ALL}[name.split()[0]]
    flat = tuple(path for given in names for path in ([given] if isinstance(given, str) else given))
    found = Group(name, flat, targets, needs or {})
    if name in _GROUPS or not set(found.needs) <= set(flat):
        raise KilnError(f"paths {name!r} are declared twice, or need something that none of them has")
    _GROUPS[name] = found
    return found


def declared() -> dict[str, Group]:
    """All paths, as "group: path"; imports every module that may declare some."""
    for package in _PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    return {f"{found.name}: {path}": found for found in _GROUPS.values() for path in found.paths}


def taken() -> dict[str, int]:
    """How often each path was taken since `reset`."""
    return dict(_COUNTS)


def reset() -> None:
    """Counting begins anew."""
    _COUNTS.clear()
