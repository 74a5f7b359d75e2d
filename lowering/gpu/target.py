# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""NVIDIA's GPUs as a target: Triton IR, cuBLAS and cuDNN where they are faster."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import AttentionOp, ConvOp, MatmulOp, by_name
from kiln.lowering.emitters import kernel_kinds
from kiln.lowering.gpu.dot.attention_choice import attention_alone, attention_reason
from kiln.lowering.gpu.dot.choice import product_reason
from kiln.lowering.gpu.dot.conv_choice import convolution_reason, slides, wants_channels_last
from kiln.lowering.gpu.dot.machine import DEFAULT_ARCH, Machine, machine
from kiln.lowering.gpu.named_kernels import no_kernel
from kiln.lowering.gpu.rules import LoopRules, rules_for
from kiln.lowering.host.channels_last import IMAGE
from kiln.lowering.host.depthwise_weights import CHANNELS_INNERMOST
from kiln.lowering.options import PipelineOptions
from kiln.lowering.target import ALONE, Library, Step, Steps, Target, braced, strict
from kiln.lowering.tune.trials import Judge, Trials

__all__ = ["GpuTarget"]


@dataclass(frozen=True)
class GpuTarget(Target):
    """arch: the GPU ("sm_90"). device: one to try schedules on; empty: there is none."""

    name: ClassVar[str] = "cuda"
    uses_triton: ClassVar[bool] = True
    emitters: ClassVar[str] = "gpu"
    library_adds_bias: ClassVar[bool] = False  # ATen adds it to cuDNN's result in a pass of its own

    finds_positions: ClassVar[bool] = False  # kernels with two results a window: not measured

    device: str = ""
    arch: str = DEFAULT_ARCH

    @classmethod
    @override
    def on(cls, device: str, arch: str) -> Self:
        return cls(device, arch)

    @property
    @override
    def runs_on(self) -> str:
        return self.device or "cuda:0"

    @property
    def machine(self) -> Machine:
        """Multiprocessors, shared memory and rates."""
        return machine(self.arch)

    @override
    def supports(self, op: ir.Operation) -> str | None:
        return no_kernel(op)

    @override
    def library(self, op: ir.Operation, *, tensor_maps: bool) -> Library | None:
        if isinstance(op.opview, ConvOp):
            marks = (CHANNELS_INNERMOST, IMAGE) if slides(op) else ()
            return Library(convolution_reason(op, arch=self.arch), marks=marks)
        if isinstance(op.opview, MatmulOp):
            return Library(product_reason(op, tensor_maps=tensor_maps, arch=self.arch))
        if not isinstance(op.opview, AttentionOp):
            return None
        reason = attention_reason(op, tensor_maps=tensor_maps, arch=self.arch)
        if reason is None and attention_alone(op, tensor_maps, self.arch):
            return Library(None, "a kernel of its own is as fast, with one behind it for what follows", (ALONE,))
        return Library(reason)

    @override
    def wants_channels_last(self, op: ir.Operation) -> bool:
        return wants_channels_last(op)

    @override
    def judges(self, trials: Trials) -> Mapping[str, Judge]:
        from kiln.lowering.gpu.dot.fusions import DotOptions
        from kiln.lowering.gpu.tune.calls import AttentionJudge, ConvolutionJudge
        from kiln.lowering.gpu.tune.library import ProductJudge

        options = DotOptions(self.arch, trials.tf32, trials.tensor_maps, trials.roundings)
        given, times = (trials.store, options, self.runs_on), (trials.seconds, trials.graph_seconds)
        return by_name(
            {
                MatmulOp: ProductJudge(*given, *times),
                ConvOp: ConvolutionJudge(*given, trials.caller("kiln.conv"), *times),
                AttentionOp: AttentionJudge(*given, trials.caller("kiln.attention"), *times),
            }
        )

    @override
    def choose_library(self, options: PipelineOptions) -> Steps:
        tuned = ""
        if self._tries(options):
            roundings = " roundings" if options.emulate_precision_casts else ""
            tuned = f" {options.timing} device={self.device} tf32={_text(options.tf32)}{roundings}"
        maps = _text(self._descriptors(options))
        return [
            Step(f"propagate-layouts{{target={self.name}}}", "where channels lie decides who convolves, and how"),
            Step(
                f"convert-scaled-products{{arch={self.arch}}}",
                "calls that are products of 8-bit floats, with what follows",
            ),
            Step(
                f"pad-products{{arch={self.arch}}}",
                "rows that a GPU can move, before it is decided who multiplies them",
            ),
            Step("space-to-depth", "pixels as channels, where an image has few: whoever convolves them"),
            Step(
                f"choose-vendor{{target=cuda tensor-maps={maps} arch={self.arch}{tuned}}}",
                "what a library does faster is called, before it is expanded",
                stage="kiln",
            ),
            Step(
                f"split-products{{arch={self.arch}}}",
                "few tiles with long sums, where parts are faster",
            ),
            Step(
                f"convert-scatters{{deterministic={_text(options.deterministic)}}}",
                "writes with indices are kernels that compute what they write",
            ),
        ]

    @override
    def fuse(self, options: PipelineOptions) -> Steps:
        groups = f"l2-bytes={self.machine.l2_bytes} group-channels={rules_for(LoopRules).group_channels}"
        return [
            *self.expand(list(kernel_kinds("gpu"))),
            Step(
                "sink-reshapes{rows-last=true}", "what follows a group norm in the loops of its reductions: one kernel"
            ),
            *self.clean(),
            Step(
                f"split-reductions{{sms={self.machine.sms} {groups}}}",
                "long sums with few results get programs that share them",
            ),
            Step(
                "fuse{row-blocks=false most-accesses=128 cuts=true}",
                "every computation into a kernel; programs never wait for each other",
            ),
            self.round(options),
        ]

    @override
    def schedule(self, options: PipelineOptions) -> Steps:
        chip = f"arch={self.arch} tf32={_text(options.tf32)} descriptors={_text(self._descriptors(options))}"
        steps = [Step(f"schedule-gpu{{{chip}}}", "tiles and warps by the measured rules", stage="sched")]
        if self._tries(options):
            text = f"autotune-gpu{{{options.timing} device={self.device} {chip}}}"
            steps.append(Step(text, "the rules' tiles are where it starts"))
        return steps

    @override
    def emit(self, options: PipelineOptions) -> Steps:
        emit = f"emit-kernels{braced('target=gpu', strict(options))}"
        proofs = Step(f"prove-kernels{{policy={options.check}}}", "of what goes to Triton")
        return [
            *self.outline(options, "gpu"),
            Step(emit, "blocks of Triton IR, as the schedules say", stage="ttir"),
            *([proofs] if options.check else []),
        ]

    @override
    def lower(self, options: PipelineOptions) -> Steps:
        text = f"assemble{{arch={self.arch}}}"
        return [Step(text, "in other threads, while further kernels are emitted", stage="ptx")]

    def _tries(self, options: PipelineOptions) -> bool:
        return options.is_tuned and bool(self.device)

    def _descriptors(self, options: PipelineOptions) -> bool:
        return options.tensor_maps and self.machine.tensor_maps


def _text(value: bool) -> str:
    return str(value).lower()
