# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A product in a kernel of its own, or by a library with a kernel behind it: whichever runs faster.

What follows the product counts: in a kernel of its own it costs little, behind a call of a library a pass over memory.
"""

import time
from collections.abc import Callable
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
from kiln.lowering.gpu.dot.choice import added_bias
from kiln.lowering.gpu.dot.fusions import DotOptions
from kiln.lowering.gpu.tune.extract import extracted, pointwise_chain
from kiln.lowering.gpu.tune.trial import GpuTrial
from kiln.lowering.gpu.tune.tuner import MARGIN, GpuTuner, chip_name
from kiln.lowering.host.kernels import fusion_key
from kiln.lowering.schedule_attr import from_attribute

__all__ = ["ProductJudge", "Verdict"]

_LEAST_WORK = 1 << 26
"""Multiplications below which a call costs more than any kernel saves."""


@dataclass(frozen=True)
class Verdict:
    """Whether the library is to be called, and the times."""

    library: bool
    reason: str


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
        times = f"{1e6 * found.seconds:.1f} us with cuBLAS, {1e6 * found.default:.1f} us in a kernel of its own"
        return Verdict(library, f"cuBLAS: {times}" if library else times)

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
        times = self.tuner.measure([mine, theirs], self.tuner.seconds)
        library = times[1].beats(times[0], MARGIN)
        tried = [TriedSchedule("own", times[0].median), TriedSchedule("library", times[1].median)]
        label = "library" if library else "default"
        return Found({"library": library}, label, times[0].median, times[1].median, tried)

    def _library(
        self,
        op: ir.Operation,
        bias: ir.Value | None,
        own: "_Kernel",
        trial: GpuTrial,
        following: "_Kernel | None",
        gelu: bool = False,
    ) -> Callable[[], None]:
        """The call of the library and the kernel behind it, on the operands that the product's own kernel has."""
        lhs, rhs, result = (ir.RankedTensorType(v.type) for v in (*op.operands, *op.results))
        turned = bool(ir.IntegerAttr(op.attributes["transpose_rhs"]).value)
        rows, columns = prod(result.shape[:-1]), result.shape[-1]
        second = GpuTrial(following.fusion, self.device, self.options.arch) if following is not None else None
        launch = None
        if second is not None and following is not None:
            launch = second.prepare(second.start(from_attribute(following.fusion.operation.attributes["schedule"])))
        sets = []
        for number, tensors in enumerate(trial.sets):
            x = tensors[own.position(op.operands[0])].view(-1, lhs.shape[-1])
            w = tensors[own.position(op.operands[1])].view(rhs.shape)
            b = None if bias is None else tensors[own.position(bias)]
            if second is not None and following is not None:
                behind = second.sets[number % len(second.sets)]
                out = behind[following.position(following.inputs[0])].view(rows, columns)
            else:
                out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
            sets.append((x, w.t() if turned else w, b, out))
        turns = cycle(sets)

        def run() -> None:
            x, w, b, out = next(turns)
            if b is None:
                torch.mm(x, w, out=out)
            elif gelu:
                torch._addmm_activation(b, x, w, use_gelu=True, out=out)  # pyright: ignore[reportPrivateImportUsage]
            else:
                torch.addmm(b, x, w, out=out)
            if launch is not None:
                launch()

        return run

    def _kernel(self, ops: list[ir.Operation], arguments: list[ir.Value]) -> "_Kernel | None":
        """The one kernel that ops become by themselves."""
        from kiln.passes import run_pipeline
        from kiln.passes.fusion.kernels import fusions_of

        found = extracted(ops, arguments)
        if found is None:
            return None
        module, inputs = found
        o = self.options
        chip = f"arch={o.arch} tf32={str(o.tf32).lower()} descriptors={str(o.descriptors).lower()}"
        # As in the pipeline: what is found for this kernel is then known when its graph's kernels are tuned.
        run_pipeline(module, f"canonicalize,cse,fuse{{row-blocks=false}},assign-layouts,schedule-gpu{{{chip}}}")
        fusions = fusions_of(module)
        if len(fusions) != 1 or "schedule" not in fusions[0].operation.attributes:
            return None
        return _Kernel(module, fusions[0], inputs)


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
