# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A scatter whose values are computed from what it writes to: programs read elements that others had changed.

The base is overwritten in place where only the scatter reads it. It was one operand with the values' source, so that it
seemed to have one reader; it is an operand of its own now, and copied (graph 1001 of the fuzzer on tt-cpu).
"""

import pytest
import torch

from benchmarks.fuzz.execute import Setting, run
from benchmarks.fuzz.program import Input, Program

INPUTS = [Input((7, 480), torch.float32, 6), Input((7, 480), torch.int64, 104, high=480)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("base", ["torch.sin(v0)", "v0 * 1"])
@pytest.mark.parametrize("values", ["v2", "v2 * 2", "v2.exp()"])
def test_values_of_the_base(base: str, values: str, dynamic: bool) -> None:
    program = Program(INPUTS, [base, f"torch.scatter_add(v2, 1, v1, {values})"], [3])
    assert run(program, Setting("static", {"target": "tt-cpu"}, dynamic=dynamic))


def test_indices_of_the_base() -> None:
    program = Program(
        INPUTS[1:], ["v0 // 2", "torch.scatter(v1, 1, v1, 479)", "torch.scatter_add(v1, 1, v1, v1)"], [2, 3]
    )
    assert run(program, Setting("static", {"target": "tt-cpu"}))
