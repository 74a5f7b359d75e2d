# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Contexts: nothing but their users keeps them."""

import pytest
from torch_mlir import ir

from kiln.dialects import create_context, parse


def test_a_context_goes_with_its_last_module():
    before = ir.Context._get_live_count()
    context = create_context()
    module = ir.Module.parse("func.func @main() { return }", context)
    assert ir.Context._get_live_count() == before + 1
    del context
    assert ir.Context._get_live_count() == before + 1
    del module
    assert ir.Context._get_live_count() == before


def test_contexts_know_the_dialects_when_another_one_has_gone():
    create_context()
    product = """
    func.func @main(%a: tensor<2x4xf32>, %b: tensor<4x3xf32>) -> tensor<2x3xf32> {
      %0 = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = FLAG} :
        (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
      return %0 : tensor<2x3xf32>
    }"""
    context = create_context()
    assert parse(product.replace("FLAG", "false"), context).operation.verify()
    with pytest.raises(ir.MLIRError):  # verified by the dialect's definition, and by its Python code
        parse(product.replace("FLAG", "7 : i32"), context).operation.verify()


@pytest.mark.parametrize("tt", [True, False])
def test_tt_is_there_unless_it_is_left_out(tt):
    context = create_context(tt=tt)
    with context:
        names = [name for name in ("tt", "kiln", "torch") if context.is_registered_operation(_OPS[name])]
    assert names == (["tt", "kiln", "torch"] if tt else ["kiln", "torch"])


_OPS = {"tt": "tt.get_program_id", "kiln": "kiln.view", "torch": "torch.aten.relu"}
