# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the fuzzer's judge lets a GPU and its libraries do, and the CPU not."""

import pytest
import torch
import torch.nn.functional as F

from benchmarks.fuzz import roundings
from benchmarks.fuzz.gradients import check_gradients, leaves
from benchmarks.fuzz.judge import WrongResult, check, reference
from benchmarks.fuzz.program import Input, Program
from benchmarks.fuzz.roundings import Runs

BF16 = torch.bfloat16


def test_a_gpu_rounds_a_convolution_before_its_bias_is_added() -> None:
    # Small integers: all is exact, but for the convolution, which nearly cancels with its bias.
    given = [Input(shape, BF16, i, values="few") for i, shape in enumerate([(2, 16, 8, 8), (32, 16, 3, 3)])]
    program = Program(given, ["1 + v0 / 128", "F.conv2d(v2, v1, -v1.sum((1, 2, 3)))"], [3])
    _, weight, image, _ = program.trace(program.make("cpu"))
    rounded = F.conv2d(image, weight) - weight.sum((1, 2, 3)).view(-1, 1, 1)
    check(reference(program, "cpu", for_gpu=True), program.make("cpu"), [rounded])
    with pytest.raises(WrongResult):
        check(reference(program, "cpu"), program.make("cpu"), [rounded])


def test_cublas_may_round_a_split_product_before_its_bias_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounded sum may be the bias: a ReLU has no gradient then, but on CUDA alone."""
    # Sums of 256.5, in bf16 256.
    given = [Input(shape, BF16, i, values="equal") for i, shape in enumerate([(4, 456), (32, 456)])]
    program = Program(given, ["v0.new_full((32,), -256)", "F.relu(F.linear(v0, v1, v2))"], [3])
    apart = Program(given, [program.lines[0], "F.relu(F.linear(v0, v1) + v2)"], [3])
    with pytest.raises(WrongResult):
        check_gradients(program, apart.function(), leaves(program), for_gpu=True)
    monkeypatch.setattr(roundings, "_is_on_cuda", lambda x: True)
    check_gradients(program, apart.function(), leaves(program), for_gpu=True)


def test_denormal_results_of_a_gpu_may_be_zero_and_what_follows_from_them() -> None:
    given = [Input((64, 64), torch.float32, 1)]
    program = Program(given, ["v0 * 1e-39", "F.elu(v1)", "v2 * 1e6"], [3])
    flushed = torch.zeros(64, 64)
    check(reference(program, "cpu", for_gpu=True), program.make("cpu"), [flushed])
    with pytest.raises(WrongResult):
        check(reference(program, "cpu"), program.make("cpu"), [flushed])


def test_sums_on_a_gpu_are_rounded_with_each_number() -> None:
    given = [Input((4, 64), torch.float16, 1), Input((64,), torch.int64, 2, high=4), Input((64, 64), torch.float16, 3)]
    program = Program(given, ["torch.index_add(v0, 0, v1, v2)"], [3])

    runs = Runs(program, for_gpu=True)
    runs.eager(program.make())
    wide = runs.wide([x.double() if x.is_floating_point() else x for x in program.make()])[3]
    noisy = runs.noisy([x.double() if x.is_floating_point() else x for x in program.make()], 1)[3]
    assert 1.5 * 2.0**-11 < ((noisy - wide) / wide).abs().max() < 5 * 2.0**-11


def test_a_gpu_takes_denormal_operands_for_zero() -> None:
    """Also those of a graph, and twice as much, which no rounding changes."""
    program = Program([Input((40,), BF16, 1, values="denormal")], ["v0 * 2", "v1 * 1e30", "v2 * 1e9"], [3])
    found = reference(program, "cpu", for_gpu=True)
    zeros = torch.zeros(40, dtype=BF16)
    check(found, program.make("cpu"), [zeros])
    with pytest.raises(WrongResult):
        check(reference(program, "cpu"), program.make("cpu"), [zeros])
