# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Values of 16-bit tensors that only a kernel sees, in f32."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch_mlir import ir

from kiln.dialects.kiln import Role, SortOp, TopkOp, name_of, opdef
from kiln.dialects.rounding import is_narrow
from kiln.lowering import paths
from kiln.lowering.tile.dataflow import Dataflow
from kiln.passes.core import Pass, register_pass
from kiln.passes.roundings.decisions import deciding_arguments
from kiln.passes.roundings.exact import compared, mark_alike, mark_exact
from kiln.passes.roundings.kept import element_type, widened
from kiln.passes.roundings.rewrite import compute_in_f32, widen
from kiln.passes.roundings.same import Numbering

__all__ = ["DropRoundings"]

_TAKEN = paths.group("any drop-roundings", "in another kernel")

_SELECTING = {
    *("amax", "amin", "aminmax", "argmax", "argmin", "argsort", "bucketize", "cummax", "cummin", "kthvalue", "max"),
    *("median", "min", "mode", "msort", "nanmedian", "searchsorted", "sort", "topk"),
}
"""Functions of ATen whose results say which element came first."""


@register_pass
@dataclass
class DropRoundings(Pass):
    """Leave out the roundings to bf16 and f16 between the ops of one kernel.

    Eager rounds the result of each op, for it is stored. Inside of a fusion a value is rounded only where it is stored,
    where a product reads it, where the program casts it (an ``arith.truncf`` without ``fastmath<contract>``), and where
    it decides: compared, rounded to integers, or the stored maximum of something. All readers of such a value see the
    rounded one. Everything else is f32, sums of products among it: a bias is added to these in any case, as in eager.

    On the way to what decides, or has a distance from a mean or an extremum, ops that have several forms are marked
    with ``kiln.exact``, in f32 and f64, too: the number is then the same in every kernel that computes it. With
    ``sums-only`` all of them are.

    Before::

        func.func @main(%x: tensor<8xbf16>) -> tensor<8xbf16> {
          %0 = "kiln.fusion"(%x) ({
          ^bb0(%a: tensor<8xbf16>):
            %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xbf16>
            %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                iterator_types = ["parallel"]} ins(%a : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
            ^bb0(%in: bf16, %out: bf16):
              %3 = arith.extf %in : bf16 to f32
              %4 = math.exp %3 : f32
              %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
              linalg.yield %5 : bf16
            } -> tensor<8xbf16>
            %2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                iterator_types = ["parallel"]} ins(%1 : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
            ^bb0(%in: bf16, %out: bf16):
              %3 = arith.extf %in : bf16 to f32
              %4 = arith.addf %3, %3 : f32
              %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
              linalg.yield %5 : bf16
            } -> tensor<8xbf16>
            "kiln.yield"(%2) : (tensor<8xbf16>) -> ()
          }) {kind = "pointwise", name = "exp_add"} : (tensor<8xbf16>) -> tensor<8xbf16>
          return %0 : tensor<8xbf16>
        }

    After::

        #map = affine_map<() -> (8)>
        #map1 = affine_map<(d0) -> (d0)>
        func.func @main(%arg0: tensor<8xbf16>) -> tensor<8xbf16> {
          %0 = "kiln.fusion"(%arg0) ({
          ^bb0(%arg1: tensor<8xbf16>):
            %1 = "kiln.empty"() {shape = #map} : () -> tensor<8xbf16>
            %2 = "kiln.empty"() {shape = #map} : () -> tensor<8xf32>
            %3 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel"]}
                ins(%arg1 : tensor<8xbf16>) outs(%2 : tensor<8xf32>) {
            ^bb0(%in: bf16, %out: f32):
              %5 = arith.extf %in : bf16 to f32
              %6 = math.exp %5 : f32
              linalg.yield %6 : f32
            } -> tensor<8xf32>
            %4 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel"]}
                ins(%3 : tensor<8xf32>) outs(%1 : tensor<8xbf16>) {
            ^bb0(%in: f32, %out: bf16):
              %5 = arith.addf %in, %in : f32
              %6 = arith.truncf %5 fastmath<contract> : f32 to bf16
              linalg.yield %6 : bf16
            } -> tensor<8xbf16>
            "kiln.yield"(%4) : (tensor<8xbf16>) -> ()
          }) {kind = "pointwise", name = "exp_add"} : (tensor<8xbf16>) -> tensor<8xbf16>
          return %0 : tensor<8xbf16>
        }
    """

    name = "drop-roundings"
    changes_roundings = True
    sums_only: bool = field(
        default=False, metadata={"help": "only those that eager has not: between a product and its bias"}
    )

    def run(self, module: ir.Module) -> None:
        """Rewrite every fusion."""
        for function in module.body:
            if function.operation.name == "func.func" and len(function.operation.regions[0].blocks):
                deciding: set[ir.Value] = set()
                exact: set[ir.Value] = set()
                found: list[_Fusion] = []
                # From the last kernel to the first: whether a result decides is known from those that read it.
                for op in reversed(list(function.operation.regions[0].blocks[0])):
                    if name_of(op) == "kiln.fusion":
                        found.append(self._prepared(op.operation, deciding, exact))
                    else:
                        deciding.update(_deciding_operands(op.operation, deciding))
                        exact.update(_deciding_operands(op.operation, exact))
                if len(found) > 1 and not self.sums_only and any(fusion.is_exact for fusion in found):
                    mark_alike([(fusion.op, fusion.flow) for fusion in found[::-1]])
                narrow = [fusion for fusion in found if fusion.is_narrow]
                if len(narrow) > 1 and not self.sums_only:
                    _round_alike(found[::-1])
                for fusion in narrow:
                    self._widen(fusion)

    def _prepared(self, op: ir.Operation, deciding: set[ir.Value], exact: set[ir.Value]) -> "_Fusion":
        flow = Dataflow(op)
        roots = list(zip(flow.roots, op.results, strict=True))
        wanted = [root for root, result in roots if result in deciding]
        deciding.update(op.operands[ir.BlockArgument(v).arg_number] for v in deciding_arguments(flow, wanted))
        same = [*compared(flow), *(root for root, result in roots if result in exact)]
        exact.update(op.operands[ir.BlockArgument(v).arg_number] for v in deciding_arguments(flow, same))
        fusion = _Fusion(op, flow, mark_exact(flow, same, is_all=self.sums_only))
        fusion.is_narrow = any(is_narrow(element_type(r)) for op in flow.ops for r in op.results)
        if fusion.is_narrow:
            if not self.sums_only:
                compute_in_f32(flow)
            fusion.wanted, fusion.values = wanted, widened(flow, wanted, self.sums_only)
        return fusion

    def _widen(self, fusion: "_Fusion") -> None:
        if fusion.values:
            self.count("values in f32", len(fusion.values))
            self.count("roundings left out", widen(fusion.op, fusion.flow, fusion.values))


@dataclass
class _Fusion:
    """A fusion on the way: whether something in it has to be exact, its results with which others decide, and its
    values that become f32.
    """

    op: ir.Operation
    flow: Dataflow
    is_exact: bool
    is_narrow: bool = False
    wanted: list[ir.Value] = field(default_factory=list[ir.Value])
    values: set[ir.Value] = field(default_factory=set[ir.Value])


def _round_alike(fusions: Sequence[_Fusion]) -> None:
    """Keep, in each of the fusions, which come in order, the roundings that one of them has to keep."""
    numbering = Numbering()
    roundings = [numbering.add(fusion.op, fusion.flow) for fusion in fusions]
    counts = Counter(number for found in roundings for number in found)
    kept: set[int] = set()
    while True:
        more = {
            number
            for fusion, found in zip(fusions, roundings, strict=True)
            for number, ops in found.items()
            if counts[number] > 1 and any(op.results[0] not in fusion.values for op in ops)
        }
        if more <= kept:
            return
        kept |= more
        for fusion, found in zip(fusions, roundings, strict=True):
            rounded = [op.results[0] for number in found.keys() & kept for op in found[number]]
            if any(v in fusion.values for v in rounded):
                _TAKEN("in another kernel")
                fusion.values = widened(fusion.flow, fusion.wanted, rounded=rounded)


def _deciding_operands(op: ir.Operation, deciding: set[ir.Value]) -> list[ir.Value]:
    """The operands of an op between kernels that decide: what is moved and decides later, and what is put in order."""
    name = name_of(op)
    if opdef(op).role is Role.MOVEMENT and any(r in deciding for r in op.results):
        return list(op.operands)
    if name == "kiln.aten":
        called = ir.StringAttr(op.attributes["op"]).value.split(".")
        return list(op.operands) if len(called) > 1 and called[1] in _SELECTING else []
    return list(op.operands) if isinstance(op.opview, SortOp | TopkOp) else []
