# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions and attention in kernels of their own, or by a call of ATen with kernels behind it."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import name_of, static_flops
from kiln.dialects.schedules import to_attribute
from kiln.errors import KilnError
from kiln.lowering.gpu.dot.fusions import DotOptions
from kiln.lowering.gpu.rules import TuningRules, rules_for
from kiln.lowering.gpu.tune.extract import extracted, pointwise_chain, schedule_module
from kiln.lowering.gpu.tune.judge import Case, Judge
from kiln.lowering.gpu.tune.plan_trial import PlanTrial
from kiln.lowering.host.channels_last import channels_last
from kiln.lowering.host.kernels import fusion_key
from kiln.lowering.tune.measure import Measure
from kiln.lowering.tune.operands import is_close
from kiln.lowering.tune.store import Found, LibraryVerdict, TriedSchedule, TunedSchedules

__all__ = ["AttentionJudge", "ConvolutionJudge"]

Replace = Callable[[ir.Operation], None]
"""Puts the call in an op's place."""


@dataclass(frozen=True)
class _CallCase(Case):
    """ops: what the own kernel holds, in order. own: the scheduled module of these, and its kernels."""

    ops: list[ir.Operation]
    own: ir.Module
    kernels: list[ir.OpView]


class _CallJudge(Judge[_CallCase]):
    """Runs two modules as the compiler would: one with the op, one with the call that `replace` puts in its place.

    Tensors lie as they do in the op's function, as far as that is known before layouts are assigned.
    """

    least: ClassVar[int]

    def __init__(
        self,
        store: TunedSchedules,
        options: DotOptions,
        device: str,
        replace: Replace,
        seconds: float = 0.5,
        graph_seconds: float = 60.0,
        measure: Measure | None = None,
    ) -> None:
        super().__init__(store, options, device, seconds, graph_seconds, measure)
        self.replace = replace

    @abstractmethod
    def work(self, op: ir.Operation) -> int:
        """Of an op of known sizes; 0 for one that is not tried."""

    @abstractmethod
    def ops(self, op: ir.Operation) -> list[ir.Operation]:
        """What is run for an op: it, what is fused behind it, views in front of and behind it."""

    def strides(self, op: ir.Operation, value: ir.Value) -> ir.AffineMap | None:
        """Of an argument or the result of what is run."""
        return _given_strides(value)

    def case(self, op: ir.Operation) -> _CallCase | None:
        values = [*op.operands, op.results[0]]
        if not all(isinstance(v.type, ir.RankedTensorType) for v in values):
            return None
        if not all(ir.RankedTensorType(v.type).has_static_shape for v in values) or self.work(op) < self.least:
            return None
        ops = self.ops(op)
        found = extracted(ops, [], lambda value: self.strides(op, value))
        kernels = None if found is None else schedule_module(found[0], self.options)
        if found is None or not kernels:
            return None
        return _CallCase(op, tuple(fusion_key(k.operation) for k in kernels), ops, found[0], kernels)

    def compare(self, case: _CallCase) -> Found:
        theirs = self._with_call(case)
        trial = PlanTrial(case.own, self.device, self.options.arch)
        (mine, computed), (call, expected) = trial.prepare(case.own), trial.prepare(theirs)
        if not all(is_close(x, y) for x, y in zip(computed, expected, strict=True)):
            raise KilnError("the library computes something else")
        own, library = self.tuner.measure([mine, call], self.tuner.seconds / 2)
        tried = [TriedSchedule("own, by the rules", own.median), TriedSchedule("library", library.median)]
        # An own kernel that is ahead as it is gets its schedule later, from `autotune-gpu`.
        rules = rules_for(TuningRules)
        is_close_call = own.median <= rules.hopeless * library.median and not own.beats(library, rules.margin)
        if is_close_call and self._tune(case.kernels):
            mine, _ = trial.prepare(case.own)
            own, library = self.tuner.measure([mine, call], self.tuner.seconds)
            tried.append(TriedSchedule("own", own.median))
        wins = library.beats(own, rules.margin)
        return Found(LibraryVerdict(wins), "library" if wins else "default", own.median, library.median, tried)

    def _with_call(self, case: _CallCase) -> ir.Module:
        found = extracted(case.ops, [], lambda value: self.strides(case.op, value))
        assert found is not None, "it was extracted before"
        function = next(op for op in found[0].body if op.operation.name == "func.func")
        block = function.regions[0].blocks[0]
        self.replace(next(op.operation for op in block if name_of(op.operation) == name_of(case.op)))
        if schedule_module(found[0], self.options) is None:
            raise KilnError("what follows the call has no kernel")
        return found[0]

    def _tune(self, kernels: Sequence[ir.OpView]) -> bool:
        """Gives kernels the schedules that run fastest; whether any has another one."""
        changed = False
        for kernel in kernels:
            try:
                found = self.tuner.known(kernel) or self.tuner.find(kernel)
            except KilnError:
                continue  # nothing to try: it stays as it is
            changed |= found.label != "default"
            kernel.operation.attributes["schedule"] = to_attribute(found.kernel_schedule)
        return changed


class ConvolutionJudge(_CallJudge):
    """For `kiln.conv`; the batch norm behind it is part of both ways."""

    library = "cuDNN"
    least = rules_for(TuningRules).least_convolution

    @override
    def work(self, op: ir.Operation) -> int:
        if bool(ir.IntegerAttr(op.attributes["transposed"]).value):
            return 0
        return static_flops(op) // 2

    @override
    def ops(self, op: ir.Operation) -> list[ir.Operation]:
        return [op, *pointwise_chain(op.results[0], ("kiln.batch_norm",))]

    def strides(self, op: ir.Operation, value: ir.Value) -> ir.AffineMap | None:
        """What other kernels compute lies as the convolution's result does."""
        rank = ir.RankedTensorType(op.results[0].type).rank
        is_given = isinstance(value.owner, ir.Block) or ir.RankedTensorType(value.type).rank != rank
        if is_given or not _is_channels_last(op):
            return _given_strides(value)
        sizes = tuple(ir.AffineConstantExpr.get(n) for n in ir.RankedTensorType(value.type).shape)
        return ir.AffineMap.get(0, 0, list(channels_last(sizes)))


class AttentionJudge(_CallJudge):
    """For `kiln.attention` of four dims without a mask."""

    library = "ATen"
    least = rules_for(TuningRules).least_attention

    @override
    def work(self, op: ir.Operation) -> int:
        query = ir.RankedTensorType(op.operands[0].type)
        if len(op.operands) > 3 or query.rank != 4 or "fill" in op.attributes:  # noqa: PLR2004 - [batch, head, row, column]
            return 0
        return static_flops(op) // (2 if ir.BoolAttr(op.attributes["causal"]).value else 1)

    def ops(self, op: ir.Operation) -> list[ir.Operation]:
        """With the views that queries, keys and values are of larger tensors, whose strides they have."""
        views: list[ir.Operation] = []
        for operand in op.operands:
            found: list[ir.Operation] = []
            while not isinstance(operand.owner, ir.Block) and name_of(operand.owner) == "kiln.view":
                found.insert(0, operand.owner.operation)
                operand = found[0].operands[0]
            views += [view for view in found if view not in views]
        return [*views, op, *pointwise_chain(op.results[0], ("kiln.view",))]


def _is_channels_last(op: ir.Operation) -> bool:
    if "strides" not in op.attributes:
        return False
    return ir.AffineMapAttr(op.attributes["strides"]).value.results[1] == ir.AffineConstantExpr.get(1)


def _given_strides(value: ir.Value) -> ir.AffineMap | None:
    """Those that an argument of the function has, where they are known."""
    if not isinstance(value.owner, ir.Block):
        return None
    function = value.owner.owner
    if function is None or "arg_attrs" not in function.attributes:
        return None
    entry = ir.DictAttr(ir.ArrayAttr(function.attributes["arg_attrs"])[ir.BlockArgument(value).arg_number])
    found = ir.AffineMapAttr(entry["kiln.strides"]).value if "kiln.strides" in entry else None
    return found if found is not None and found.n_symbols == 0 else None
