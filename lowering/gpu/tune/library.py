# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A product in a kernel of its own, or by a library with a kernel behind it: whichever runs faster.

What follows the product counts: in a kernel of its own it costs little, behind a call of a library a pass over memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import prod
from typing import Any

import torch
from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import static_flops
from kiln.dialects.schedules import from_attribute
from kiln.errors import KilnError
from kiln.lowering.gpu.dot.activation import gelu_behind
from kiln.lowering.gpu.dot.choice import added_bias, parts_of_product, stands_alone
from kiln.lowering.gpu.rules import TuningRules, rules_for
from kiln.lowering.gpu.tune.extract import pointwise_chain, scheduled
from kiln.lowering.gpu.tune.judge import Case, Judge
from kiln.lowering.gpu.tune.library_trial import library_calls
from kiln.lowering.gpu.tune.trial import GpuTrial
from kiln.lowering.host.kernels import fusion_key
from kiln.lowering.tune.store import Found, LibraryVerdict, TriedSchedule

__all__ = ["ProductJudge"]


@dataclass(frozen=True)
class _ProductCase(Case):
    """The pointwise ops behind a product, and the kernel that it is with them."""

    chain: list[ir.Operation]
    own: "_Kernel"


class ProductJudge(Judge[_ProductCase]):
    """For `kiln.matmul` of known sizes with a matrix on its right: each of the library's algorithms is one of its
    ways.
    """

    library = "cuBLAS"

    @override
    def case(self, op: ir.Operation) -> _ProductCase | None:
        lhs, rhs, result = (ir.RankedTensorType(v.type) for v in (*op.operands, *op.results))
        if not all(t.has_static_shape for t in (lhs, rhs, result)) or rhs.rank != 2:
            return None
        if bool(ir.IntegerAttr(op.attributes["transpose_lhs"]).value) or prod(result.shape) == 0:
            return None
        if static_flops(op) < 2 * rules_for(TuningRules).least_product or op.operands[0] == op.operands[1]:
            return None
        if not stands_alone(op):
            return None
        chain = pointwise_chain(op.results[0])
        own = self._kernel([op, *chain], list(op.operands))
        return None if own is None else _ProductCase(op, (fusion_key(own.fusion.operation),), chain, own)

    @override
    def compare(self, case: _ProductCase) -> Found:
        op, chain, own = case.op, case.chain, case.own
        best = self.tuner.find(own.fusion)
        trial = GpuTrial(own.fusion, self.device, self.options.arch)
        mine = trial.prepare(trial.start(best.kernel_schedule))
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
        margin = rules_for(TuningRules).margin
        first, best = 1, min(range(1, 1 + len(theirs)), key=lambda i: times[i].median)
        if not times[best].beats(times[first], margin):
            best = first
        library = times[best].beats(times[0], margin)
        tried = [TriedSchedule(label, time.median) for label, time in zip(labels, times, strict=False)]
        found = LibraryVerdict(library, theirs[best - 1][0])
        if split is not None and all(times[-1].beats(times[i], margin) for i in (0, best)):
            found = LibraryVerdict(False, theirs[best - 1][0], parts, times[-1].median)
        label = "library" if found.library else "default"
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
        operands that the product's own kernel has.
        """
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
