# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The fuzzer's judge lets pass what roundings can do, and nothing else."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmarks.fuzz import execute, roundings
from benchmarks.fuzz.execute import STATIC, why_skipped
from benchmarks.fuzz.gradients import check_gradients, derive, leaves
from benchmarks.fuzz.judge import WrongResult, check, reference
from benchmarks.fuzz.layouts import _of_graph, traced
from benchmarks.fuzz.program import Input, Program
from benchmarks.fuzz.roundings import HALF_ULP, Runs, rms_norm

BF16 = torch.bfloat16


def inputs(*shapes: tuple[int, ...], dtype: torch.dtype = BF16) -> list[Input]:
    return [Input(shape, dtype, 10 * i, "plain") for i, shape in enumerate(shapes)]


def gradient(program: Program, values: list[torch.Tensor]) -> torch.Tensor:
    """Of a program's only input."""
    (found,) = derive(program, values, [values[i] for i in program.results])
    assert found is not None
    return found


PROGRAMS = {
    "product": Program(inputs((40, 64), (48, 64)), ["F.gelu(F.linear(v0, v1))"], [2]),
    "cancellation": Program(inputs((16, 96), dtype=torch.float32), ["v0.exp()", "v1 - v1.mean(1, keepdim=True)"], [2]),
    "norm": Program(inputs((30, 100), (100,)), ["F.layer_norm(v0, (100,), v1)", "torch.relu(v2)"], [3]),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("gradients", [False, True], ids=["results", "gradients"])
def test_float32_inside_of_a_program_is_right(name: str, gradients: bool) -> None:
    program = PROGRAMS[name]

    def more_exact(*given: torch.Tensor) -> list[torch.Tensor]:
        values = program.trace([x.float() for x in given])
        return [values[i].to(given[0].dtype) for i in program.results]

    if gradients:
        check_gradients(program, more_exact, leaves(program))
    else:
        check(reference(program, "cpu"), program.make("cpu"), more_exact(*program.make("cpu")))


@pytest.mark.parametrize("readers", [1, 2])
def test_gradients_that_are_added_up_have_a_rounding(readers: int) -> None:
    """Behind exact calls, too; the gradient of one reader is exact."""
    lines = ["v0.flip(1)", "torch.relu(v1)", "v1.abs()"]
    program = Program(inputs((4, 64)), lines[: 1 + readers], [2, 3][:readers])
    runs = Runs(program)
    runs.eager(leaves(program))

    exact = gradient(program, runs.wide(leaves(program, dtype=torch.float64)))
    noisy = gradient(program, runs.noisy(leaves(program, dtype=torch.float64), 0))
    error = ((noisy - exact) / exact.abs().clamp(min=1e-9)).abs().max()
    assert error == 0 if readers == 1 else 2.0**-10 < error <= 2.0**-8


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_wrong_element_is_found(name: str) -> None:
    program = PROGRAMS[name]
    found = reference(program, "cpu")
    ours = [value.clone() for i in program.results if (value := found.eager[i]) is not None]
    ours[0].view(-1)[-1] += 0.25 * ours[0].abs().max()
    with pytest.raises(WrongResult, match="1 of"):
        check(found, program.make("cpu"), ours)


def test_a_gradient_that_is_off_everywhere_is_found() -> None:
    program = PROGRAMS["norm"]

    def wrong(*given: torch.Tensor) -> list[torch.Tensor]:
        x, weight = given
        mean = x.mean(1, keepdim=True).detach()  # the gradient through the mean is missing
        deviation = (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        return [torch.relu((x - mean) / deviation * weight)]

    with pytest.raises(WrongResult, match="gradient of v0"):
        check_gradients(program, wrong, leaves(program))


def test_a_sign_that_a_rounding_decides_is_no_mistake() -> None:
    # Differences of nearly equal numbers: what a ReLU sees of them is luck, and with it where gradients flow.
    program = Program(inputs((64, 64)), ["v0 * 3", "v1 / 3", "torch.relu(v2 - v0)", "v3 + v0"], [4])

    def more_exact(*given: torch.Tensor) -> list[torch.Tensor]:
        values = program.trace([x.float() for x in given])
        return [values[i].to(BF16) for i in program.results]

    check_gradients(program, more_exact, leaves(program))


def test_some_runs_have_numbers_of_eagers_types() -> None:
    """Which of nearly equal numbers are equal, and share the gradient of a maximum, is a matter of their last bits."""
    program = Program(inputs((2000,), (2000,)), ["(v0.abs() + 1) ** 0.3", "torch.maximum(v2, v1)"], [3])
    runs = Runs(program)
    runs.eager(program.make())
    runs.wide([x.double() for x in program.make()])
    for seed in range(7):
        power = runs.noisy([x.double() for x in program.make()], seed)[2]
        assert torch.equal(power, power.bfloat16().double()) == (seed in (3, 6))


def test_rows_that_are_read_several_times_have_gradients_that_are_sums() -> None:
    """In any order: eager's may be nearer to float64 by chance, as the CPU's here, which are all exact. So may be the
    shares of equal elements.
    """
    given = [Input((6, 8), torch.int64, 1, high=2), Input((2, 64), torch.float32, 2)]
    for read in ("F.embedding(v0, v1)", "v1[v0]", "torch.index_select(v1, 0, v0[0])", "torch.amin(v1, dim=1)"):
        program = Program(given, [read], [2])
        gradients = []
        for seed in (0, 1):
            x = [v.double().requires_grad_() if v.is_floating_point() else v for v in program.make()]
            runs = Runs(program)
            runs.eager(program.make())
            runs.wide(x)
            runs.noisy(x, seed)[2].sum().backward()
            gradients.append(x[1].grad)
        apart = ((gradients[0] - gradients[1]) / gradients[0]).nan_to_num().abs().max()
        assert 2.0**-22 < apart < 2.0**-17, read


class _Norm(torch.autograd.Function):
    """A batch norm whose backward pass reads a reciprocal deviation that is four units in the last place off."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        mean, inverse = x.mean((0, 2, 3), keepdim=True), (x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).rsqrt()
        ctx.save_for_backward(x, mean, inverse * (1 + 2**-21))
        return (x - mean) * inverse

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        x, mean, inverse = ctx.saved_tensors
        y = (x - mean) * inverse
        along = y * (gradient * y).mean((0, 2, 3), keepdim=True)
        return inverse * (gradient - gradient.mean((0, 2, 3), keepdim=True) - along)


def test_gradients_that_a_norm_cancels_are_as_inexact_as_its_statistics() -> None:
    """A batch norm does not see the scale of its channels: their gradients are what roundings leave of large terms."""
    given = [Input((1, 112, 17, 17), torch.float32, 1, values="large"), Input((112, 1, 1), torch.float32, 2)]
    program = Program(given, ["v0 * torch.sigmoid(v1)", "F.batch_norm(v2, None, None, training=True)"], [3])
    check_gradients(program, lambda x, scale: [_Norm.apply(x * torch.sigmoid(scale))], leaves(program))


def test_subnormal_numbers_round_by_their_spacing_inside_of_a_program() -> None:
    """Of f16 near 2^-21 eager keeps three bits; what is computed of them may keep more, which eager rounds by chance
    towards the right number."""
    given = [Input((64, 64), torch.float16, 1)]
    program = Program(given, ["torch.exp(-400 * v0.abs()) * 5e-7", "torch.erf(v1)", "v2.to(torch.float64)"], [3])
    kept = torch.erf(program.trace(program.make("cpu"))[1].float()).double()
    check(reference(program, "cpu"), program.make("cpu"), [kept])
    kept[27, 9] += 2.0**-19
    with pytest.raises(WrongResult):
        check(reference(program, "cpu"), program.make("cpu"), [kept])


def test_strides_of_either_trace_are_right() -> None:
    """Of one channel nobody can tell where it lies: a graph of dynamic sizes has the result of a convolution row-major,
    eager has it channels-last."""
    given = [
        Input((8, 1, 5, 5), torch.float32, 1, "channels_last"),
        Input((6, 1, 1, 1), torch.float32, 2, "channels_last"),
    ]
    program = Program(given, ["v0 * 2", "F.conv2d(v2, v1)"], [3])
    found = reference(program, "cpu")
    value = found.eager[3]
    assert value is not None
    for form in (torch.channels_last, torch.contiguous_format):
        check(found, program.make("cpu"), [value.contiguous(memory_format=form)])
    with pytest.raises(WrongResult, match="strides"):
        check(found, program.make("cpu"), [value.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)])


def test_strides_of_a_graph_without_writes_are_right() -> None:
    """AOTAutograd's zeros lie row-major, so that it has the convolution's channels apart."""
    given = [Input((1, 1, 7), torch.float32, 1, "transposed"), Input((1, 4, 3), torch.float32, 2)]
    program = Program(given, ["v0.zero_()", "F.conv_transpose1d(v2, v1)"], [3])
    found = reference(program, "cpu")
    value = found.eager[3]
    assert value is not None and value.stride() == (36, 1, 4)
    check(found, [torch.zeros(1, 1, 7), program.make("cpu")[1]], [value.contiguous()])


def test_strides_of_a_trace_do_not_depend_on_earlier_ones() -> None:
    """FakeTensors keep what an op returned, and a group norm of one channel returns other strides to AOTAutograd."""
    given = [Input((2, 1, 6, 6), torch.float32, 1, "channels_last"), Input((8, 1, 3, 3), torch.float32, 2)]
    program = Program(given, ["F.group_norm(v0 * 2, 1)", "F.conv2d(v2, v1)"], [3])
    assert {tuple(layouts[3]) for layouts in traced(program, "cpu")} == {(128, 16, 4, 1), (128, 1, 32, 8)}


def test_scores_of_nan_are_no_numbers() -> None:
    given = [Input((16, 16, 3, 3), torch.float32, 0, "plain", special=True)]
    program = Program(given, ["F.scaled_dot_product_attention(v0, v0, v0)"], [1])
    found = reference(program, "cpu")
    value = found.eager[1]
    assert value is not None
    check(found, program.make("cpu"), [torch.where(value == 0, torch.nan, value)])
    with pytest.raises(WrongResult):
        check(found, program.make("cpu"), [torch.full_like(value, torch.nan)])


def test_scores_of_nan_behind_other_ops() -> None:
    """The largest of a row that ATen's kernel fills with zeros and of one without NaN."""
    given = [Input((8, 1, 4, 3), BF16, 5, special=True)]
    lines = ["F.scaled_dot_product_attention(v0, v0, v0, is_causal=True)", "F.adaptive_max_pool2d(v1, 2)"]
    program = Program(given, lines, [2])

    def by_definition(x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_max_pool2d(roundings.attention(x, x, x, is_causal=True), 2)

    ours = by_definition(*program.make("cpu"))
    assert bool(torch.isnan(ours[0, 0, 0, 0]))
    check(reference(program, "cpu"), program.make("cpu"), [ours])


def test_gradients_of_calls_that_are_exact_by_chance_have_roundings() -> None:
    """The mean of equal numbers is exact; its gradient, divided by their number, is not."""
    program = Program([Input((64, 65), BF16, 1, values="equal")], ["v0.mean(1)"], [1])
    runs = Runs(program)
    runs.eager(leaves(program))

    exact = gradient(program, runs.wide(leaves(program, dtype=torch.float64)))
    noisy = gradient(program, runs.noisy(leaves(program, dtype=torch.float64), 1))
    assert 2.0**-10 < ((noisy - exact) / exact).abs().max() <= 2.0**-8


def test_gradients_of_norms_have_the_roundings_of_what_cancels() -> None:
    """Of rows of two elements a thousandth is left of the gradients that a norm subtracts from each other."""
    lines = ["v0.unfold(1, 2, 2)", "v1[:, :2]", "F.layer_norm(v2, (2,))"]
    program = Program([Input((9, 17), torch.float32, 39)], lines, [1, 3])

    def by_definition(x: torch.Tensor, scale: float = 1.0) -> list[torch.Tensor]:
        rows = x.unfold(1, 2, 2)
        normed = rows[:, :2]
        normed.register_hook(lambda gradient: gradient * scale)
        distance = normed - normed.mean(2, keepdim=True)
        return [rows, distance * torch.rsqrt(distance.square().mean(2, keepdim=True) + 1e-5)]

    check_gradients(program, by_definition, leaves(program))
    with pytest.raises(WrongResult, match="gradient"):
        check_gradients(program, lambda x: by_definition(x, 1 + 2.0**-5), leaves(program))


@pytest.mark.parametrize("error", [2.0**-13, 2.0**-4])
def test_gradients_of_norms_of_single_elements(error: float) -> None:
    """Zero, but for the rounding of gradients times 316: one over the root of what is added to the variance."""
    given = Input((13, 13), torch.float32, 1), Input((13,), torch.float32, 2)
    program = Program(list(given), ["F.group_norm(v0, 13, v1)"], [2])

    def rounded(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        read = x * 1
        off = torch.zeros_like(x)
        off[7, 10] = error
        read.register_hook(lambda gradient: gradient + off)
        return [F.group_norm(read, 13, weight)]

    if error < 2.0**-12:
        check_gradients(program, rounded, leaves(program))
    else:
        with pytest.raises(WrongResult, match="gradient of v0: 1 of 169"):
            check_gradients(program, rounded, leaves(program))


def test_weights_of_an_attention_have_roundings() -> None:
    """Of many terms that cancel: eager's error of one result near zero may be smaller by chance."""
    program = Program(inputs((1, 1, 64, 64), (1, 1, 256, 64), (1, 1, 256, 64)),
                      ["F.scaled_dot_product_attention(v0, v1, v2)"], [3])  # fmt: skip
    runs = Runs(program)
    runs.eager(program.make("cpu"))
    given = q, k, v = [x.double() for x in program.make("cpu")]
    exact = runs.wide(given)[3]
    one_by_one = ((q @ k.mT / 8).softmax(-1).square() @ v.square()).sqrt()
    small = exact.abs() < one_by_one / 8
    errors = torch.stack([(runs.noisy(given, seed)[3] - exact)[small] / one_by_one[small] for seed in (1, 2, 4, 5)])
    assert 0.4 < errors.square().mean().sqrt() / HALF_ULP[BF16] < 0.8


def test_memory_that_kernels_of_aten_leave_unwritten_is_no_number() -> None:
    """So that eager is seen to be wrong where a kernel leaves elements unwritten."""
    execute._leave(math.nan)
    assert any(torch.empty(2**size).isnan().any() for size in range(6, 20))


def test_gradients_that_eager_leaves_unwritten_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a weight that meets no pixel, by oneDNN; here by a double of it, as newer ones may write all."""

    def unwritten(program: Program, values: list[torch.Tensor], results: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.empty(2**16)]

    program = Program(inputs((4, 5)), ["F.relu(v0)"], [1])
    training = replace(STATIC, training=True)
    assert not execute._shows_unwritten(program, training)
    monkeypatch.setattr(execute, "derive", unwritten)
    assert execute._shows_unwritten(program, training)


def test_hardswish_by_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    x = 4 * torch.randn(100, dtype=torch.float64)
    torch.testing.assert_close(roundings.hardswish(x), F.hardswish(x))
    program = Program(inputs((4, 5)), ["F.hardswish(v0)"], [1])
    assert not why_skipped(program, STATIC)
    # A definition that cannot be called is no reason to skip.
    monkeypatch.setitem(roundings.DEFINITIONS, "hardswish", lambda x: x)
    with pytest.raises(roundings.ReferenceFailed, match="inplace"):
        why_skipped(program, STATIC)


def test_rms_norms_by_definition() -> None:
    x, w = torch.randn(5, 3, 7, dtype=torch.float64), torch.randn(3, 7, dtype=torch.float64)
    torch.testing.assert_close(rms_norm(x, (3, 7), w), F.rms_norm(x, (3, 7), w))
    torch.testing.assert_close(rms_norm(x, (7,), eps=0.25), F.rms_norm(x, (7,), eps=0.25))
    x[1, 2, 3] = math.inf
    row = rms_norm(x, (7,))[1, 2]
    assert row[3].isnan() and (row[[0, 1, 2, 4, 5, 6]] == 0).all()


def test_strides_of_programs_that_pytorch_cannot_trace_with_symbols() -> None:
    """The symbol of a scale is unknown to a pass of PyTorch's: other traces still say the strides."""
    given = [Input((2, 3, 7, 7), torch.float32, 1), Input((5, 3, 1, 1), torch.float32, 2)]
    lines = ["F.conv2d(v0, v1, None, 2)", "F.interpolate(v2, scale_factor=2, mode='nearest')", "v3.mean()"]
    program = Program(given, lines, [3, 4])
    with pytest.raises(KeyError):
        _of_graph(program, "cpu", is_dynamic=True)
    assert all(layouts[3] == [320, 64, 8, 1] for layouts in traced(program, "cpu"))


def test_a_number_too_large_for_its_dtype_is_infinite() -> None:
    """Where eager rounds to infinity on the way, and then subtracts it from itself."""
    program = Program([Input((1, 7), torch.float16, 0)], ["torch.exp((v0 + 20) * 2)", "torch.std(v1, dim=[1])"], [2])
    found = reference(program, "cpu")
    eager, wide = found.eager[2], found.wide[2]
    assert eager is not None and wide is not None and bool(eager.isnan().all()) and bool(wide.isfinite().all())
    check(found, program.make("cpu"), [torch.full_like(eager, torch.inf)])
    with pytest.raises(WrongResult, match="not finite elsewhere"):
        check(found, program.make("cpu"), [-torch.full_like(eager, torch.inf)])


def test_ties_by_rounding_share_gradients() -> None:
    """A result of eager's type, another one in float64, is as large as an element that is scattered onto it."""
    scatter = "torch.scatter_reduce({}, 0, torch.arange(32), v0[:32], 'amax', include_self=False)"
    given = [Input((64,), BF16, 0, values="equal")]
    program = Program(given, ["v0 * 1.003", scatter.format("v1")], [2])
    tied = Program(given, [scatter.format("torch.cat([v0[:32].detach(), 1.003 * v0[32:]])")], [1])
    check_gradients(program, tied.function(), leaves(program))


@pytest.mark.parametrize("training", [False, True])
def test_a_cast_that_copies_is_a_copy_in_float64(training: bool) -> None:
    """Where it is none in float64, what is written into it would be written into the input."""
    lines = ["v0.to(torch.float32)", "v1.transpose(-1, -2).mul_(2)", "v1 + 1"]
    program = Program([Input((8, 12), torch.bfloat16, 1)], lines, [3])
    runs = Runs(program)
    eager = runs.eager(leaves(program) if training else program.make("cpu"))
    given = leaves(program, "cpu", torch.float64) if training else [x.double() for x in program.make("cpu")]
    for values in (runs.wide(given), runs.noisy([x.detach() for x in given], 1)):
        assert torch.equal(values[0].detach(), eager[0].double())
