# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The places of a kernel that may report something, by number."""

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.dialects.walk import ops_inside
from kiln.errors import location_text
from kiln.runtime.plan import Site

__all__ = ["Sites"]


class Sites:
    """The sites of the kernel `function`: itself, then others in the order in which they were added."""

    def __init__(self, function: ir.Operation) -> None:
        self._numbers: dict[ir.Operation, int] = {}
        counts: dict[str, int] = {}
        for op in ops_inside(function):
            name = name_of(op)
            counts[name] = counts.get(name, 0) + 1
            self._numbers[op] = counts[name]
        self.all = [Site("kernel", name_of(function), location_text(function.location))]

    def add(self, op: ir.Operation, kind: str, detail: str = "") -> int:
        """The number of a new site: `op`, which is called by its name and which of that name it is."""
        title = f"{name_of(op)} #{self._numbers[op]}" if op in self._numbers else name_of(op)
        self.all.append(Site(kind, title, location_text(op.location), detail))
        return len(self.all) - 1

    def attribute(self) -> ir.Attribute:
        """As `codegen` reads it off the kernel's function."""
        texts = [[s.kind, s.op, s.source, s.detail] for s in self.all]
        return ir.ArrayAttr.get([ir.ArrayAttr.get([ir.StringAttr.get(t) for t in text]) for text in texts])
