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

    The example has no time to try anything: the schedule is that of ``schedule-cpu``. Otherwise ``depth`` and ``nc`` of
    the result, or its kernel, may be others.

    Before::

        func.func @main(%x: tensor<1x64xf32>, %w: tensor<64x32xf32>) -> tensor<1x32xf32> {
          %0 = "kiln.fusion"(%x, %w) ({
          ^bb0(%a: tensor<1x64xf32>, %b: tensor<64x32xf32>):
            %r = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false}
              : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
            "kiln.yield"(%r) : (tensor<1x32xf32>) -> ()
          }) {kind = "matmul", name = "linear"} : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
          return %0 : tensor<1x32xf32>
        }

    After ``schedule-cpu,autotune-cpu{graph-seconds=-1}`` (AVX-512)::

        func.func @main(%arg0: tensor<1x64xf32>, %arg1: tensor<64x32xf32>) -> tensor<1x32xf32> {
          %0 = "kiln.fusion"(%arg0, %arg1) ({
          ^bb0(%arg2: tensor<1x64xf32>, %arg3: tensor<64x32xf32>):
            %1 = "kiln.matmul"(%arg2, %arg3) {transpose_lhs = false, transpose_rhs = false}
                : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
            "kiln.yield"(%1) : (tensor<1x32xf32>) -> ()
          }) {kind = "matmul", name = "linear", schedule =
              {depth = 8 : i64, kernel = "stream", nc = 4096 : i64, width = 16 : i64}}
              : (tensor<1x64xf32>, tensor<64x32xf32>) -> tensor<1x32xf32>
          return %0 : tensor<1x32xf32>
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
