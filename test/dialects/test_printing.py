# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Modules print where no context is current: MLIR's printer verifies, so verifiers must not need one."""

from kiln.dialects import create_context, parse

MASKED = """
func.func @main(%q: tensor<1x1x17x1xf32>, %k: tensor<1x1x31x1xf32>, %m: tensor<17x31xi1>) -> tensor<1x1x17x1xf32> {
  %0 = "kiln.attention"(%q, %k, %k, %m) {scale = 1.0, causal = false}
    : (tensor<1x1x17x1xf32>, tensor<1x1x31x1xf32>, tensor<1x1x31x1xf32>, tensor<17x31xi1>) -> tensor<1x1x17x1xf32>
  return %0 : tensor<1x1x17x1xf32>
}
"""


def test_attention_with_a_mask() -> None:
    with create_context():
        module = parse(MASKED)
    assert "kiln.attention" in str(module)
