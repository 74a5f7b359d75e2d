# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops that are tried by themselves become the kernels that they are in their graph."""

import pytest
from torch_mlir import ir

from kiln.dialects import create_context, kiln
from kiln.frontend.options import Options
from kiln.lowering.gpu.dot.fusions import DotOptions
from kiln.lowering.gpu.tune.extract import pointwise_chain, scheduled
from kiln.lowering.host.kernels import fusion_key
from kiln.passes import run_pipeline
from kiln.passes.fusion.kernels import fusions_of
from kiln.passes.pipelines import gpu_pipeline

LINEAR = """
func.func @main(%b: !torch.vtensor<[64],bf16>, %x: !torch.vtensor<[32,128],bf16>, %w: !torch.vtensor<[128,64],bf16>)
    -> !torch.vtensor<[32,64],bf16> {
  %one = torch.constant.int 1
  %0 = torch.aten.addmm %b, %x, %w, %one, %one : !torch.vtensor<[64],bf16>, !torch.vtensor<[32,128],bf16>,
    !torch.vtensor<[128,64],bf16>, !torch.int, !torch.int -> !torch.vtensor<[32,64],bf16>
  return %0 : !torch.vtensor<[32,64],bf16>
}
"""


@pytest.mark.parametrize("roundings", [False, True])
def test_a_product_with_its_bias_is_the_same_kernel(roundings: bool) -> None:
    """What is found for it is then known when the graph's kernels are tuned."""
    steps = [step.pass_.spec() for step in gpu_pipeline(Options(emulate_precision_casts=roundings, tensor_maps=False))]
    at = next(i for i, step in enumerate(steps) if step.startswith("expand-named-ops"))
    front = [step for step in steps[:at] if not step.startswith("choose-vendor")]
    with create_context(), ir.Location.unknown():
        module = kiln.parse(LINEAR)
        run_pipeline(module, ",".join(front))
        block = module.body.operations[0].regions[0].blocks[0]
        product = next(op.operation for op in block.operations if kiln.name_of(op) == "kiln.matmul")
        chain = pointwise_chain(product.results[0])
        assert chain
        found = scheduled([product, *chain], [], DotOptions(roundings=roundings))
        assert found is not None
        _, _, tried = found
        run_pipeline(module, ",".join(steps[at:]))
        graph = fusions_of(module)
        assert len(tried) == len(graph) == 1
        assert fusion_key(tried[0].operation) == fusion_key(graph[0].operation)
