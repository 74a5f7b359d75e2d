# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import Index, Tensor
from kiln.dialects.kiln.table import Role, define, shape_attribute


class RandomOp(base.Operation, name="random", traits=[base.PureUnless(lambda op: True)]):
    """Random numbers of sizes `shape`, each a function of the seed, the offset and the element's position alone.

    Philox-4x32-10 (Salmon et al., SC 2011) keyed with `seed`, counter = row-major position in the low and `offset` in
    the high 64 bits; `seed` and `offset` are `tensor<i64>`.  `kind` is "uniform" (f32 in [0, 1), 24 bits), "normal" (f32,
    Box-Muller) or "bits" (i32).  Never merged or dropped: two draws of equal operands are made equal by the caller only.

    ```mlir
    func.func @rand(%seed: tensor<i64>, %offset: tensor<i64>, %n: index) -> tensor<?x8xf32> {
      %0 = "kiln.random"(%seed, %offset, %n) {kind = "uniform", shape = affine_map<()[s0] -> (s0, 8)>}
        : (tensor<i64>, tensor<i64>, index) -> tensor<?x8xf32>
      return %0 : tensor<?x8xf32>
    }
    ```
    """

    seed: ir.Value[Tensor]
    offset: ir.Value[Tensor]
    symbols: Sequence[ir.Value[Index]]
    result: base.Result[Tensor]
    kind: ir.StringAttr
    shape: ir.AffineMapAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that seed and offset are 0-dim i64 tensors, and the element type of the kind."""
        for name, value in (("seed", self.seed), ("offset", self.offset)):
            checks.is_integer(name, value, 64)
            checks.rank_is(name, value, 0)
        kind = checks.one_of(self, "kind", ["uniform", "normal", "bits"])
        found = self.result.type.element_type
        context = found.context
        element = ir.IntegerType.get_signless(32, context) if kind == "bits" else ir.F32Type.get(context)
        checks.require(found == element, "result element type", element, found)
        shape = checks.map_of(self, "shape", 0, self.result.type.rank, len(self.symbols))
        checks.shape_matches("result", shape, self.result)


define(RandomOp, Role.POINTWISE, shape=shape_attribute, reference="kiln.dialects.reference.random:random")


def random(
    seed: Any,
    offset: Any,
    kind: str,
    shape: ir.AffineMap | Sequence[base.Dim],
    symbols: Sequence[ir.Value] = (),
) -> ir.Value:
    """Build a `kiln.random`."""
    (shape,), symbols = base.compress_symbols([base.as_map(shape, 0, len(symbols))], symbols)
    element = ir.IntegerType.get_signless(32) if kind == "bits" else ir.F32Type.get()
    attributes = {"kind": base.string(kind), "shape": ir.AffineMapAttr.get(shape)}
    operands = [base.value_of(seed), base.value_of(offset), *symbols]
    return RandomOp.create(operands, [base.tensor_type(element, shape)], attributes).result
