# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pass ``autotune-cpu``."""

import math
import time
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.kiln import FusionOp
from kiln.errors import KilnError, UnsupportedError
from kiln.lowering.cpu.schedule_attr import to_attribute
from kiln.lowering.cpu.tune.store import Found, TunedSchedules
from kiln.lowering.cpu.tune.tuner import Tuner
from kiln.passes.core import Pass, register_pass

__all__ = ["AutotuneCpu"]

_in_memory = TunedSchedules()


@register_pass
@dataclass
class AutotuneCpu(Pass):
    """Replace the schedules of products, attention and convolutions by faster ones, where running them finds any.

    A few candidates around each schedule (tiles, packing, the library's blocks or Kiln's own, how threads share) are
    compiled and timed on random operands with the real sizes and strides. One that beats the schedule of
    ``schedule-cpu`` by more than 3 % replaces it, and is remembered for equal kernels of later graphs; in
    ``torch.compile`` with ``mode="max-autotune"`` also of later processes. Sizes known at run time are not tuned.

    The remarks tell what was tried. Kernels with the most work come first, until ``graph-seconds`` are over.

    Before::

        #x = affine_map<()[s0] -> (s0, 8)>
        func.func @main(%x: tensor<?x8xf32> {kiln.shape = #x}, %w: tensor<8x8xf32>, %n: index {kiln.symbol = "s0"})
            -> tensor<?x8xf32> attributes {kiln.symbols = ["s0"]} {
          %0 = "kiln.fusion"(%x, %w, %n) ({
          ^bb0(%a: tensor<?x8xf32>, %b: tensor<8x8xf32>, %s: index):
            %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = true}
              : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
            "kiln.yield"(%r) : (tensor<?x8xf32>) -> ()
          }) {kind = "matmul", name = "linear", schedule = {kernel = "dot"},
              shapes = [#x, affine_map<()[s0] -> (8, 8)>]}
            : (tensor<?x8xf32>, tensor<8x8xf32>, index) -> tensor<?x8xf32>
          return %0 : tensor<?x8xf32>
        }

    After::

        #map = affine_map<()[s0] -> (s0, 8)>
        #map1 = affine_map<()[s0] -> (8, 8)>
        func.func @main(%arg0: tensor<?x8xf32> {kiln.shape = #map}, %arg1: tensor<8x8xf32>,
            %arg2: index {kiln.symbol = "s0"}) -> tensor<?x8xf32> attributes {kiln.symbols = ["s0"]} {
          %0 = "kiln.fusion"(%arg0, %arg1, %arg2) ({
          ^bb0(%arg3: tensor<?x8xf32>, %arg4: tensor<8x8xf32>, %arg5: index):
            %1 = "kiln.matmul"(%arg3, %arg4) {transpose_lhs = false, transpose_rhs = true}
                : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
            "kiln.yield"(%1) : (tensor<?x8xf32>) -> ()
          }) {kind = "matmul", name = "linear", schedule = {kernel = "dot"}, shapes = [#map, #map1]}
              : (tensor<?x8xf32>, tensor<8x8xf32>, index) -> tensor<?x8xf32>
          return %0 : tensor<?x8xf32>
        }
    """

    name = "autotune-cpu"
    seconds: float = 0.5  # how long the candidates of one kernel are timed
    graph_seconds: float = 60.0  # from when on, compilation included, the other kernels keep their schedules

    @property
    def store(self) -> TunedSchedules:
        """Where schedules are remembered: in this process, unless set."""
        return self.__dict__.get("_store", _in_memory)

    @store.setter
    def store(self, store: TunedSchedules) -> None:
        self.__dict__["_store"] = store

    def run(self, module: ir.Module) -> None:
        """Tune every fusion with a schedule."""
        tuner = Tuner(self.store, self.seconds)
        fusions = [
            op
            for function in module.body.operations
            for region in function.regions
            for block in region.blocks
            for op in block.operations
            if isinstance(op, FusionOp) and "schedule" in op.operation.attributes
        ]
        start = time.perf_counter()
        for fusion in sorted(fusions, key=_weight, reverse=True):
            try:
                found = tuner.known(fusion)
                remembered = found is not None
                if found is None:
                    if time.perf_counter() - start > self.graph_seconds:
                        raise UnsupportedError("", "", f"the {self.graph_seconds:g} s for this graph are over")
                    found = tuner.find(fusion)
            except UnsupportedError as error:
                self._leave(fusion, error.reason)
                continue
            except KilnError as error:
                self._leave(fusion, str(error))
                continue
            fusion.operation.attributes["schedule"] = to_attribute(found.schedule)
            self.count("failed" if found.label == "default" else "matched")
            self.note(fusion, f"{_name(fusion)}: {_summary(found)}{', found before' if remembered else ''}")

    def _leave(self, fusion: ir.OpView, reason: str) -> None:
        self.count("failed")
        self.note(fusion, f"{_name(fusion)}: not tuned: {reason}")


def _name(fusion: ir.OpView) -> str:
    return ir.StringAttr(fusion.operation.attributes["name"]).value


def _weight(fusion: ir.OpView) -> float:
    """About the multiplications of a fusion, to order by: for a product the root of its operands' sizes."""
    sizes = [math.prod(max(n, 1) for n in t.shape) for t in _tensor_types(fusion)]
    return math.sqrt(math.prod(float(n) for n in sorted(sizes)[-3:]))


def _tensor_types(fusion: ir.OpView) -> list[ir.RankedTensorType]:
    values = [*fusion.operation.operands, *fusion.operation.results]
    return [ir.RankedTensorType(v.type) for v in values if isinstance(v.type, ir.RankedTensorType)]


def _summary(found: Found) -> str:
    tried = ", ".join(f"{t.label} {t.reason or _time(t.seconds)}" for t in found.tried if t.label != "default")
    if found.label == "default":
        return f"the default stays ({_time(found.default)}); tried: {tried}"
    won = f"{found.label} {_time(found.seconds)} instead of {_time(found.default)}"
    return f"{won} ({found.default / found.seconds:.2f} times as fast); tried: {tried}"


def _time(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} us" if seconds < 1e-3 else f"{1e3 * seconds:.2f} ms"
