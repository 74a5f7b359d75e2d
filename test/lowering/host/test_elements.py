# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Elements of dense attributes as bytes."""

import pytest
import torch
from torch_mlir import ir

from kiln.dialects import create_context
from kiln.lowering.host.elements import dense_bytes
from kiln.passes.folding.tensors import dense

SPECIAL = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3.3895e38, -1.0]


@pytest.mark.parametrize("dtype, element", [(torch.bfloat16, "bf16"), (torch.float16, "f16"), (torch.float32, "f32")])
@pytest.mark.parametrize("values", ["special", "random", "long", "splat", "one"])
def test_floats_keep_their_bits(dtype, element, values):
    made = {
        "special": lambda: torch.tensor(SPECIAL, dtype=torch.float64),
        "random": lambda: torch.randn(3, 4),
        "long": lambda: torch.randn(40, 50),
        "splat": lambda: torch.full((6,), 0.1),
        "one": lambda: torch.tensor(-7.3),
    }
    tensor = made[values]().to(dtype)
    with create_context(), ir.Location.unknown():
        attribute = dense(tensor, element)
        found = dense_bytes(attribute, ir.RankedTensorType(attribute.type))
    assert found == bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())
