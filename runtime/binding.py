# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A plan with its symbols bound to numbers: sizes, workspace offsets and launch tables.

A static plan is bound once; a dynamic one once for each distinct set of sizes (the executor caches them).

Addresses reach the launcher (lowering/host/launcher.py) through a *state*, an array of 64-bit words of which each call
uses its own: ``[0, table, workspace of epoch 0, ..., one base address per other buffer]``.
"""

import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kiln.runtime.accesses import WORDS as RECORD_WORDS
from kiln.runtime.expressions import affine_evaluator
from kiln.runtime.launches import ReadyLaunch, Touched, launch_groups
from kiln.runtime.memory import Interval, aligned, assign_offsets
from kiln.runtime.plan import AtenStep, Buffer, Check, Expr, Launch, Operand, Plan
from kiln.runtime.rules import launch_rules

__all__ = ["WORK_PER_THREAD", "Binder", "Binding", "Segment", "StateLayout", "check_key", "segments"]

WORK_PER_THREAD = launch_rules().work_per_thread
"""Elementary operations that pay for one more thread."""

_ALL = 1 << 62
"""End of a buffer of any size."""


@dataclass(frozen=True)
class Segment:
    """Consecutive native launches (`launches`), or one ATen call (`aten`); `steps` are the plan's step indices."""

    steps: tuple[int, ...]
    launches: tuple[Launch, ...] = ()
    aten: AtenStep | None = None
    epoch: int = 0

    @property
    def check(self) -> Check | None:
        """How to check a segment of one step."""
        step = self.aten or self.launches[0]
        return step.check if len(self.steps) == 1 else None

    @property
    def buffers(self) -> list[int]:
        """The numbers of the plan's buffers that it reads or writes; some more than once."""
        used = [p.buffer for launch in self.launches for p in launch.pointers]
        if self.aten is not None:
            used += [o.buffer for o in self.aten.operands] + [r for r in self.aten.results if r >= 0]
        return used


def segments(plan: Plan, *, alone: bool = False) -> list[Segment]:
    """Splits a plan's steps at its ATen calls and its cuts; `alone`: each launch is a segment of its own."""
    result: list[Segment] = []
    cuts = frozenset(plan.cuts or ())
    for index, step in enumerate(plan.steps):
        if isinstance(step, AtenStep):
            result.append(Segment((index,), aten=step, epoch=step.epoch))
        elif not (alone or index in cuts) and result and result[-1].launches and result[-1].epoch == step.epoch:
            last = result.pop()
            result.append(Segment((*last.steps, index), (*last.launches, step), epoch=step.epoch))
        else:
            result.append(Segment((index,), (step,), epoch=step.epoch))
    return result


def check_key(part: int) -> int:
    """The key in `Binding.views` of what the check of a segment reads."""
    return -2 - part


class StateLayout:
    """Which word of the state holds what.

    `fresh[k]` are the buffers whose address segment k needs first, in consecutive words from `start[k]` on. If the plan
    begins with native code, that segment has the addresses of all inputs.
    """

    TABLE = 1
    WORKSPACE = 2
    alignment = 8
    """Bytes of which the state's address is to be a multiple."""

    def __init__(self, plan: Plan, parts: Sequence[Segment]) -> None:
        # A call that returns sizes ends its epoch, whether or not a step follows.
        self.epochs = 1 + max((p.epoch + bool(p.aten and p.aten.sizes) for p in parts), default=0)
        self.slots: dict[int, int] = {}
        self.constants: list[int] = []
        self.fresh: dict[int, list[int]] = {}
        self.start: dict[int, int] = {}
        used = [b for p in parts for step in p.launches for b in (pointer.buffer for pointer in step.pointers)]
        at = self.WORKSPACE + self.epochs
        for buffer in dict.fromkeys(used):
            if plan.buffers[buffer].kind == "constant":
                self.slots[buffer] = at
                self.constants.append(buffer)
                at += 1
        for k, part in enumerate(parts):
            self.fresh[k], self.start[k] = [], at
            mine = [pointer.buffer for step in part.launches for pointer in step.pointers]
            if k == 0 and part.launches:
                mine += [b for b in used if plan.buffers[b].kind == "input"]
            for buffer in mine:
                if buffer not in self.slots and plan.buffers[buffer].kind != "workspace":
                    self.slots[buffer] = at
                    self.fresh[k].append(buffer)
                    at += 1
        # The address of the words behind it, where kernels report an index out of range, or more (accesses.py).
        self.flag_address, self.flag = at, at + 1
        self.words = at + 1 + RECORD_WORDS
        self.block = max((plan.kernels[s.kernel].pointers + plan.kernels[s.kernel].symbols + 3
                     for p in parts for s in p.launches), default=0)  # fmt: skip


@dataclass
class Binding:
    """One epoch of a plan for one assignment of the symbols known by then."""

    values: dict[Expr, int]
    workspace: int = 0  # bytes, scratch included
    workspaces: dict[int, int] = field(default_factory=dict[int, int])  # the same by segment
    scratch: int = 0  # offset of the scratch area in the workspace
    offsets: dict[int, int] = field(default_factory=dict[int, int])
    tables: dict[int, int] = field(default_factory=dict[int, int])  # segment -> address of its launch table
    keep: list[Any] = field(default_factory=list[Any])  # what the tables point to
    previous: "Binding | None" = None
    tensors: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = field(
        default_factory=dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    )  # shape, strides
    views: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])  # segment (-1: outputs) -> view arguments
    device: dict[int, Any] = field(default_factory=dict[int, Any])  # segment -> what a GPU's runtime keeps of it

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """The sizes of a buffer, in elements, for this binding's symbols."""
        return tuple(self.values[e] for e in buffer.shape)

    def strides(self, buffer: Buffer) -> tuple[int, ...]:
        """The strides of a buffer, in elements, for this binding's symbols."""
        return tuple(self.values[e] for e in buffer.strides)

    def view(self, operand: Operand) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """(shape, strides, offset) of an operand that is a view."""
        shape = tuple(self.values[e] for e in operand.shape or ())
        return shape, tuple(self.values[e] for e in operand.strides or ()), self.values[operand.offset]

    def offset(self, buffer: int) -> int:
        """Byte offset of a workspace buffer in the workspace of its epoch."""
        binding: Binding | None = self
        while binding is not None:
            if buffer in binding.offsets:
                return binding.offsets[buffer]
            binding = binding.previous
        raise KeyError(buffer)


class Binder:
    """Makes the bindings of one loaded plan; `addresses` gives each kernel's entry point.

    regions: threads stay together from the first launch that they share to the last, instead of one region a launch.
    zone: bytes in front of and behind each buffer of a workspace that are no buffer's, a multiple of `ALIGNMENT`.
    """

    def __init__(
        self,
        plan: Plan,
        parts: Sequence[Segment],
        layout: StateLayout,
        addresses: Sequence[int],
        *,
        regions: bool = True,
        zone: int = 0,
    ) -> None:
        self.plan, self.parts, self.layout, self.addresses, self.regions = plan, parts, layout, addresses, regions
        self.zone = zone
        self._evaluate: dict[int, Callable[[Sequence[int | None]], Mapping[Expr, int]]] = {}

    def bind(self, epoch: int, symbols: Sequence[int | None], threads: int, previous: Binding | None = None) -> Binding:
        """The binding of `epoch` for the given symbol values and thread count."""
        if epoch not in self._evaluate:
            self._evaluate[epoch] = affine_evaluator(self._expressions(epoch))
        known = previous.values if previous else {}
        binding = Binding({**known, **self._evaluate[epoch](symbols)}, previous=previous)
        self._place(binding, epoch)
        for k, part in enumerate(self.parts):
            if part.epoch == epoch and part.launches:
                if self.plan.cuts is not None:
                    binding.scratch = self._extent(binding, part.buffers)
                words, needed = self.table(binding, epoch, k, threads)
                binding.workspaces[k] = binding.scratch + needed
                table = array.array("q", words)
                binding.keep.append(table)
                binding.tables[k] = table.buffer_info()[0]
        binding.workspace = max(binding.workspaces.values(), default=binding.scratch)
        return binding

    def table(self, binding: Binding, epoch: int, part: int, threads: int) -> tuple[list[int], int]:
        """The launch table of a segment and the bytes of scratch memory that its launches need."""
        steps = zip(self.parts[part].steps, self.parts[part].launches, strict=True)
        ready = [self._launch(binding, epoch, step, launch, threads) for step, launch in steps]
        needed = max(r.scratch * r.threads for r in ready)
        return [self.layout.block, *launch_groups(ready, self.regions), 0], needed

    def _place(self, binding: Binding, epoch: int) -> None:
        plan = self.plan
        mine = [i for i, b in enumerate(plan.buffers) if b.kind == "workspace" and b.epoch == epoch]
        if plan.offsets is not None and epoch == 0 and not self.zone:
            binding.offsets = {i: plan.offsets[i] for i in mine}
            binding.scratch = self._extent(binding, mine)
            return
        sizes = [binding.values[plan.buffers[i].bytes] for i in mine]
        around = 2 * self.zone
        intervals = [
            Interval(n + around if n else 0, plan.buffers[i].first, plan.buffers[i].last)
            for i, n in zip(mine, sizes, strict=True)
        ]
        offsets, binding.scratch = assign_offsets(intervals)
        binding.offsets = {i: offset + self.zone for i, offset in zip(mine, offsets, strict=True)}

    def _extent(self, binding: Binding, buffers: Sequence[int]) -> int:
        """Where the last one of some buffers ends in the workspace that the plan has laid out."""
        found = [(binding.offsets[i], self.plan.buffers[i].bytes) for i in buffers if i in binding.offsets]
        return max((offset + aligned(binding.values[size]) for offset, size in found), default=0)

    def _launch(self, binding: Binding, epoch: int, step: int, launch: Launch, limit: int) -> "ReadyLaunch":
        """A launch, step number `step` of the plan, with its numbers."""
        value, layout = binding.values, self.layout
        work = value[launch.work]
        threads = limit if work < 0 else max(1, min(limit, work // WORK_PER_THREAD))
        words: list[int] = []
        touched: list[Touched] = []
        for i, pointer in enumerate(launch.pointers):
            buffer = self.plan.buffers[pointer.buffer]
            is_written = i >= len(launch.pointers) - launch.results
            if buffer.kind == "workspace":
                start = binding.offset(pointer.buffer)
                words += (layout.WORKSPACE + buffer.epoch, start + value[pointer.bytes])
                touched.append(Touched(-1 - buffer.epoch, start, start + value[buffer.bytes], is_written))
            else:
                words += (layout.slots[pointer.buffer], value[pointer.bytes])
                start, end = pointer.within or (0, _ALL)
                touched.append(Touched(pointer.buffer, start, end, is_written))
        for symbol in launch.symbols:
            words += (0, value[symbol])
        if launch.checks or launch.sites:
            words += (layout.flag_address, 0)
        if launch.sites:
            words += (0, step)
        per_thread = aligned(value[launch.scratch])
        words += (layout.WORKSPACE + epoch, binding.scratch, 0, per_thread)
        return ReadyLaunch(self.addresses[launch.kernel], threads, words, touched, per_thread)

    def _expressions(self, epoch: int) -> list[Expr]:
        """Every expression of an epoch: those of its steps, its buffers and, in the last epoch, the outputs."""
        plan, found = self.plan, list[Expr]([0, 1, -1])

        def operand(o: Operand) -> None:
            found.extend((*(o.shape or ()), *(o.strides or ()), o.offset))

        for buffer in plan.buffers:
            if buffer.epoch == epoch:
                found.extend((*buffer.shape, *buffer.strides, buffer.bytes))
        for step in plan.steps:
            if step.epoch != epoch:
                continue
            found.extend(step.symbols)
            if step.check is not None:
                found.extend(step.check.symbols)
                for o in (*step.check.operands, *step.check.results):
                    operand(o)
            if isinstance(step, Launch):
                found.extend(e for p in step.pointers for e in (p.bytes, p.size))
                found.extend((step.scratch, step.work))
                found.extend((*step.grid, *(size for _, size in step.clear)))
                for descriptor in step.descriptors:
                    found.extend((*descriptor.shape, *descriptor.strides))
                if step.product is not None:
                    p = step.product
                    found.extend((*p.sizes, *p.lhs, *p.rhs, *p.result))
                if step.convolution is not None:
                    found.extend((*step.convolution.image, *step.convolution.weight, *step.convolution.result))
            else:
                for o in step.operands:
                    operand(o)
        if epoch == self.layout.epochs - 1:
            for output in plan.outputs:
                if output.tensor is not None:
                    operand(output.tensor)
                if output.value is not None:
                    found.append(output.value)
        return found
