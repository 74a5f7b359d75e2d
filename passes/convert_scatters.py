# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""ATen calls that write with indices as an op that has a kernel of its own."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

__all__ = ["ConvertScatters"]


_TAKEN = paths.group("any convert-scatters", "converted", "kept")


@register_pass
@dataclass
class ConvertScatters(Pass):
    """Make `kiln.scatter_nd` of calls that write with indices: scatter, index_put, index_add, embedding gradients.

    Indices are checked and clamped as those of gathers are; values are converted and broadcast by pointwise ops, which
    fusion puts into the same kernel. 16-bit floats are combined in f32. What is added to zeros starts in memory that
    the launch or the kernel clears. A call stays one, with the reason in the report, where no kernel combines its
    elements, and on a GPU where `deterministic` asks for what ATen does (atomics add in any order).

    Before::

        func.func @main(%x: tensor<8x4xf32>, %i: tensor<3xi64>, %s: tensor<3x4xf32>) -> tensor<8x4xf32> {
          %0 = "kiln.aten"(%x, %i, %s) {args = "[{\\"operand\\": 0}, 0, {\\"operand\\": 1}, {\\"operand\\": 2}]",
            kwargs = "{\\"alpha\\": 1}", op = "aten.index_add.default", pure = true,
            shapes = [affine_map<() -> (8, 4)>], strides = [unit]}
            : (tensor<8x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<8x4xf32>
          return %0 : tensor<8x4xf32>
        }

    After::

        #map = affine_map<() -> (3, 4)>
        #map1 = affine_map<(d0, d1) -> (d0)>
        #map2 = affine_map<(d0, d1) -> (d0, d1)>
        func.func @main(%arg0: tensor<8x4xf32>, %arg1: tensor<3xi64>, %arg2: tensor<3x4xf32>) -> tensor<8x4xf32> {
          %0 = "kiln.empty"() {shape = #map} : () -> tensor<3x4xi64>
          %1 = linalg.generic {indexing_maps = [#map1, #map2], iterator_types = ["parallel", "parallel"]}
              ins(%arg1 : tensor<3xi64>) outs(%0 : tensor<3x4xi64>) {
          ^bb0(%in: i64, %out: i64):
            %c7_i64 = arith.constant 7 : i64
            %c0_i64 = arith.constant 0 : i64
            %3 = arith.maxsi %in, %c0_i64 : i64
            %4 = arith.minsi %3, %c7_i64 {kiln.checked = "aten.index_add"} : i64
            linalg.yield %4 : i64
          } -> tensor<3x4xi64>
          %2 = "kiln.scatter_nd"(%arg0, %arg2, %1)
              {dims = array<i64: 0>, from_zero = false, loops = array<i64: 1>, reduce = "sum"}
              : (tensor<8x4xf32>, tensor<3x4xf32>, tensor<3x4xi64>) -> tensor<8x4xf32>
          return %2 : tensor<8x4xf32>
        }
    """

    name = "convert-scatters"
    deterministic: bool = False
    """Results must not depend on the order of programs (torch.use_deterministic_algorithms): ATen's calls stay."""
    atomics: bool = True
    """Kernels combine elements by atomic ops, in any order. Without them elements of all widths can be combined, and
    results do not depend on how many threads there are.
    """
    keep: tuple[str, ...] = ()
    """Ops that stay calls, by name (``torch.aten.index_add``): to bisect a wrong result."""

    def run(self, module: ir.Module) -> None:
        """Convert the calls of every function."""
        from kiln.passes.scatters.convert import CONVERSIONS, convert

        for function in module.body:
            if function.operation.name != "func.func" or not len(function.operation.regions[0].blocks):
                continue
            for op in list(function.operation.regions[0].blocks[0].operations):
                if name_of(op) != "kiln.aten" or "elsewhere" in op.operation.attributes:
                    continue  # of tensors on another device: no kernel may read them
                name = ir.StringAttr(op.operation.attributes["op"]).value
                if name not in CONVERSIONS:
                    continue
                reason = self._kept(name)
                if reason is None and not may_rewrite(op, name):
                    continue
                if reason is None:
                    try:
                        convert(function, op.operation, name, self.atomics)
                        self.count("converted")
                        _TAKEN("converted")
                        continue
                    except UnsupportedError as error:
                        reason = error.reason
                op.operation.attributes["reason"] = ir.StringAttr.get(reason)
                self.note(op.operation, reason)
                self.count("kept as calls")
                _TAKEN("kept")

    def _kept(self, name: str) -> str | None:
        if self.deterministic:
            return "torch.use_deterministic_algorithms: atomics add in any order"
        plain = name.removesuffix(".default")
        if any(plain == k.removeprefix("torch.").removesuffix(".default") for k in self.keep):
            return "asked for by an option"
        return None
