# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Parts of a kernel come in the order of their first results, which need not be that of their numbers.

What the loops behind a product read became a result of the part with that place in the order, not of the part itself:
the kernel did not compile, or the wrong part's threads waited (graph 5 of the fuzzer on the CPU).
"""

import pytest
import torch

from benchmarks.fuzz.execute import Setting, run
from benchmarks.fuzz.program import Input, Program

BF16 = torch.bfloat16


@pytest.mark.parametrize("columns", [1, 480])
@pytest.mark.parametrize("rows", [1, 33])
def test_a_norm_behind_the_second_product(rows: int, columns: int) -> None:
    inputs = [Input((480, 480), BF16, 104, scale=0.05), Input((columns, 480), BF16, 105, scale=0.05)]
    inputs += [Input((480,), BF16, 106), Input((rows, 480), BF16, 7)]
    lines = ["F.linear(v3, v0)", "torch.square(torch.relu(F.linear(v3, v1)))", "F.rms_norm(v4 * 2 + 1, (480,), v2)"]
    assert run(Program(inputs, lines, [5, 6]), Setting("static", {"target": "cpu"}, threads=2))
