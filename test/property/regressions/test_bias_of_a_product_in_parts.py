# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graph 55000131 of the fuzzer: a product added up from parts was rounded before its bias was added, where a ReLU of a
graph that trains reads the result: off by a rounding of the larger of the two, so that the sign was another one.
"""

import torch

from benchmarks.fuzz.execute import Setting, run
from benchmarks.fuzz.program import Input, Program

PROGRAM = Program(
    [
        Input((129, 4096), torch.float16, 2, values="few", high=8),
        Input((32, 4096), torch.float16, 101, high=8, scale=0.015625),
        Input((32,), torch.float16, 102, high=8),
        Input((129, 1), torch.float16, 103, high=8),
    ],
    ["torch.relu(F.linear(v0, v1, v2) * torch.sigmoid(v3))"],
    [4],
)


def test_bias_of_a_product_in_parts() -> None:
    assert run(PROGRAM, Setting(kind="training", options={"target": "tt-cpu"}, training=True, device="cpu", threads=1))
