# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules that rules from outside choose."""

import importlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import name_of
from kiln.dialects.schedules import (
    InvalidSchedule,
    PartsSchedule,
    Schedule,
    from_attribute,
    from_plain,
    to_attribute,
    to_plain,
)
from kiln.dialects.walk import is_structural, ops_inside
from kiln.errors import KilnError, UnsupportedError
from kiln.lowering.host.constants import constant_name
from kiln.lowering.target import find_target
from kiln.lowering.tile.body import FusionBody
from kiln.notes import lines_in_location
from kiln.passes.core import Pass, register_pass
from kiln.passes.fusion.kernels import fusions_of
from kiln.schedules import Rule, ScheduledFusion, TensorInfo, find_rule

__all__ = ["ApplySchedules"]

_NODE = re.compile(r'"([A-Za-z_]\w*)"(?!:\d)')
_GENERIC = ("linalg.generic", "linalg.yield", "linalg.index")


@register_pass
@dataclass
class ApplySchedules(Pass):
    """Ask rules from outside for the schedule of each fusion (docs/schedules.md).

    Each rule is given what the rules before it chose. A note names the rule and what it changed; a schedule that no
    kernel takes is an error that names the rule and the fusion. Without rules nothing happens.

    Before::

        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          return %x : tensor<4xf32>
        }

    After::

        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          return %x : tensor<4xf32>
        }
    """

    name = "apply-schedules"

    target: str = "cpu"
    """What the kernels are for."""
    arch: str = ""
    """The GPU, as "sm_90"."""
    rules: tuple[str, ...] = ()
    """MODULE:FUNCTION of each rule, in the order in which they are asked."""

    @override
    def run(self, module: ir.Module) -> None:
        rules = [(name, find_rule(name)) for name in self.rules]
        for fusion in fusions_of(module) if rules else []:
            for name, rule in rules:
                self._apply(fusion, name, rule)

    def _apply(self, fusion: ir.OpView, name: str, rule: Rule) -> None:
        given = self._given(fusion)
        where = f"schedule rule {name!r}, fusion {given.name!r}"
        try:
            found = _schedule(rule(given))
        except InvalidSchedule as error:
            raise KilnError(f"{where}: {error}") from error
        except (KilnError, ir.MLIRError) as error:  # no cause, which would be reported in its place
            raise KilnError(f"{where}: {type(error).__name__}: {error}") from None
        except Exception as error:
            raise KilnError(f"{where}: {type(error).__name__}: {error}") from error
        if found is None or found == given.schedule:
            return
        fusion.operation.attributes["schedule"] = to_attribute(found)
        try:
            fusion.operation.verify()
            self._check(fusion)
        except ir.MLIRError as error:
            message = error.error_diagnostics[0].message if error.error_diagnostics else str(error)
            raise KilnError(f"{where}: {message}") from None
        except UnsupportedError as error:
            raise KilnError(f"{where}: {error.reason}") from None
        self.note(fusion, f"schedule by {name}: {_changes(given.schedule, found)}")
        self.count("replaced")

    def _check(self, fusion: ir.OpView) -> None:
        """Raises what `from_attribute` and the emitters do for a schedule of another kernel."""
        folder = find_target(self.target).emitters
        if not folder:
            return
        emit: Any = importlib.import_module(f"kiln.lowering.{folder}.emit")
        schedule = from_attribute(fusion.operation.attributes["schedule"])
        parts = FusionBody(fusion).parts()
        schedules = schedule.parts if isinstance(schedule, PartsSchedule) else [schedule]
        for part, own in zip(parts, schedules, strict=True):
            emit.check_schedule(part, own)

    def _given(self, fusion: ir.OpView) -> ScheduledFusion:
        op, location = fusion.operation, str(fusion.operation.location)
        inside = (inner for inner in ops_inside(op) if inner.name not in _GENERIC and not is_structural(inner))
        lines = dict.fromkeys(lines_in_location(location))
        return ScheduledFusion(
            ir.StringAttr(op.attributes["name"]).value,
            ir.StringAttr(op.attributes["kind"]).value,
            tuple(name_of(inner) for inner in inside),
            _tensors(op.operands),
            _tensors(op.results),
            tuple(dict.fromkeys(_NODE.findall(location))),
            tuple(lines),
            self.target,
            self.arch,
            from_attribute(op.attributes["schedule"]) if "schedule" in op.attributes else None,
            fusion,
        )


def _tensors(values: Iterable[ir.Value]) -> tuple[TensorInfo, ...]:
    """Those among the values; others are sizes."""
    found: list[TensorInfo] = []
    for value in values:
        if isinstance(value.type, ir.RankedTensorType):
            type_ = ir.RankedTensorType(value.type)
            shape = tuple(None if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank))
            found.append(TensorInfo(shape, str(type_.element_type), constant_name(value) is not None))
    return tuple(found)


def _schedule(found: object) -> Schedule | None:
    """What a rule returned. Raises InvalidSchedule."""
    if found is None:
        return None
    if isinstance(found, Schedule):
        return from_plain(to_plain(found))  # which checks the fields
    if isinstance(found, Mapping):
        return from_plain(dict(cast(Mapping[str, Any], found)))
    raise InvalidSchedule("schedule", "a schedule, a dictionary or None", f"a {type(found).__name__}")


def _changes(old: Schedule | None, new: Schedule) -> str:
    """What differs, for people."""
    before: dict[str, Any] = to_plain(old) if old is not None else {}
    after: dict[str, Any] = to_plain(new)
    if before.get("kernel") != after.get("kernel"):
        return str(after)
    names = [name for name in (*before, *after) if before.get(name) != after.get(name)]
    return ", ".join(f"{n}: {_text(before.get(n))} -> {_text(after.get(n))}" for n in dict.fromkeys(names))


def _text(value: object) -> str:
    return "default" if value is None else str(value)
