# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels that take long to compile go to the compiler first; they run in the graph's order all the same."""

import pytest

from kiln.dialects import create_context, kiln
from kiln.lowering.gpu.compile_cost import compile_cost

MAP = "affine_map<(d0, d1) -> (d0, d1)>"
WIDE = '{kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [4096]}]}'
NARROW = '{kernel = "gpu.loops", nests = [{num_warps = 4 : i64, tile = [1024]}]}'
ROW = '{kernel = "gpu.loops", nests = [{num_warps = 1 : i64, tile = [2], row = 4096 : i64}]}'
PRODUCT = (
    '{kernel = "gpu.gemm.tile", block_m = 128 : i64, block_n = 256 : i64, block_k = 64 : i64, group_m = 8 : i64, '
    "num_warps = 8 : i64, num_stages = 3 : i64}"
)
TWICE = NARROW.replace("[{", "[{num_warps = 4 : i64, tile = [1024]}, {")


def fusion(result: str, operand: str, ops: int, schedule: str, name: str) -> str:
    """Text of a fusion with so many scalar ops."""
    body = "\n".join(f"      %r{i} = arith.negf {'%in' if i == 0 else f'%r{i - 1}'} : f32" for i in range(ops))
    return f"""
  {result} = "kiln.fusion"({operand}) ({{
  ^bb0(%a: tensor<64x64xf32>):
    %e = "kiln.empty"() {{shape = affine_map<() -> (64, 64)>}} : () -> tensor<64x64xf32>
    %g = linalg.generic {{indexing_maps = [{MAP}, {MAP}], iterator_types = ["parallel", "parallel"]}}
        ins(%a : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {{
    ^bb0(%in: f32, %out: f32):
{body}
      linalg.yield %r{ops - 1} : f32
    }} -> tensor<64x64xf32>
    "kiln.yield"(%g) : (tensor<64x64xf32>) -> ()
  }}) {{kind = "pointwise", name = "{name}", schedule = {schedule}}} : (tensor<64x64xf32>) -> tensor<64x64xf32>"""


def module(*fusions: str):
    text = "".join(fusions)
    return kiln.parse(
        f"func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {{{text}\n  return %z : tensor<64x64xf32>\n}}"
    )


@pytest.mark.parametrize(
    ("cheap", "dear"),
    [
        ((1, NARROW), (9, NARROW)),
        ((1, NARROW), (1, WIDE)),
        ((1, WIDE), (1, ROW)),
        ((1, NARROW), (1, PRODUCT)),
        ((1, NARROW), (1, TWICE)),
    ],
)  # fmt: skip
def test_more_values_or_elements_of_a_thread_cost_more(cheap, dear) -> None:
    with create_context():
        costs = []
        for ops, schedule in (cheap, dear):
            found = module(fusion("%z", "%x", ops, schedule, "f"))
            costs.append(compile_cost(found.body.operations[0].regions[0].blocks[0].operations[0].operation))
    assert 0 < costs[0] < costs[1]
