# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Rules from outside that choose schedules of kernels. Needs no MLIR: graphs from the cache name them in their keys.

A rule is a function of a scheduled fusion that returns another schedule for it, or None::

    import dataclasses, torch, kiln

    def one_warp(fusion):
        if fusion.kind == "pointwise" and fusion.schedule is not None:
            nests = tuple(dataclasses.replace(nest, num_warps=1) for nest in fusion.schedule.nests)
            return dataclasses.replace(fusion.schedule, nests=nests)

    torch.compile(model, backend="kiln", options={"schedules": [one_warp], "target": "tt-cpu"})
"""

import functools
import importlib
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kiln import entry_points
from kiln.errors import KilnError

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.dialects.schedules import Schedule

__all__ = ["Rule", "ScheduledFusion", "TensorInfo", "find_rule", "installed_rules", "name_of_rule", "names_of_rules"]


@dataclass(frozen=True)
class TensorInfo:
    """A tensor that a fusion reads or writes.

    shape: None stands for a size known at run time. dtype: as in MLIR ("f32", "bf16", "i64", "i1"). is_constant: its
    elements are known now, so that a schedule may have them packed.
    """

    shape: tuple[int | None, ...]
    dtype: str
    is_constant: bool = False


@dataclass(frozen=True)
class ScheduledFusion:
    """What a rule is given.

    name: that of the kernel. kind: the named op that the kernel is for ("matmul", "conv", "attention"), else
    "pointwise" or "reduction". ops: names of the ops in it, in order ("kiln.matmul", "math.exp", "arith.addf"). nodes
    and lines: nodes of the graph that it stands for, and where these come from in the model. target: "cpu", "cuda",
    "tt-cpu" or one from outside. arch: the GPU ("sm_90"), or empty. schedule: the one chosen so far; None: loops follow
    from the layouts. op: the `kiln.fusion` itself, to be read and not to be kept.
    """

    name: str
    kind: str
    ops: tuple[str, ...]
    operands: tuple[TensorInfo, ...]
    results: tuple[TensorInfo, ...]
    nodes: tuple[str, ...]
    lines: tuple[tuple[str, int], ...]
    target: str
    arch: str
    schedule: "Schedule | None"
    op: "ir.OpView"


Rule = Callable[[ScheduledFusion], "Schedule | Mapping[str, Any] | None"]
"""Returns a schedule (`kiln.dialects.schedules`), the same as a dictionary, or None to leave the fusion as it is."""


@functools.cache
def installed_rules() -> tuple[Rule, ...]:
    """Those of installed packages. Raises KilnError for an entry point that is no function."""
    found: list[Rule] = []
    for name, value in entry_points.load(entry_points.SCHEDULES):
        for rule in cast(Sequence[Any], value if isinstance(value, list | tuple) else [value]):
            if not callable(rule):
                raise KilnError(f"entry point {name!r} of {entry_points.SCHEDULES} is no function, but {rule!r}")
            found.append(cast(Rule, rule))
    return tuple(found)


_live: "weakref.WeakValueDictionary[str, Rule]" = weakref.WeakValueDictionary()
_lock = threading.Lock()


def name_of_rule(rule: Rule) -> str:
    """The rule's name in the text of a pipeline: MODULE:FUNCTION, by which `find_rule` finds it.

    One that no module has by its name (a function in a function, a partial) is found for as long as it lives, in this
    process; the second of a name has ``#2`` behind it.
    """
    inner: Any = getattr(rule, "func", rule)  # that of a partial
    named = inner if hasattr(inner, "__qualname__") else cast(Any, type(inner))
    stem = name = f"{named.__module__}:{named.__qualname__}"
    with _lock:
        count = 1
        while _live.get(name, rule) is not rule:
            count += 1
            name = f"{stem}#{count}"
        _live[name] = rule
    return name


def find_rule(name: str) -> Rule:
    """The rule of a name. Raises KilnError where there is none."""
    found = _live.get(name)
    if found is not None:
        return found
    module, _, path = name.partition(":")
    try:
        found = functools.reduce(getattr, path.split("."), cast(Any, importlib.import_module(module)))
    except (ImportError, AttributeError, ValueError) as error:
        raise KilnError(f"no schedule rule {name!r} (MODULE:FUNCTION): {error}") from error
    if not callable(found):
        raise KilnError(f"schedule rule {name!r} is no function, but {found!r}")
    return cast(Rule, found)


def names_of_rules(rules: Iterable[Rule]) -> str:
    """The names as the value of a pass's option."""
    return ",".join(name_of_rule(rule) for rule in rules)
