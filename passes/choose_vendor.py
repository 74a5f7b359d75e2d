# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops that a vendor's kernel, called through ATen, does faster than generated code on this target today."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.errors import PassOptionError, UnsupportedError, did_you_mean
from kiln.lowering.host.library_calls import CANDIDATE
from kiln.lowering.target import Library, Target, find_target
from kiln.lowering.tune.trials import Judge, Trials
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite
from kiln.passes.split_products import PARTS
from kiln.passes.tuning import RemembersSchedules
from kiln.passes.vendor.attention import attention
from kiln.passes.vendor.convolutions import convolution, convolution_alone
from kiln.passes.vendor.products import product
from kiln.passes.vendor.sizes import Symbols

__all__ = ["ChooseVendor"]


Build = Callable[[ir.Operation, Symbols, str], tuple[ir.Value, ir.Value] | None]
"""Makes the kiln.aten that stands for an op, and returns (old value, new value); None where sizes of the result have no
names."""

_CALLS: dict[str, Build] = kiln.by_name({kiln.AttentionOp: attention, kiln.ConvOp: convolution, kiln.MatmulOp: product})
"""The call of each op that a library may have."""
_WITHOUT_BIAS: dict[str, Build] = kiln.by_name({kiln.ConvOp: convolution_alone})
"""The call where the library's kernel would not add what follows."""


def _call_of(value: ir.Value) -> ir.Operation:
    """The call whose result a value is, or a view of."""
    op = value.owner.operation
    return op if kiln.name_of(op) == "kiln.aten" else _call_of(op.operands[0])


def _builder(name: str, target: Target) -> Build:
    return _CALLS[name] if target.library_adds_bias else _WITHOUT_BIAS.get(name, _CALLS[name])


def _caller(target: Target, name: str) -> Callable[[ir.Operation], None]:
    """What puts the call in the place of such an op."""
    build = _builder(name, target)

    def call(op: ir.Operation) -> None:
        function = op.parent
        assert function is not None
        built = build(op, Symbols(function.operation), "")
        if built is None:
            raise UnsupportedError(name, str(op.location), "a result whose sizes have no names")
        _replace(op, *built)

    return call


def _replace(op: ir.Operation, old: ir.Value, new: ir.Value) -> None:
    """Puts a value in the place of another one, which an op computes together with what is behind it."""
    old.replace_all_uses_with(new)
    # The last one first: each reads the one before.
    dead = old.owner.operation
    while dead != op:
        maker = dead.operands[0].owner.operation
        dead.erase()
        dead = maker
    op.erase()


@register_pass
@dataclass
class ChooseVendor(RemembersSchedules, Pass):
    """Replace ops by ATen calls where a library's kernel was measured to be faster than generated code.

    The target says who computes an op (`Target.library`); the call's ``reason`` attribute tells why. A bias added right
    after a convolution or product goes into the call (not for cuDNN, where ATen adds it in a pass of its own), and so
    does GELU through tanh behind a product's bias. With ``seconds``, products, convolutions and attention of known
    sizes are run both ways on the GPU, and the target decides about the rest only. A convolution of bf16 whose kernel
    on this CPU needs an image with neighbouring channels gets the attribute ``channels_last_image``.

    Before::

        func.func @main(%x: tensor<1x3x6x40xf32>, %w: tensor<8x3x1x33xf32>) -> tensor<1x8x6x8xf32> {
          %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
            padding = array<i64: 0, 0>, stride = array<i64: 1, 1>, transposed = false}
            : (tensor<1x3x6x40xf32>, tensor<8x3x1x33xf32>) -> tensor<1x8x6x8xf32>
          return %0 : tensor<1x8x6x8xf32>
        }

    After::

        #map = affine_map<() -> (1, 8, 6, 8)>
        func.func @main(%arg0: tensor<1x3x6x40xf32>, %arg1: tensor<8x3x1x33xf32>) -> tensor<1x8x6x8xf32> {
          %0 = "kiln.aten"(%arg0, %arg1)
              {args = "[{\\"operand\\": 0}, {\\"operand\\": 1}, null, [1, 1], [0, 0], [1, 1], false, [0, 0], 1]",
              kwargs = "{}", op = "aten.convolution.default", pure = true,
              reason = "oneDNN: the convolution kernel takes windows of at most 32 columns",
              shapes = [#map], strides = [unit]}
              : (tensor<1x3x6x40xf32>, tensor<8x3x1x33xf32>) -> tensor<1x8x6x8xf32>
          return %0 : tensor<1x8x6x8xf32>
        }
    """

    name = "choose-vendor"
    target: str = "cpu"
    """What the kernels are for; a target without rules keeps every op."""
    keep: tuple[str, ...] = ()
    """Ops that are not replaced, by name without the dialect (``conv``): to run generated code regardless."""

    tensor_maps: bool = False
    """Kernels of products may load their operands through tensor maps, as ``schedule-gpu{descriptors=true}`` allows."""
    seconds: float = 0.0
    """How long the two ways of an op are timed; 0: the rules decide."""
    graph_seconds: float = 60.0
    """From when on the rules decide."""
    device: str = "cuda:0"
    """The GPU that they are timed on."""
    arch: str = "sm_90"
    """What it is, as ``schedule-gpu`` is told."""
    tf32: bool = False
    """As ``schedule-gpu`` is told."""
    roundings: bool = False
    """Own kernels keep eager's roundings to 16 bits between their ops (no ``drop-roundings`` in the pipeline)."""

    def run(self, module: ir.Module) -> None:
        """Rewrite the ops at function level."""
        self._check_names()
        target = find_target(self.target).on(self.device, self.arch)
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            symbols: Symbols | None = None
            # Decided first: rules look at neighbours, and replacing one op may erase another one.
            judges = self._judges(target)
            candidates = [
                (op.operation, *self._decide(op.operation, library, judges))
                for op in function.regions[0].blocks[0].operations
                if (library := self._library(op.operation, target)) is not None
            ]
            for op, reason, why_not, algorithm in candidates:
                if reason is None:
                    self.note(op, why_not)
                    self.count("kept")
                    continue
                if not may_rewrite(op, kiln.name_of(op)):
                    continue
                symbols = symbols or Symbols(function)
                built = _builder(kiln.name_of(op), target)(op, symbols, reason)
                if built is None:
                    self.note(op, "a kernel of its own: its sizes have no names outside of it")
                    self.count("kept")
                    continue
                if algorithm:
                    call = _call_of(built[1])
                    call.attributes[CANDIDATE] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), algorithm)
                self.note(op, reason)
                _replace(op, *built)
                self.count("matched")

    def _check_names(self) -> None:
        ops = sorted(op.removeprefix("kiln.") for op in _CALLS)
        for name in self.keep:
            if name not in ops:
                raise PassOptionError(self.name, f"keep: no rule for {name!r}{did_you_mean(name, ops)}")

    def _decide(self, op: ir.Operation, library: Library, judges: Mapping[str, Judge]) -> tuple[str | None, str, int]:
        """Why to call the library, and if there is no reason, why not; which of the library's algorithms."""
        name, reason = kiln.name_of(op), library.reason
        why_not = library.kept if reason is None else ""
        for mark in library.marks:
            op.attributes[mark] = ir.UnitAttr.get()
        verdict = judges[name].verdict(op) if name in judges else None
        if verdict is None:
            return reason, why_not, 0
        if not verdict.library and name == "kiln.matmul":
            op.attributes[PARTS] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), verdict.parts)
        why_not = f"a kernel of its own: {verdict.reason}"
        return verdict.reason if verdict.library else None, why_not, verdict.candidate

    def _judges(self, target: Target) -> Mapping[str, Judge]:
        """What runs ops both ways, if that is asked for."""
        if not self.seconds:
            return {}
        by = partial(_caller, target)
        times = self.seconds, self.graph_seconds
        return target.judges(Trials(self.store, *times, self.tf32, self.tensor_maps, self.roundings, by))

    def _library(self, op: ir.Operation, target: Target) -> Library | None:
        name = kiln.name_of(op)
        if name not in _CALLS or name.removeprefix("kiln.") in self.keep:
            return None
        return target.library(op, tensor_maps=self.tensor_maps)
