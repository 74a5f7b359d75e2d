# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The schedules of fusions in scheduled IR (stage ``sched``), as text."""

from collections import Counter

from torch_mlir import ir

from kiln.dialects import create_context, parse, to_text
from kiln.dialects.kiln import FusionOp
from kiln.errors import KilnError, did_you_mean

__all__ = ["schedules_of", "with_schedule"]


def schedules_of(text: str) -> dict[str, str]:
    """Schedules by the names of fusions, in order; empty: none is set. The second of a name has ``#2`` behind it."""
    with create_context(), ir.Location.unknown():
        named = _named(parse(text))
        attributes = {name: fusion.operation.attributes for name, fusion in named.items()}
        return {name: str(found["schedule"]) if "schedule" in found else "" for name, found in attributes.items()}


def with_schedule(text: str, fusion: str, schedule: str, *, locations: bool = True) -> str:
    """The IR with another schedule for a fusion, a dictionary as in its attribute ``schedule``.

    Raises KilnError for a fusion that is not there and for text that is no schedule.
    """
    with create_context(), ir.Location.unknown():
        try:
            module = parse(text)
            named = _named(module)
            if fusion not in named:
                near = did_you_mean(fusion, named) or f"; there are {', '.join(named)}"
                raise KilnError(f"no fusion {fusion!r}{near}")
            named[fusion].operation.attributes["schedule"] = ir.Attribute.parse(schedule)
            module.operation.verify()
        except ir.MLIRError as error:
            raise KilnError(f"not a schedule of {fusion}: {error}") from error
        return to_text(module, enable_debug_info=locations)


def _named(module: ir.Module) -> dict[str, FusionOp]:
    functions = [op for op in module.body if op.operation.name == "func.func"]
    ops = [op for function in functions for block in function.operation.regions[0].blocks for op in block.operations]
    seen: Counter[str] = Counter()
    found: dict[str, FusionOp] = {}
    for op in ops:
        if isinstance(op, FusionOp):
            name = ir.StringAttr(op.operation.attributes["name"]).value
            seen[name] += 1
            found[name if seen[name] == 1 else f"{name}#{seen[name]}"] = op
    return found
