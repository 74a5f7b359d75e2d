# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The function of one kernel: its signature, the layouts of its buffers, what the host has to know of it."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import func

from kiln.dialects import affine
from kiln.dialects.schedules import Schedule, from_attribute
from kiln.lowering.cpu.abi import wait_for_team
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.problem import KernelContext
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.memory import Scratch
from kiln.lowering.tile.access import memory_type
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.bounds import checked_ops


@dataclass
class Team:
    """How the threads of a kernel depend on each other: how often they wait, which memrefs others have written."""

    barriers: int = 0
    shared: set[int] = field(default_factory=set[int])


class Kernel:
    """One kernel function under construction."""

    def __init__(self, module: Any, name: str, body: FusionBody, layouts: list[ir.AffineMap]):
        self.body, self.layouts = body, layouts
        index = ir.IndexType.get()
        tensors = [*body.tensors, *body.roots]
        types: list[ir.Type] = [buffer_type(v.type) for v in tensors]
        self.checks = checked_ops(body)
        types += [index] * (len(body.symbols) + bool(self.checks))
        types += [ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], ir.IntegerType.get_signless(8)), index, index]
        with ir.InsertionPoint(module.body):
            self.function = func.FuncOp(name, ir.FunctionType.get(types, []))
        entry = self.function.add_entry_block()
        arguments = list(entry.arguments)
        count = len(tensors)
        self.buffers: list[ir.Value] = [*arguments[:count]]
        self.symbols: list[Index] = list(arguments[count : count + len(body.symbols)])
        self.flag = arguments[count + len(body.symbols)] if self.checks else None
        self.scratch = Scratch(arguments[-3])
        self.tid, self.nt = arguments[-2:]
        self.b = Builder(entry)
        self.work: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        self.team = Team()
        attributes = body.fusion.operation.attributes
        self.schedule = from_attribute(attributes["schedule"]) if "schedule" in attributes else None

    @property
    def context(self) -> KernelContext:
        """The thread that emitters of named ops see."""
        return KernelContext(self.tid, self.nt, self.scratch.memory)

    def part(self, body: FusionBody, schedule: Schedule | None) -> "Kernel":
        """This function seen from one part of the fusion: with scratch memory, work and a schedule of its own."""
        part = copy.copy(self)
        part.body, part.schedule = body, schedule
        part.scratch = Scratch(self.scratch.memory)
        part.work = ir.AffineConstantExpr.get(0)
        return part

    def wait(self, roots: Iterable[int]) -> None:
        """The threads wait for each other; from here on they may read what any of them stored in `roots`."""
        self.team.barriers += 1
        self.team.shared |= {len(self.body.tensors) + i for i in roots}
        wait_for_team(self.b, self.nt)

    def absorb(self, part: "Kernel") -> None:
        """Count what a part that was emitted behind the others needs; they use the same scratch memory in turn."""
        self.work = self.work + part.work
        mine, theirs = self.scratch.bytes, part.scratch.bytes
        known = affine.constant_of(mine), affine.constant_of(theirs)
        if known[0] is not None and known[1] is not None:
            self.scratch.bytes = ir.AffineConstantExpr.get(max(known[0], known[1]))
        else:
            self.scratch.bytes = mine + theirs  # no affine expression is their maximum

    def evaluator(self) -> Evaluator:
        """A fresh evaluator on the kernel's buffers."""
        return Evaluator(self.b, self.body, self.buffers, self.layouts, self.symbols, self.scratch, self.flag)

    def finish(self) -> None:
        """Attach what the host needs to know."""
        n = len(self.body.symbols)
        for key, expr in (("kiln.scratch_bytes", self.scratch.bytes), ("kiln.work", self.work)):
            self.function.operation.attributes[key] = ir.AffineMapAttr.get(ir.AffineMap.get(0, n, [expr]))
        attributes = self.body.fusion.operation.attributes
        shared = set(self.team.shared)
        if "in_place" in attributes:
            pairs = list(ir.DenseI64ArrayAttr(attributes["in_place"]))
            shared |= {*pairs[::2], *(len(self.body.tensors) + r for r in pairs[1::2])}
        if self.checks:
            names = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in self.checks])
            self.function.operation.attributes["kiln.checks"] = names
        if shared:
            self.function.operation.attributes["kiln.shared"] = ir.DenseI64ArrayAttr.get(sorted(shared))
        if self.team.barriers:
            self.function.operation.attributes["kiln.barriers"] = ir.IntegerAttr.get(
                ir.IntegerType.get_signless(64), self.team.barriers
            )


def buffer_type(type_: ir.Type) -> ir.MemRefType:
    """1-D memref of a tensor's elements."""
    element = memory_type(ir.RankedTensorType(type_).element_type)
    return ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], element)
