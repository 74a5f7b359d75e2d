# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The CPU as a target: vector code, oneDNN and MKL where they are faster."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import ConvOp
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.conv_choice import vendor_reason, wants_channels_last, wants_rows
from kiln.lowering.cpu.named_kernels import no_kernel
from kiln.lowering.cpu.rates import generic
from kiln.lowering.emitters import kernel_kinds
from kiln.lowering.host.channels_last import IMAGE
from kiln.lowering.options import PipelineOptions
from kiln.lowering.target import Library, Step, Steps, Target, braced, strict

__all__ = ["CpuTarget"]


@dataclass(frozen=True)
class CpuTarget(Target):
    """The processor that code is made for (`isa.target`)."""

    name: ClassVar[str] = "cpu"
    emitters: ClassVar[str] = "cpu"

    @property
    def machine(self) -> isa.Isa:
        """Vectors, registers, instruction sets and caches."""
        return isa.target()

    @override
    def supports(self, op: ir.Operation) -> str | None:
        return no_kernel(op)

    @override
    def library(self, op: ir.Operation, *, tensor_maps: bool) -> Library | None:
        if not isinstance(op.opview, ConvOp):
            return None
        reason = vendor_reason(op)
        if reason is None and self.wants_channels_last(op):
            return Library(None, "a kernel of its own is as fast, on a channels-last image", (IMAGE,))
        return Library(reason)

    @override
    def wants_channels_last(self, op: ir.Operation) -> bool:
        return wants_channels_last(op)

    @override
    def wants_rows(self, op: ir.Operation) -> bool:
        return wants_rows(op)

    @override
    def choose_library(self, options: PipelineOptions) -> Steps:
        return [
            Step(
                "propagate-layouts",
                "where channels lie decides who convolves faster, so it is known before that choice",
            ),
            Step("choose-vendor", "what a library does faster is called, before it is expanded", stage="kiln"),
            Step("convert-integer-products", "calls that are products: their kernels take what follows"),
            Step("fold-dequantization", "products read weights of 8 bits as they are, before kernels are cut"),
            Step("convert-scatters{atomics=false}", "writes with indices are kernels that compute what they write"),
        ]

    @override
    def fuse(self, options: PipelineOptions) -> Steps:
        measured = "" if self.machine.rates == generic() else "{measured=true}"
        groups = f"{{group-channels={self.machine.rules.loops.group_channels}}}"
        return [
            *self.expand(list(kernel_kinds("cpu"))),
            Step("sink-reshapes", "what follows a group norm in the loops of its reductions: one kernel"),
            *self.clean(),
            Step(f"split-reductions{groups}", "long sums with few results get a loop that threads can share"),
            Step(f"fuse{measured}", "every computation into a kernel"),
            self.round(options),
        ]

    @override
    def place(self, options: PipelineOptions) -> Steps:
        return [
            *super().place(options),
            Step("hoist-slices", "kernels that read other slices are equal, and compiled once"),
        ]

    @override
    def schedule(self, options: PipelineOptions) -> Steps:
        tuned = Step(
            f"autotune-cpu{{{options.timing}}}",
            "the rules' tiles are where it starts; constants are packed as it chose",
        )
        return [
            Step("schedule-cpu", "tiles by the measured rules"),
            *([tuned] if options.is_tuned else []),
            *self.apply_schedules(options),
            Step("pack-constants", "in the order that the schedules chose", stage="sched"),
        ]

    @override
    def emit(self, options: PipelineOptions) -> Steps:
        found = Step("find-kernels", "what an earlier graph had compiled is not emitted")
        return [
            *self.outline(options),
            *([found] if options.shares_kernels else []),
            Step(f"emit-kernels{braced(strict(options))}", "loops and vectors, as scheduled", stage="vector"),
        ]

    @override
    def lower(self, options: PipelineOptions) -> Steps:
        return self.assemble()
