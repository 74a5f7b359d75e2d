# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fusion: from a function of `linalg` and named ops to a function of kernels."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.errors import PassOptionError
from kiln.lowering.cpu import isa
from kiln.passes.core import Pass, register_pass
from kiln.passes.fusion.graph import FusionGraph
from kiln.passes.fusion.groups import Grouping
from kiln.passes.fusion.horizontal import Room, fuse_nests, fuse_products, fuse_small
from kiln.passes.fusion.order import Schedule
from kiln.passes.fusion.outline import Outliner
from kiln.passes.fusion.reach import Reach
from kiln.passes.fusion.recompute import Repeated, copy_for_readers, estimate, worth_repeating
from kiln.passes.fusion.relief import relieve
from kiln.passes.fusion.rows import keep_shared_rows
from kiln.passes.fusion.rules import fusion_rules
from kiln.passes.fusion.search import search
from kiln.passes.fusion.statistics import join_statistics
from kiln.passes.fusion.tally import Machine
from kiln.passes.fusion.walk import walk

_MOST_ROUNDS = 3
"""Groupings that are made to compute values in several kernels; most functions have nothing left behind the first."""


@register_pass
@dataclass
class Fuse(Pass):
    """Put every computation into a `kiln.fusion`: one region is one kernel.

    Producers are visited from the last to the first and join a consumer's kernel where its loops can compute them:
    pointwise ops everywhere they are read (at any affine index), unless that means computing something expensive
    again and again; reductions into the kernel that reads them along the same rows (softmax and the norms become
    one kernel); a matrix product or attention takes the pointwise ops behind it as its epilogue, and a product also
    what follows it row by row (a norm, a softmax) and products that are read together with it (`row-blocks`).
    Views, splats and iotas are copied into each kernel. What calls, matrix products and the caller need stays in
    memory.

    Before::

        func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
          %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
          %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
              iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
          ^bb0(%i: f32, %o: f32):
            %a = math.exp %i : f32
            linalg.yield %a : f32
          } -> tensor<8xf32>
          %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
              iterator_types = ["parallel"]} ins(%0 : tensor<8xf32>) outs(%e : tensor<8xf32>) {
          ^bb0(%i: f32, %o: f32):
            %a = arith.negf %i : f32
            linalg.yield %a : f32
          } -> tensor<8xf32>
          return %1 : tensor<8xf32>
        }

    After::

        #map = affine_map<() -> (8)>
        #map1 = affine_map<(d0) -> (d0)>
        func.func @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
          %0 = "kiln.fusion"(%arg0) ({
          ^bb0(%arg1: tensor<8xf32>):
            %1 = "kiln.empty"() {shape = #map} : () -> tensor<8xf32>
            %2 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel"]}
                ins(%arg1 : tensor<8xf32>) outs(%1 : tensor<8xf32>) {
            ^bb0(%in: f32, %out: f32):
              %4 = math.exp %in : f32
              linalg.yield %4 : f32
            } -> tensor<8xf32>
            %3 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel"]} ins(%2 : tensor<8xf32>)
                outs(%1 : tensor<8xf32>) {
            ^bb0(%in: f32, %out: f32):
              %4 = arith.negf %in : f32
              linalg.yield %4 : f32
            } -> tensor<8xf32>
            "kiln.yield"(%3) : (tensor<8xf32>) -> ()
          }) {kind = "pointwise", name = "generic"} : (tensor<8xf32>) -> tensor<8xf32>
          return %0 : tensor<8xf32>
        }
    """

    name = "fuse"

    strategy: str = "greedy"
    """greedy: each op goes where it fits first. search: from there, whatever makes the whole function cheaper by the
    cost model. none: a kernel for each op."""

    limit: int = 200
    """Groupings that the search looks at."""

    row_blocks: bool = True
    """Norms, softmax and gates behind products of the same rows join their kernel, where threads can share it (CPU).
    Without it, only products of one matrix that are read together by pointwise ops do (gates)."""

    l2_bytes: int = 0
    """Size of the second-level cache in which a block of rows finds its products' rhs again; 0: that of the processor
    that code is made for."""

    horizontal: bool = True
    """Kernels that do not depend on each other share loops or become parts of one kernel, where they read the same."""

    recompute: bool = True
    """Cheap values that several kernels read are computed in each of them, where that is faster than storing them."""

    most_accesses: int = 0
    """Loads and stores of the loops that a producer may join; 0: any number. Triton's time grows with the
    third power of the steps of a recurrence that is written out (benchmarks/results/recurrence_compile.json)."""

    cuts: bool = False
    """Loops are cut at concatenations, and what several pieces read is computed once (GPU): a producer that joins one
    counts for its own elements alone, and so does one below a pad. On CPUs each piece is a loop, which computes it
    again."""

    measured: bool = False
    """Costs are those of the processor that code is made for, as `kiln-tune --machine` measured it, and not those of a
    core that is the same everywhere."""

    @override
    def run(self, module: ir.Module) -> None:
        if self.strategy not in ("greedy", "search", "none"):
            expected = "expected 'greedy', 'search' or 'none'"
            raise PassOptionError(self.name, f"strategy: {expected}, found {self.strategy!r}")
        for op in module.body.operations:
            if op.operation.name == "func.func" and len(op.regions[0].blocks):
                self._fuse(op)

    def _fuse(self, function: ir.OpView) -> None:
        graph = FusionGraph(function)
        singles = Grouping(graph)
        held = Schedule.of(singles).peak(singles)
        if self.strategy == "search":
            grouping, made = search(lambda choices: self._grouping(graph, choices, held), self.limit)
            self.count("groupings", made)
        elif self.strategy == "greedy":
            grouping = self._greedy(graph, held)
        else:
            grouping = singles
        origin: Mapping[ir.Value, ir.Value] = {}
        if self.recompute and self.strategy != "none":
            grouping, origin = self._repeat(function, grouping, held)
        for op, reason in grouping.decisions:
            self.note(op, reason)
        self.count("ops", len(graph.compute))
        self.count("kernels", Outliner(grouping.graph, grouping, origin).run())
        if self.row_blocks:
            for fusion, reason in keep_shared_rows(function, self.l2_bytes or isa.target().l2_bytes):
                self.note(fusion, reason)

    def _repeat(
        self, function: ir.OpView, grouping: Grouping, held: int
    ) -> tuple[Grouping, Mapping[ir.Value, ir.Value]]:
        """A grouping whose kernels compute cheap values for themselves, if that is faster; what is a copy of what.

        Rounds, because one changes who reads what: when several kernels compute an exponential, each of them reads the
        cast in front of it. Memory may grow by 1 / `spare_parts` in all rounds together: room for a row of maxima.
        """
        origin: dict[ir.Value, ir.Value] = {}
        room = 0
        for _ in range(_MOST_ROUNDS):
            repeated = worth_repeating(grouping)
            if not repeated:
                break
            if not origin:
                room = max(held, Schedule.of(grouping).peak(grouping))
                room += room // fusion_rules().spare_parts
            found = self._repeat_once(function, grouping, repeated, held, room)
            if found is None:
                break
            grouping, copies = found
            origin |= {copy: origin.get(value, value) for copy, value in copies.items()}
        return grouping, origin

    def _repeat_once(
        self, function: ir.OpView, grouping: Grouping, repeated: list[Repeated], held: int, room: int
    ) -> tuple[Grouping, Mapping[ir.Value, ir.Value]] | None:
        """One round of `_repeat`; None, and the function as it was, if it gains nothing or holds more than `room`."""
        seconds, moved = estimate(grouping)  # asked now: what knows ops by their operands is wrong behind a copy
        copies = copy_for_readers(repeated)
        candidate = self._greedy(FusionGraph(function), held)
        time, bytes_ = estimate(candidate)
        if time >= seconds or bytes_ > moved or Schedule.of(candidate).peak(candidate, enough=room) > room:
            copies.undo()
            self.count("values stored after all", len(repeated))
            return None
        for entry in repeated:
            self.note(entry.ops[-1], entry.why)
        self.count("values computed in several kernels", len(repeated))
        return candidate, copies.origin

    def _greedy(self, graph: FusionGraph, held: int) -> Grouping:
        """Walk greedily, and take apart what costs too much memory."""

        def regroup(choices: Mapping[int, int]) -> Grouping:
            return self._grouping(graph, choices, held)

        return relieve(regroup({}), regroup, held)

    def _grouping(self, graph: FusionGraph, choices: Mapping[int, int], held: int) -> Grouping:
        """Walk greedily, but for `choices` (see search.py), then fuse horizontally. held: by the ops one by one."""
        machine = Machine.of(isa.target().rates) if self.measured else None
        grouping = Grouping(graph, self.row_blocks, self.horizontal, choices, self.most_accesses, machine, self.cuts)
        walk(grouping)
        join_statistics(grouping)
        if self.horizontal:
            reach, room = Reach(grouping), Room.of(grouping, held)
            fuse_products(grouping, reach, room)
            fuse_nests(grouping, reach, room)
            fuse_small(grouping, reach, room)
        return grouping
