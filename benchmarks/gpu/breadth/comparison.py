# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A compiled model beside eager in the same dtype and in a wider one."""

import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.breadth.contender import Arguments, Values, perturbed, reference, run, snapshot, step, to
from benchmarks.gpu.breadth.judge import Finding, apart, judge, output_error
from benchmarks.gpu.breadth.row import Row

__all__ = ["Comparison", "NotRun"]

PERTURBATIONS = 24
MOST = 2.0**-7
"""No parameter moves by more: what a network makes of it would hide mistakes."""
CHANCE = 2.0**-5
"""Two calls of eager are as near as the order of atomic sums is; numbers drawn anew put them further apart."""


class NotRun(Exception):
    """Nothing to compare: no model, or no result of eager's."""


@dataclass
class Comparison:
    """`sets`: arguments in `dtype`, one or two. `row` is filled as the comparison goes on.

    through: what is called in place of a module, for eager's results and the wider ones.
    """

    module: nn.Module
    sets: list[Arguments]
    dtype: torch.dtype
    row: Row
    is_step: bool = False
    input_gradients: bool = True
    device: str = "cuda"
    through: Callable[[nn.Module], Callable[..., Any]] = lambda module: module
    _eager: list[Values] = field(default_factory=list)
    _exact: list[Values] = field(default_factory=list)
    _perturbed: list[Values] = field(default_factory=list)

    def reference(self) -> None:
        """Run eager and the wider reference: float32 is wide enough for 16 bits, and on a GPU an order faster.

        Raises NotRun.
        """
        try:
            call = self.through(self.module)
            self._eager = [self._called(call, self.module, a) for a in self.sets]
            again = self._called(call, self.module, self.sets[0])
        except Exception as error:
            traceback.print_exc()
            raise NotRun(f"eager fails: {error}") from error
        wide = torch.float64 if self.dtype == torch.float32 else torch.float32
        try:
            self._exact = self._wide_results(wide)
        except torch.OutOfMemoryError as error:
            raise NotRun(f"reference: {error}") from error
        except Exception as error:
            traceback.print_exc()
            if wide == torch.float32:
                raise NotRun(f"reference fails: {error}") from error
            wide = torch.float32  # some models name it
            self._exact = self._wide_results(wide)
        self.row["reference"] = str(wide).removeprefix("torch.")
        if (distance := output_error(again, self._eager[0])) > CHANCE:
            raise NotRun(f"eager draws numbers: its results differ by {distance:.1e} from call to call")

    def compare(self, call: Callable[..., Any]) -> None:
        """Calls on the first arguments, the first, the second if there are two, and the first again."""
        row, worst, unsteady = self.row, Finding(), ""
        before, first = snapshot(self.module, self.sets), None
        row |= {"repeats": True, "difference": 0.0, "recompiles": 0, "perturbed": False}
        for number, index in enumerate((0, 0) if len(self.sets) == 1 else (0, 0, 1, 0)):
            graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            with self._timed("first call" if number == 0 else "later calls"):
                found = self._called(call, self.module, self.sets[index])
            row["recompiles"] += torch._dynamo.utils.counters["stats"]["unique_graphs"] - graphs if number else 0
            current = self._judged(found, index)
            if current.reason:
                worst = replace(current, reason=f"call {number}: {current.reason}")
                break
            worst = max(worst, current, key=lambda finding: finding.share)
            if first is None:
                first = {name: value.clone() for name, value in found.items()}
            elif index == 0:
                row["repeats"] &= all(_same_bits(first[name], found[name]) for name in first)
                distance, reason = apart(first, found, self._eager[0], self._exact[0], self.dtype)
                row["difference"], unsteady = max(row["difference"], distance), unsteady or reason
        reason = worst.reason or unsteady
        if not reason:
            after = snapshot(self.module, self.sets)
            written = [name for name, value in after.items() if not _same_bits(value, before[name])]
            reason = f"written to: {', '.join(written[:4])}" if written else ""
        row |= {"status": "wrong" if reason else "right", "reason": reason}
        row |= {"where": worst.where, "error": worst.error, "eager_error": worst.eager_error, "share": worst.share}

    def _judged(self, found: Values, index: int) -> Finding:
        """What rounding does to a model with kinks differs by luck: where the error is above its limit, eager's errors
        are joined by what perturbed parameters do to the exact results."""
        eager, exact = self._eager[index], self._exact[index]
        current = judge(found, eager, exact, self.dtype)
        if not current.reason or not current.share:
            return current
        wide = next(value.dtype for value in exact.values() if value.is_floating_point())
        epsilon = torch.finfo(self.dtype).eps
        # As far as eager's results are off, which is what its roundings amount to: half an epsilon flips fewer signs.
        epsilon = max(epsilon / 2, min(output_error(eager, exact), 8 * epsilon, MOST))
        others = []
        self.row["perturbed"] = True
        for seed in range(PERTURBATIONS):  # which kinks one draw finds is luck as well
            module = perturbed(reference(self.module, wide), epsilon, seed)
            arguments = perturbed(to(self.sets[index], self.device, wide), epsilon, seed)
            others.append(self._called(self.through(module), module, arguments))
            current = judge(found, eager, exact, self.dtype, others)
            if not current.reason:
                break
        return current

    def _wide_results(self, dtype: torch.dtype) -> list[Values]:
        module = reference(self.module, dtype)
        call = self.through(module)
        return [self._called(call, module, to(arguments, self.device, dtype)) for arguments in self.sets]

    def _called(self, call: Callable[..., Any], module: nn.Module, arguments: Arguments) -> Values:
        """One call, after which the buffers of `module` are as before: those it changed are among the results. One that
        it makes, or makes longer, is a cache.
        """
        if not self.is_step:
            return run(call, arguments)
        kept = {name: buffer.clone() for name, buffer in module.named_buffers()}
        found = step(call, module, arguments, self.input_gradients)
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name not in kept or kept[name].shape != buffer.shape:
                    continue
                if not torch.equal(buffer, kept[name]):
                    found[f"buffer.{name}"] = buffer.clone()
                    buffer.copy_(kept[name])
        module.zero_grad(set_to_none=True)
        return found

    @contextmanager
    def _timed(self, what: str):
        begin = time.perf_counter()
        yield
        if self.device == "cuda":
            torch.cuda.synchronize()
        times = self.row.setdefault("times", {})
        times[what] = times.get(what, 0.0) + time.perf_counter() - begin


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(torch.nan_to_num(first), torch.nan_to_num(second)) and torch.equal(
        torch.isnan(first), torch.isnan(second)
    )
