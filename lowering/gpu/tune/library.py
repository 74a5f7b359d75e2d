# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A product in a kernel of its own, or by a library with a kernel behind it: whichever runs faster.

What follows the product counts: in a kernel of its own it costs little, behind a call of a library a pass over memory.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import prod
from typing import Any

import torch
from torch_mlir import ir

from kiln.errors import KilnError
from kiln.lowering.cpu.tune.measure import Measure
from kiln.lowering.cpu.tune.store import Found, TriedSchedule, TunedSchedules
from kiln.lowering.gpu.dot.activation import gelu_behind
from kiln.lowering.gpu.dot.choice import added_bias, parts_of_product
from kiln.lowering.gpu.dot.fusions import DotOptions
from kiln.lowering.gpu.tune.extract import pointwise_chain, scheduled
from kiln.lowering.gpu.tune.library_trial import library_calls
from kiln.lowering.gpu.tune.trial import GpuTrial
from kiln.lowering.gpu.tune.tuner import MARGIN, GpuTuner, chip_name
from kiln.lowering.host.kernels import fusion_key
from kiln.lowering.schedule_attr import from_attribute

__all__ = ["ProductJudge", "Verdict"]

_LEAST_WORK = 1 << 26
"""Multiplications below which a call costs more than any kernel saves."""


@dataclass(frozen=True)
class Verdict:
    """Whether the library is to be called, with which of its algorithms (by its own ranking), and the times; else, into
    how many parts the sums are split."""

    library: bool
    reason: str
    candidate: int = 0
    parts: int = 1


class ProductJudge:
    """Decides by running both.

    Args:
        store: where schedules and verdicts are remembered.
        options, device, seconds, measure: as for `GpuTuner`.
        graph_seconds: from when on, compilation included, products are left to the rules.
    """

    def __init__(
        self,
        store: TunedSchedules,
        options: DotOptions,
        device: str,
        seconds: float = 0.5,
        graph_seconds: float = 60.0,
        measure: Measure | None = None,
    ) -> None:
        self.tuner = GpuTuner(store, options, device, seconds, measure)
        self.store, self.options, self.device = store, options, device
        self._end = time.perf_counter() + graph_seconds

    def verdict(self, op: ir.Operation) -> Verdict | None:
        """That of a `kiln.matmul` of known sizes with a matrix on its right; None where it cannot be tried."""
        try:
            return self._verdict(op)
        except (KilnError, RuntimeError, AssertionError):
            return None  # what cannot be run is left to the rules: no GPU, no memory, no kernel

    def _verdict(self, op: ir.Operation) -> Verdict | None:
        lhs, rhs, result = (ir.RankedTensorType(v.type) for v in (*op.operands, *op.results))
        if not all(t.has_static_shape for t in (lhs, rhs, result)) or rhs.rank != 2:
            return None
        if bool(ir.IntegerAttr(op.attributes["transpose_lhs"]).value) or prod(result.shape) == 0:
            return None
        if prod(result.shape) * lhs.shape[-1] < _LEAST_WORK or op.operands[0] == op.operands[1]:
            return None
        chain = pointwise_chain(op.results[0])
        own = self._kernel([op, *chain], list(op.operands))
        if own is None:
            return None
        key = self.store.key("library", fusion_key(own.fusion.operation), self.options, chip_name(self.device))
        found = self.store.get(key)
        if found is None:
            if time.perf_counter() > self._end:
                return None
            found = self._compare(op, chain, own)
            self.store.put(key, found)
        library = bool(found.schedule["library"])
        candidate = int(found.schedule.get("candidate", 0))
        which = f" (its algorithm {candidate})" if candidate else ""
        times = f"{1e6 * found.seconds:.1f} us with cuBLAS{which}, {1e6 * found.default:.1f} us in a kernel of its own"
        parts = int(found.schedule.get("parts", 1))
        if parts > 1:
            times += f", {1e6 * found.schedule['parts_seconds']:.1f} us in {parts} parts of its sums"
        return Verdict(library, f"cuBLAS: {times}" if library else times, candidate, parts)

    def _compare(self, op: ir.Operation, chain: list[ir.Operation], own: "_Kernel") -> Found:
        best = self.tuner.find(own.fusion)
        trial = GpuTrial(own.fusion, self.device, self.options.arch)
        mine = trial.prepare(trial.start(best.schedule))
        bias, product = added_bias(op.results[0])
        rest = chain[1:] if bias is not None else chain
        activated = gelu_behind(product) if bias is not None else None
        if activated is not None:  # part of the library's product
            rest, product = rest[1:], activated
        following = self._kernel(rest, [product]) if rest else None
        if rest and following is None:
            raise KilnError("what follows the product is no kernel by itself")
        theirs = self._library(op, bias, own, trial, following, activated is not None)
        parts = parts_of_product(op, self.options.arch)
        split = self._in_parts([op, *chain], list(op.operands), parts) if parts > 1 else None
        runs = [mine, *(run for _, run in theirs), *([] if split is None else [split])]
        times = self.tuner.measure(runs, self.tuner.seconds)
        labels = ["own", *(f"library {candidate}" for candidate, _ in theirs), f"{parts} parts"]
        first, best = 1, min(range(1, 1 + len(theirs)), key=lambda i: times[i].median)
        if not times[best].beats(times[first], MARGIN):
            best = first
        library = times[best].beats(times[0], MARGIN)
        tried = [TriedSchedule(label, time.median) for label, time in zip(labels, times, strict=False)]
        found = {"library": library, "candidate": theirs[best - 1][0]}
        if split is not None and all(times[-1].beats(times[i], MARGIN) for i in (0, best)):
            found |= {"library": False, "parts": parts, "parts_seconds": times[-1].median}
        label = "library" if found["library"] else "default"
        return Found(found, label, times[0].median, times[best].median, tried)

    def _in_parts(self, ops: list[ir.Operation], arguments: list[ir.Value], parts: int) -> Callable[[], None] | None:
        """The product in parts of its sums, and the kernel that adds them up; None where these are not two kernels."""
        found = scheduled(ops, arguments, self.options, f"split-products{{parts={parts}}},")
        if found is None or len(found[2]) != 2:  # noqa: PLR2004 - the product's, and what adds up
            return None
        launches: list[Callable[[], None]] = []
        for fusion in found[2]:
            trial = GpuTrial(fusion, self.device, self.options.arch)
            launches.append(trial.prepare(trial.start(from_attribute(fusion.operation.attributes["schedule"]))))

        def run() -> None:
            for launch in launches:
                launch()

        return run

    def _library(
        self,
        op: ir.Operation,
        bias: ir.Value | None,
        own: "_Kernel",
        trial: GpuTrial,
        following: "_Kernel | None",
        gelu: bool = False,
    ) -> list[tuple[int, Callable[[], None]]]:
        """The call of the library with each of its algorithms (and which it is), and the kernel behind it, on the
        operands that the product's own kernel has."""
        lhs, _, result = (ir.RankedTensorType(v.type) for v in (*op.operands, *op.results))
        turned = bool(ir.IntegerAttr(op.attributes["transpose_rhs"]).value)
        rows, columns = prod(result.shape[:-1]), result.shape[-1]
        second = GpuTrial(following.fusion, self.device, self.options.arch) if following is not None else None
        launch = None
        if second is not None and following is not None:
            launch = second.prepare(second.start(from_attribute(following.fusion.operation.attributes["schedule"])))
        sets: list[list[torch.Tensor]] = []
        for number, tensors in enumerate(trial.sets):
            given = [op.operands[0], op.operands[1], *([] if bias is None else [bias])]
            operands = [tensors[own.position(value)] for value in given]
            if second is not None and following is not None:
                behind = second.sets[number % len(second.sets)]
                out = behind[following.position(following.inputs[0])]
            else:
                out = torch.empty(rows * columns, dtype=operands[0].dtype, device=operands[0].device)
            sets.append([*operands, out])
        sizes = rows, columns, lhs.shape[-1]
        calls = library_calls(sets[0], sizes, turned, "gelu" if gelu else "", self.device)

        def in_turn(run: Callable[[Sequence[torch.Tensor]], object]) -> Callable[[], None]:
            turns = cycle(sets)

            def both() -> None:
                run(next(turns))
                if launch is not None:
                    launch()

            return both

        return [(call.candidate, in_turn(call.run)) for call in calls]

    def _kernel(self, ops: list[ir.Operation], arguments: list[ir.Value]) -> "_Kernel | None":
        """The one kernel that ops become by themselves."""
        found = scheduled(ops, arguments, self.options)
        if found is None or len(found[2]) != 1:
            return None
        module, inputs, (fusion,) = found
        return _Kernel(module, fusion, inputs)


@dataclass(frozen=True)
class _Kernel:
    """The module that holds a fusion, and what the arguments of its function stand for."""

    module: ir.Module
    fusion: Any
    inputs: list[ir.Value]

    def position(self, value: ir.Value) -> int:
        """The fusion's operand that a value is. Raises KilnError where it is none."""
        number = self.inputs.index(value)
        for i, operand in enumerate(self.fusion.operation.operands):
            if isinstance(operand.owner, ir.Block) and ir.BlockArgument(operand).arg_number == number:
                return i
        raise KilnError("an operand that is not read in place")
